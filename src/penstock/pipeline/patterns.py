"""Paths as Spark's readers want them, which take every path for a pattern.

Hadoop's patterns give a meaning to a few characters that may as well be in a name: `runs[1]` would read `runs1`, whose
records nobody asked for. Only readers do so; what is written, and a checkpoint, goes where its path says.
"""

import re
from pathlib import Path

from penstock.model.errors import FileProblem

_SPECIAL = re.compile(r"[\[\]{}*?\\]")  # a comma and a hyphen mean something between brackets only


def literal(path: Path) -> str:
    """Return the pattern that a path alone fits; refuse one for which Hadoop has no pattern."""
    text = str(path.absolute())  # of runs:1 the part before the colon would be a scheme
    if ":" in text and _SPECIAL.search(text):  # it takes what is before a colon in a pattern for a scheme such as file:
        raise FileProblem(f"{path}: Spark reads no path that has a colon and one of []{{}}*?\\ in it; rename it")
    return _SPECIAL.sub(r"\\\g<0>", text)
