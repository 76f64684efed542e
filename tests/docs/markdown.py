"""What Markdown pages contain: blocks of code, commands, links, paths."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests import ROOT

ROOT_PAGES = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "examples/README.md", "benchmarks/README.md")
PAGES = (
    *ROOT_PAGES,
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("papers/*/README.md"))),
    *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md"))),
)


class Shown(NamedTuple):
    """A command as a page shows it."""

    words: tuple[str, ...]  # all words behind `penstock`
    options: frozenset[str]


def text_of(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    """Return the blocks of code of a page in a language; without one: of plain text."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE)
    return [code for written, code in found if written == language]


def output_of(page: str, command: str) -> str:
    """Return what a page shows as the output of a command."""
    (block,) = [block for block in blocks(page, "") if block.startswith(f"$ {command}")]
    return block.partition("\n")[2]


def commands(page: str) -> Iterator[Shown]:
    """Return the commands that a page shows, in blocks and within its text."""
    plain = "\n".join(blocks(page, ""))
    lines = re.findall(r"^(?:\$ )?penstock ([^\n#]*)", plain, re.MULTILINE)
    quoted = re.findall(r"`penstock ([^`]*)`", re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL))
    for line in [*lines, *quoted]:
        words = re.findall(r"[^\s|]+", line.replace("\\|", "|"))
        options = frozenset(re.findall(r"(?<!\w)--[a-z][a-z-]+", line))
        yield Shown(tuple(words), options)


def links(page: str) -> Iterator[str]:
    """Return the targets of a page's links that lead to files or anchors."""
    text = re.sub(r"^```.*?^```", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            yield target


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings."""
    found = re.findall(r"^#+ (.*?)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in found}
