"""Writes the reference pages of the site from the code: each page is a function that returns Markdown."""

import ast
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from enum import Enum
from importlib import import_module
from textwrap import dedent
from typing import Any

import msgspec

WIDEST = 100  # characters of a signature on one line
MODULES = (  # public: every module that has an `__all__` of its own
    "penstock", "penstock.planning", "penstock.simulation", "penstock.admission", "penstock.autopilot",
    "penstock.calibration", "penstock.policies", "penstock.pipeline", "penstock.testing",
)  # fmt: skip


def commands() -> str:
    """All commands by role, each with its arguments, options and an example."""
    from penstock.cli import reference

    return reference.commands()


def configuration() -> str:
    """All settings of a run, from `penstock.runtime.config`."""
    from penstock.runtime.config import reference

    introduction = (
        "# Run configuration\n\nA run's settings have one form, `RunConfig`. `penstock run` builds it from its options,"
        " `penstock run --config FILE` reads it from a file, `ps.run(flow, config=…)` takes it, `run.json` in the run's"
        " folder stores it, and `penstock runs resume` changes it. A file has one table per section:\n\n"
        '```toml\n[execution]\nemulate = "hetero-small"\n\n[checkpointing]\ninterval_s = 2.0\n\n[telemetry]\n'
        "sample_tps = 50.0\n```\n\n"
    )
    return introduction + reference()


def files() -> str:
    """All fields of the files that describe applications, clusters and plans."""
    from penstock.model import cluster, costs, plan, topology

    parts: list[tuple[str, str, Sequence[type]]] = [
        ("Application", "An application is a graph of components joined by streams.",
         (topology.Application, topology.Component, topology.ServiceTime, topology.Stream)),
        ("Cluster", "Without links a cluster is a full mesh whose delays are `distances`; with links it is a routed "
         "network.", (cluster.Cluster, cluster.Machine, cluster.Link, cluster.Distances)),
        ("Plan", "A plan is written by `penstock plan --save` and read by `penstock run --plan`.", (plan.Plan,)),
        ("Costs", "`penstock sim calibrate` writes this file; the twin reads it.", (costs.Costs,)),
    ]  # fmt: skip
    lines = ["# Files", "", "Files are TOML or JSON. Names contain no white space, `/` or brackets.", ""]
    for title, text, kinds in parts:
        lines += [f"## {title}", "", text, ""]
        for kind in kinds:
            lines += [f"### {kind.__name__}", "", _summary(kind), "", *_struct_table(kind)]
    lines += ["## Values", ""]
    for kind in (topology.Kind, topology.Grouping, topology.Distribution):
        lines += [f"### {kind.__name__} values", "", *_enum_table(kind)]
    return "\n".join(lines)


def telemetry() -> str:
    """The schema of telemetry: kinds of records and columns."""
    from penstock.model.telemetry import REQUIRED, Record, RecordKind

    comments = _comments(RecordKind)
    rows = [
        (f"`{kind}`", comments.get(kind.name, "").partition(":")[0], ", ".join(f"`{each}`" for each in REQUIRED[kind]))
        for kind in RecordKind
    ]
    lines = ["# Telemetry schema", "", (import_module(Record.__module__).__doc__ or "").partition("\n\n")[2], ""]
    lines += ["## Kinds of records", "", *_table(("kind", "records", "columns that it always fills"), rows)]
    lines += ["## Columns", "", "A column is null unless its kind fills it.", "", *_struct_table(Record)]
    return "\n".join(lines)


def policies() -> str:
    """Every policy by what it decides, with its parameters."""
    from penstock.policies.registry import REGISTRY, policy_class

    lines = ["# Policies", "", "Write parameters after the name, as in `local-search:seconds=2`.", ""]
    for kind, entries in REGISTRY.items():
        lines += [f"## {kind.capitalize()}", ""]
        rows = [(f"[`{name}`](#{kind}-{name})", entry.origin, entry.summary) for name, entry in entries.items()]
        lines += _table(("policy", "origin", "rule"), rows)
        for name in entries:
            made = policy_class(name, kind)
            lines += [f"### {name} {{ #{kind}-{name} }}", "", _prose(made), ""]
            if parameters := [(f"`{each.name}`", f"`{_default(each.default)}`") for each in fields(made)]:
                lines += _table(("parameter", "default"), parameters)
    return "\n".join(lines)


def connectors() -> str:
    """Sources and sinks with what they guarantee, and groupings."""
    import penstock as ps
    from penstock.api.dataflow import Outlet
    from penstock.model.topology import Grouping

    found = [getattr(ps, name) for name in ps.__all__]
    sources = [one for one in found if isinstance(one, type) and issubclass(one, ps.Source) and one is not ps.Source]
    sinks = [one for one in found if isinstance(one, type) and issubclass(one, ps.Sink) and one is not ps.Sink]
    lines = ["# Connectors and groupings", "", "## Sources", ""]
    lines += _table(("source", "after a failure", "can move"), [
        (f"[`{one.__name__}`](#{one.__name__.lower()})", "exactly once: it rewinds" if one.rewinds else "at most once",
         "yes" if one.rewinds else "no") for one in sources])  # fmt: skip
    for one in sources:
        lines += [f"### {one.__name__}", "", *_signature(one.__name__, one), _prose(one), ""]
    lines += ["## Sinks", ""]
    lines += _table(("sink", "after a failure"), [
        (f"[`{one.__name__}`](#{one.__name__.lower()})", "exactly once" if one.exactly_once else "at least once")
        for one in sinks])  # fmt: skip
    for one in sinks:
        lines += [f"### {one.__name__}", "", *_signature(one.__name__, one), _prose(one), ""]
    comments = _comments(Grouping)
    methods = {one: "to_first" if one is Grouping.GLOBAL else one.value.replace("-", "_") for one in Grouping}
    assert all(getattr(Outlet("s"), method)().grouping is one for one, method in methods.items())
    lines += ["## Groupings", ""]
    lines += _table(("grouping", "method of an outlet", "a tuple goes to"), [
        (f"`{one}`", f"`.{methods[one]}()`", comments[one.name]) for one in Grouping])  # fmt: skip
    return "\n".join(lines)


def python_api() -> str:
    """Every public name, by module."""
    lines = ["# Python API", "", "What is not listed here is private.", ""]
    for name in MODULES:
        module = import_module(name)
        if not getattr(module, "__all__", ()):
            continue
        lines += [f"## `{name}` {{ #{name.replace('.', '-')} }}", ""]
        if name != "penstock":
            lines += [(module.__doc__ or "").partition("\n")[0], ""]
        for each in module.__all__:
            lines += [*_member(name, each, getattr(module, each))]
    return "\n".join(lines)


PAGES: Mapping[str, Callable[[], str]] = {
    "reference/commands.md": commands,
    "reference/configuration.md": configuration,
    "reference/files.md": files,
    "reference/telemetry.md": telemetry,
    "reference/policies.md": policies,
    "reference/connectors.md": connectors,
    "reference/python.md": python_api,
}


def _member(module: str, name: str, value: Any) -> list[str]:
    anchor = f"{module}.{name}".replace(".", "-").lower()
    lines = [f"### {name} {{ #{anchor} }}", ""]
    if not callable(value):
        return [*lines, f"`{value!r}`" if isinstance(value, int | float | str) else "", ""]
    lines += [*_signature(name, value), _prose(value), ""]
    if not inspect.isclass(value) or issubclass(value, Enum):
        return lines
    for method, function in vars(value).items():
        target = function.__func__ if isinstance(function, classmethod | staticmethod) else function
        if method.startswith("_") or not (inspect.isfunction(target) or isinstance(target, property)):
            continue
        described = target.fget if isinstance(target, property) else target
        shown = f"`{method}`" if isinstance(target, property) else f"`{method}{_arguments(target)}`"
        lines += [f"- {shown}: {' '.join(_prose(described).partition(chr(10) * 2)[0].split())}"]
    return [*lines, ""]


def _signature(name: str, value: Any) -> list[str]:
    """Return a call of a class or function as a block of code; a long one has a line per argument."""
    arguments = _arguments(value)
    if len(name + arguments) > WIDEST:
        inside, _, returned = arguments[1:].rpartition(")")
        parts = re.split(r", (?![^\[(]*[\])])", inside)
        arguments = "\n".join(["(", *(f"    {part}," for part in parts), f"){returned}"])
    return ["```python", f"{name}{arguments}", "```", ""] if arguments else []


def _arguments(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, msgspec.Struct):
        hints = typing.get_type_hints(value)
        return f"({', '.join(_struct_argument(each, hints) for each in msgspec.structs.fields(value))})"
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    kept = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
    text = str(found.replace(parameters=kept))
    if inspect.isclass(value):
        text = text.removesuffix(" -> None")
    return re.sub(
        r"\b(?:penstock|collections|typing|pathlib|numpy)\.(?:\w+\.)*", "", re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    )


def _struct_argument(field: Any, hints: Mapping[str, Any]) -> str:
    default = _field_default(field).strip("`")
    default = default.capitalize() if default in ("none", "true", "false") else default
    return f"{field.name}: {_type(hints[field.name]).strip('`')}" + ("" if default == "required" else f" = {default}")


def _prose(value: Any) -> str:
    """Return a docstring as Markdown; the lines `name: meaning` that describe parameters become a list."""
    text = inspect.cleandoc(inspect.getdoc(value) or "")
    text = re.sub(r"(?m)^(\w+(?:, \w+)*): (?=\S)", r"- `\1`: ", _separate_lists(text))
    return re.sub(r"`[^`]*`|<", lambda found: "&lt;" if found[0] == "<" else found[0], text)


def _separate_lists(text: str) -> str:
    """Put an empty line before the first `name: meaning` of a paragraph, which Markdown needs to see a list."""
    return re.sub(r"(?m)^(?!\w+(?:, \w+)*: )(\S.*)\n(?=\w+(?:, \w+)*: \S)", r"\1\n\n", text)


def _summary(kind: type) -> str:
    return (inspect.getdoc(kind) or "").partition("\n\n")[0].replace("\n", " ")


def _struct_table(kind: type) -> list[str]:
    comments, hints = _comments(kind), typing.get_type_hints(kind)
    rows = [
        (f"`{each.name}`", _type(hints[each.name]), _field_default(each), comments.get(each.name, ""))
        for each in msgspec.structs.fields(kind)
    ]
    return _table(("field", "type", "default", "meaning"), rows)


def _field_default(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"`{_default(field.default)}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{_default(field.default_factory())}`"
    return "required"


def _enum_table(kind: type[Enum]) -> list[str]:
    comments = _comments(kind)
    return _table(("value", "meaning"), [(f"`{one.value}`", comments.get(one.name, "")) for one in kind])


def _default(value: Any) -> str:
    if value is MISSING or value is msgspec.NODEFAULT:
        return "required"
    if isinstance(value, msgspec.Struct):
        return "{ }" if value == type(value)() else repr(value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _type(hint: Any) -> str:
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    text = re.sub(r"(?:[a-z_]+[.])+", "", text).replace("NoneType", "None")
    text = re.sub(r"Optional.(.*).$", r"\1 | None", text)
    return f"`{text}`"


def _comments(kind: type) -> dict[str, str]:
    """Return the comment behind every field of a class, or on the lines below it."""
    source = dedent(inspect.getsource(kind))
    lines, found = source.splitlines(), {}
    (tree,) = (node for node in ast.parse(source).body if isinstance(node, ast.ClassDef))
    for node in tree.body:
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name):
            span = lines[node.lineno - 1 : node.end_lineno]
            found[target.id] = " ".join(line.partition("  # ")[2].strip() for line in span).strip()
    return found


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [
        f"| {' | '.join(cell.replace('|', chr(92) + '|').replace(chr(10), ' ') for cell in row)} |" for row in rows
    ]
    return [*lines, ""]
