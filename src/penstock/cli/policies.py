"""`penstock policies list` and `show`: the policies and their parameters."""

from dataclasses import MISSING, fields
from inspect import cleandoc
from typing import Annotated, Any

import typer

from penstock.cli.inputs import JsonOption, completing
from penstock.cli.output import console, print_json, table
from penstock.model.errors import UnknownName, nearest
from penstock.policies.registry import REGISTRY, PolicyKind, policy_class


def list_policies(as_json: JsonOption = False) -> None:
    """List every policy by what it decides.

    Example: penstock policies list
    """
    if as_json:
        listed = [(kind, name, entry) for kind, rows in REGISTRY.items() for name, entry in rows.items()]
        print_json([{"name": name, "kind": kind, **entry._asdict()} for kind, name, entry in listed])
        return
    for kind, rows in REGISTRY.items():
        what, option = DECIDES[kind]
        console.print(f"[bold]{kind}[/]: {what} [dim]({option})[/]")
        made = table("policy", "from", "what it does", left=("from", "what it does"))
        for name, entry in rows.items():
            made.add_row(f"[bold]{name}[/]", entry.origin, entry.summary)
        console.print(made)
        console.print()
    console.print("[dim]Parameters of a policy: penstock policies show NAME[/]")


DECIDES = {  # kind: what its policies decide, and the option that names one
    "placement": ("where each task runs", "--policy"),
    "routing": ("which task a tuple goes to", "--routing"),
    "sending": ("which queue sends first", "--sending"),
    "scaling": ("how many tasks a component has", "--scaling"),
    "forecast": ("how many tuples will arrive", "--forecaster"),
}


NAMES = list(dict.fromkeys(name for rows in REGISTRY.values() for name in rows))


def show_policy(
    name: Annotated[str, typer.Argument(help="The policy's name.", autocompletion=completing(*NAMES))],
    as_json: JsonOption = False,
) -> None:
    """Show a policy's description and parameters.

    Example: penstock policies show local-search
    """
    kinds = [kind for kind, rows in REGISTRY.items() if name in rows]
    if not kinds:
        raise UnknownName("policy", f"no policy is named {name!r}; {nearest(name, NAMES)}")
    if as_json:
        found = [
            {"name": name, "kind": kind, **REGISTRY[kind][name]._asdict(), "parameters": _defaults(name, kind)}
            for kind in kinds
        ]
        print_json(found[0] if len(found) == 1 else found)
        return
    for number, kind in enumerate(kinds):
        entry = REGISTRY[kind][name]
        if number:
            console.print()
        console.print(f"[bold]{name}[/]  {kind}, {entry.origin}: {entry.summary}\n")
        console.print(cleandoc(policy_class(name, kind).__doc__ or ""), markup=False)
        if defaults := _defaults(name, kind):
            settings = ",".join(f"{parameter}={_text(value)}" for parameter, value in defaults.items())
            console.print(f"\nDefaults: {DECIDES[kind][1]} {name}:{settings}", soft_wrap=True)


def _defaults(name: str, kind: PolicyKind) -> dict[str, Any]:
    return {f.name: f.default if f.default is not MISSING else None for f in fields(policy_class(name, kind))}


def _text(value: Any) -> str:
    """Format a value in the syntax of parameters."""
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
