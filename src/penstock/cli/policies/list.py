"""`penstock policies list`: list all policies."""

from penstock.cli.inputs import JsonOption
from penstock.cli.output import console, print_json, table
from penstock.cli.policies.show import DECIDES
from penstock.policies.registry import REGISTRY

EXAMPLE = "penstock policies list"


def list_policies(as_json: JsonOption = False) -> None:
    """List every policy by what it decides."""
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
