"""The reference of commands and options, generated from the tree of commands."""

import re
from collections.abc import Iterator
from typing import Any

from typer.core import TyperArgument, TyperOption

from penstock.cli.tree import TREE, Entry, LazyCommand, Section, walk

VALUES = {"path": "PATH", "float": "NUMBER", "int": "INTEGER"}  # by Python type; others: TEXT


def commands() -> str:
    """Return a page, in Markdown, of every command with its arguments and options."""
    roles: dict[str, list[Entry | Section]] = {}
    for node in TREE:
        roles.setdefault(node.role, []).append(node)
    lines = ["# Commands", ""]
    for role, nodes in roles.items():
        lines.append(f"- **{role}**: " + ", ".join(f"[`{node.name}`](#penstock-{node.name})" for node in nodes))
    for node in TREE:
        lines += ["", f"## penstock {node.name}", ""]
        if isinstance(node, Entry):
            lines += _describe(node, f"penstock {node.name}")
            continue
        lines += [node.help, ""]
        below = [(" ".join(path), entry) for path, entry in walk(node.entries)]
        lines += [f"- [`{path}`](#penstock-{node.name}-{path.replace(' ', '-')}): {one.help}" for path, one in below]
        for name, one in below:
            path = f"penstock {node.name} {name}"
            lines += ["", f"### {path}", "", *_describe(one, path)]
    return "\n".join(lines) + "\n"


def _describe(entry: Entry, path: str) -> Iterator[str]:
    """Return the documentation of a command: usage, description, arguments, options, an example."""
    command = LazyCommand(entry).load()
    context = command.make_context(path, [], resilient_parsing=True)
    arguments = [one for one in command.params if isinstance(one, TyperArgument)]
    options = [one for one in command.params if isinstance(one, TyperOption)]
    usage = " ".join(_name(one) if one.required else f"[{_name(one)}]" for one in arguments)
    yield from ("```text", f"{path} {usage}".rstrip() + (" [OPTIONS]" if options else ""), "```", "")
    yield from ((command.help or "").strip(), "")
    if rows := [_row(_name(one), one, context) for one in arguments]:
        yield from ("| argument | meaning |", "|---|---|", *rows, "")
    if rows := [_row(_option(one, context), one, context) for one in options]:
        yield from ("| option | meaning |", "|---|---|", *rows, "")
    yield from ("```bash", (command.epilog or "").removeprefix("Example: "), "```")


def _name(argument: TyperArgument) -> str:
    return argument.metavar or str(argument.name).upper()


def _option(option: TyperOption, context: Any) -> str:
    """Return the syntax of an option, with the kind of its value in place of a Python type."""
    return re.sub(
        r"<(?:list\[)?(.+?)(?: range|\])?>", lambda found: VALUES.get(found[1], "TEXT"), _record(option, context)[0]
    )


def _record(parameter: TyperArgument | TyperOption, context: Any) -> tuple[str, str]:
    """Return the syntax of a parameter, and its help with its default."""
    return parameter.get_help_record(context) or ("", "")


def _row(name: str, parameter: TyperArgument | TyperOption, context: Any) -> str:
    cells = (f"`{name}`", _record(parameter, context)[1].replace("  [", " ["))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
