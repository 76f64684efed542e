"""ARCHITECTURE.md is true: its paths exist, and the walk of a tuple is the one that the code takes."""

import re
from pathlib import Path

import penstock.runtime
from tests import ROOT

RUNTIME = Path(penstock.runtime.__file__).parent


def walk() -> list[str]:
    """Return the numbered steps of the walk."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.partition("## Life of a tuple")[2].partition("The same files serve")[0]
    return re.split(r"\n\d+\. ", section)[1:]


def source_of(step: str) -> Path:
    named: str = re.findall(r"`([\w/]+\.py)`", step)[0]
    return RUNTIME / named


def test_the_walk_of_a_tuple_takes_ten_files_at_most() -> None:
    files = [source_of(step) for step in walk()]
    assert len(set(files)) == len(files) <= 10
    assert all(file.exists() for file in files)


def test_every_function_on_the_walk_is_where_the_walk_says() -> None:
    sources = {source_of(step): source_of(step).read_text() for step in walk()}
    for step in walk():
        name = re.findall(r"`(\w+)\.(\w+)`", step.partition(":")[2])
        own = sources[source_of(step)]
        assert any(f"class {cls}" in own and f"def {function}(" in own for cls, function in name), step
        for cls, function in name:
            homes = [text for text in sources.values() if f"class {cls}" in text]
            assert any(f"def {function}(" in text for text in homes), (cls, function)


def test_every_path_in_the_architecture_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    before, rest = text.split("## Life of a tuple")
    runtime, after = rest.split("## Facts worth knowing")
    paths = {(each, base) for each in named(before + after) for base in [RUNTIME.parent]}
    paths |= {(each, RUNTIME) for each in named(runtime)}
    assert len(paths) > 60
    assert [each for each, base in sorted(paths) if not any((top / each).exists() for top in (ROOT, base))] == []


def named(text: str) -> set[str]:
    """Return the paths that a text names."""
    found = re.findall(r"`([\w./<>*]+)`", text)
    return {each for each in found if ("/" in each or each.endswith((".py", ".md"))) and "<" not in each}
