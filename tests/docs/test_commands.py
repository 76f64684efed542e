"""Every command that a page shows exists and has the options that it is shown with."""

from functools import cache

import pytest
from typer.core import TyperGroup

from penstock.cli.tree import commands as tree
from tests.docs.markdown import PAGES, Shown, commands

ROOT = {str(command.name): command for command in tree()}


@cache
def options_of(words: tuple[str, ...]) -> frozenset[str]:
    """Return the options of the command that the words begin with; fail if there is no such command."""
    found, rest = ROOT[words[0]], words[1:]
    while isinstance(found, TyperGroup):
        if not rest:  # a text names the group
            return frozenset({"--help"})
        found, rest = found.commands[rest[0]], rest[1:]  # type: ignore[assignment]
    return frozenset({name for each in found.load().params for name in (*each.opts, *each.secondary_opts)} | {"--help"})


def missing(shown: Shown) -> str:
    """Return what is wrong with a command that a page shows."""
    words = tuple(word for word in shown.words[:3] if word.replace("-", "").isalpha())
    if not words or words[0].isupper() or words[0].startswith("-"):  # penstock COMMAND, penstock --help
        return ""
    try:
        unknown = shown.options - options_of(words)
    except KeyError as error:
        return f"no command {error}"
    return f"no option {' '.join(sorted(unknown))}" if unknown else ""


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_only_commands_and_options_that_exist(page: str) -> None:
    assert {" ".join(shown.words): wrong for shown in commands(page) if (wrong := missing(shown))} == {}


def test_pages_show_many_commands_and_a_wrong_one_is_found() -> None:
    assert sum(len(list(commands(page))) for page in PAGES) > 100
    assert missing(Shown(("runs", "shove"), frozenset())) == "no command 'shove'"
    assert missing(Shown(("plan",), frozenset({"--objektive"}))) == "no option --objektive"
