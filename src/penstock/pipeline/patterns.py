"""Escape paths for Spark's readers, which treat every path as a pattern.

Hadoop's patterns give a meaning to a few characters that are allowed in names: `runs[1]` would read `runs1`. Only
readers do so; output and checkpoints go to the literal path.
"""

import re
from pathlib import Path

from penstock.model.errors import FileProblem

_SPECIAL = re.compile(r"[\[\]{}*?\\]")  # comma and hyphen are special only between brackets


def literal(path: Path) -> str:
    """Return the pattern that matches only this path; raises if Hadoop has none."""
    text = str(path.absolute())  # in runs:1 the part before the colon would be a scheme
    if ":" in text and _SPECIAL.search(text):  # a pattern's part before a colon is taken for a scheme such as file:
        raise FileProblem(f"{path}: Spark cannot read a path with a colon and one of []{{}}*?\\; rename it")
    return _SPECIAL.sub(r"\\\g<0>", text)
