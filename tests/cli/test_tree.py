"""The tree of commands agrees with the commands, and the help of groups loads none of them."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.core import TyperGroup

from penstock.cli.app import root
from penstock.cli.tree import TREE, Entry, LazyCommand, Section

HEAVY = ("numpy", "numba", "pandas", "pyspark", "scipy", "matplotlib", "msgspec")
GROUPS = ((), *((node.name,) for node in TREE if isinstance(node, Section)))


def leaves(group: TyperGroup) -> Iterator[LazyCommand]:
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            yield from leaves(command)
        else:
            assert isinstance(command, LazyCommand)
            yield command


@pytest.mark.parametrize("command", list(leaves(root())), ids=lambda command: command.entry.function)
def test_entry_agrees_with_its_command(command: LazyCommand) -> None:
    loaded = command.load()
    assert loaded.name == command.entry.name
    assert (loaded.help or "").splitlines()[0] == command.entry.help
    assert loaded.epilog is not None


def test_examples_name_their_commands() -> None:
    for node in TREE:
        for entry in (node,) if isinstance(node, Entry) else node.entries:
            path = entry.name if isinstance(node, Entry) else f"{node.name} {entry.name}"
            epilog = LazyCommand(entry).load().epilog
            assert f"{epilog} ".startswith(f"Example: penstock {path} ")


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
def test_help_of_a_group_loads_no_command(group: tuple[str, ...]) -> None:
    script = (
        "import sys\n"
        f"sys.argv = ['penstock', *{group!r}, '--help']\n"
        "from penstock.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stderr == "[]\n"
    nodes = next((node.entries for node in TREE if isinstance(node, Section) and (node.name,) == group), TREE)
    for node in nodes:
        assert f"{node.name} " in ran.stdout
        assert node.role in ran.stdout
