"""The reference of commands names every command and every option."""

import re

from penstock.cli.app import root
from penstock.cli.reference import commands
from tests.cli.test_tree import leaves


def test_reference_has_every_command_with_its_options_and_an_example() -> None:
    parts = re.split(r"^#{2,3} ", commands(), flags=re.MULTILINE)
    sections = {part.partition("\n")[0]: part for part in parts[1:]}
    for command in leaves(root()):
        loaded = command.load()
        example = (loaded.epilog or "").removeprefix("Example: ")
        path = next(
            path for path in sections if f"{example} ".startswith(f"{path} ") and path.endswith(f" {loaded.name}")
        )
        assert example in sections[path]
        for parameter in loaded.params:
            if parameter.opts[0].startswith("-"):
                assert re.search(rf"^\| `[^`]*{parameter.opts[0]}\b", sections[path], re.MULTILINE), parameter


def test_links_of_the_reference_lead_to_its_headings() -> None:
    page = commands()
    headings = {line.lstrip("# ").replace(" ", "-") for line in page.splitlines() if line.startswith("#")}
    assert set(re.findall(r"\(#([\w-]+)\)", page)) <= headings
