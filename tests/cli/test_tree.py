"""The tree of commands agrees with the commands, and the help of groups loads none of them."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from typer.core import TyperGroup

from penstock.cli.app import root
from penstock.cli.tree import TREE, LazyCommand, Section, walk

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
    for path, entry in walk():
        epilog = LazyCommand(entry).load().epilog
        assert f"{epilog} ".startswith(f"Example: penstock {' '.join(path)} ")


@pytest.mark.parametrize("command", list(leaves(root())), ids=lambda command: command.entry.function)
def test_a_run_is_named_by_the_first_argument_or_beside_others_by_an_option(command: LazyCommand) -> None:
    parameters = command.load().params
    run = next((each for each in parameters if each.name == "run"), None)
    if run is None:
        return
    arguments = [each for each in parameters if each.param_type_name == "argument"]
    assert not run.required
    assert "latest" in str(getattr(run, "help", ""))
    if run in arguments:
        assert arguments[0] is run
        assert not any(each.required for each in arguments)
    else:
        assert run.opts == ["--run"]
        assert arguments


def test_help_of_groups_loads_no_command() -> None:
    script = f"""
import io, json, sys
from contextlib import redirect_stdout
from penstock.cli import main

found = []
for group in {GROUPS!r}:
    sys.argv = ["penstock", *group, "--help"]
    with redirect_stdout(io.StringIO()) as printed:
        try:
            main()
        except SystemExit as end:
            assert not end.code
    found.append((printed.getvalue(), [name for name in {HEAVY!r} if name in sys.modules]))
print(json.dumps(found))
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for group, (printed, loaded) in zip(GROUPS, json.loads(ran.stdout), strict=True):
        assert loaded == [], group
        nodes = next((node.entries for node in TREE if isinstance(node, Section) and (node.name,) == group), TREE)
        for node in nodes:
            assert f"{node.name} " in printed
            assert node.role in printed
