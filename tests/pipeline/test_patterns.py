from pathlib import Path

import pytest

from penstock.model.errors import FileProblem
from penstock.pipeline.patterns import literal


def test_a_name_with_wildcards_becomes_a_pattern_that_only_it_matches() -> None:
    assert literal(Path("/runs/word count-1,2: 50%#~")) == "/runs/word count-1,2: 50%#~"
    assert literal(Path("/a[1]/{b,c}*?")) == r"/a\[1\]/\{b,c\}\*\?"
    assert literal(Path("/back\\slash")) == r"/back\\slash"
    assert literal(Path("runs:1")) == str(Path.cwd() / "runs:1")


def test_rejects_names_without_a_hadoop_pattern() -> None:
    with pytest.raises(FileProblem, match=r"^/runs/14:25/\[1\]: Spark cannot read a path with a colon and one of .*; "):
        literal(Path("/runs/14:25/[1]"))
