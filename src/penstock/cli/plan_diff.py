"""`penstock plans diff`: compare two plans."""

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.formatting import changed_texts, named_texts
from penstock.cli.inputs import JsonOption, plan_file
from penstock.cli.output import console, number, print_json, table
from penstock.model.errors import InvalidInput
from penstock.model.plan import Plan, moves


def diff(
    before: Annotated[Path, typer.Argument(help="A plan file.")],
    after: Annotated[Path, typer.Argument(help="Another plan file for the same application.")],
    as_json: JsonOption = False,
) -> None:
    """Compare two plans: tasks, tuple policies, predictions.

    Example: penstock plans diff monday.toml tuesday.toml
    """
    old, new = plan_file(before), plan_file(after)
    if old.application != new.application:
        raise InvalidInput("application", f"{before} is for {old.application!r}, {after} for {new.application!r}")
    if old.cluster != new.cluster:
        raise InvalidInput("cluster", f"{before} is for {old.cluster!r}, {after} for {new.cluster!r}")
    changed = moves(old, new)
    if as_json:
        policies = {"before": old.tuples, "after": new.tuples}
        expected = {"before": old.expected, "after": new.expected}
        parallelism = {"before": _parallelism(old), "after": _parallelism(new)}
        moved = [move._asdict() for move in changed]
        print_json({"moves": moved, "parallelism": parallelism, **expected, "policies": policies})
        return
    total = len({*((c, t) for p in (old, new) for c, slots in p.tasks.items() for t in range(len(slots)))})
    console.print(
        f"[bold]{len(changed)} of {total} tasks move[/] from {before} ({old.policy}) to {after} ({new.policy})"
    )
    if changed:
        rows = table("task", "from", "to", left=("from", "to"))
        for move in changed:
            rows.add_row(move.task, move.before or "[dim]-[/]", move.after or "[dim]-[/]")
        console.print(rows)
    if resized := {name: numbers for name, numbers in _tasks(old, new).items() if numbers[0] != numbers[1]}:
        rows = table("component", "tasks before", "after", "change")
        for name, (before_tasks, after_tasks) in resized.items():
            rows.add_row(name, str(before_tasks), str(after_tasks), f"{after_tasks - before_tasks:+d}")
        console.print()
        console.print(rows)
    named = changed_texts(named_texts(old.tuples), named_texts(new.tuples), "[dim]-[/]")
    if named:
        rows = table("tuple policies", "before", "after", left=("before", "after"))
        for name, texts in named.items():
            rows.add_row(name, *texts)
        console.print()
        console.print(rows)
    shared = [name for name in old.expected if name in new.expected]
    if shared:
        rows = table("expected", "before", "after", "change")
        for name in shared:
            a, b = old.expected[name], new.expected[name]
            rows.add_row(name.replace("_", " "), number(a), number(b), f"{b / a - 1:+.1%}" if a else "-")
        console.print()
        console.print(rows)


def _parallelism(plan: Plan) -> dict[str, int]:
    return {name: len(slots) for name, slots in plan.tasks.items()}


def _tasks(old: Plan, new: Plan) -> dict[str, tuple[int, int]]:
    """Return the number of tasks of each component in two plans."""
    before, after = _parallelism(old), _parallelism(new)
    return {name: (before.get(name, 0), after.get(name, 0)) for name in dict.fromkeys([*before, *after])}
