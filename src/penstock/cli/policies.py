"""`penstock policies`: what there is to choose from."""

from dataclasses import MISSING, fields
from typing import Annotated

import typer

from penstock.cli.app import app
from penstock.cli.inputs import JsonOption, policy_names


@app.command(epilog="Example: penstock policies local-search")
def policies(
    name: Annotated[
        str | None, typer.Argument(help="Only this one, with its parameters.", autocompletion=policy_names)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List every policy: name, kind, where it comes from, what it does."""
    from penstock.cli.output import console, print_json, table
    from penstock.policies.registry import REGISTRY, policy_class

    if name is not None:
        known = policy_class(name)
        defaults = {f.name: f.default if f.default is not MISSING else None for f in fields(known)}
        if as_json:
            print_json({"name": name, **REGISTRY[name]._asdict(), "parameters": defaults})
            return
        entry = REGISTRY[name]
        console.print(f"[bold]{name}[/]  {entry.kind}, {entry.origin}: {entry.summary}\n")
        console.print((known.__doc__ or "").strip())
        if defaults:
            settings = ",".join(f"{parameter}={value}" for parameter, value in defaults.items())
            console.print(f"\nDefaults: --policy {name}:{settings.replace('None', 'none')}", soft_wrap=True)
        return
    if as_json:
        print_json([{"name": listed, **entry._asdict()} for listed, entry in REGISTRY.items()])
        return
    rows = table("policy", "kind", "from", "what it does", left=("kind", "from", "what it does"))
    for listed, entry in REGISTRY.items():
        rows.add_row(f"[bold]{listed}[/]", entry.kind, entry.origin, entry.summary)
    console.print(rows)
    console.print("\n[dim]One policy's parameters: penstock policies NAME[/]")
