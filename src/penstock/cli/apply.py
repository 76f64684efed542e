"""`penstock apply`: make a running application follow another plan."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import app
from penstock.cli.inputs import JsonOption, RunOption, RunsOption

if TYPE_CHECKING:
    from penstock.model.plan import Move, Plan
    from penstock.model.status import Status
    from penstock.runtime.folder import RunInfo
    from penstock.runtime.handle import Outcome

EXAMPLES = """Examples:

  penstock apply better.toml --dry-run

  penstock apply better.toml --run word-count-20250131-142501
"""
APPLY_SECONDS = 600.0  # that an answer is waited for


@app.command(epilog=EXAMPLES)
def apply(
    plan: Annotated[Path, typer.Argument(help="A plan file for the same application and cluster.")],
    run: RunOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Move the tasks of a running application that a plan puts elsewhere, and only those; say which."""
    from penstock.cli.output import print_json
    from penstock.model.files import load_plan
    from penstock.runtime.folder import find_running
    from penstock.runtime.socket import ApplyPlan, GetStatus, ask

    wanted = load_plan(plan)
    info = find_running(run, runs)
    now = ask(info, GetStatus())
    refuse_other(info, now, wanted, plan)
    changes = changed_tasks(now, wanted)
    outcomes = [] if dry_run or not changes else ask(info, ApplyPlan(wanted), APPLY_SECONDS)
    if as_json:
        print_json({"dry_run": dry_run, "changes": [c._asdict() for c in changes], "outcomes": outcomes})
        return
    _print(changes, outcomes, f"{len(now.placement)} tasks", plan, dry_run)


def refuse_other(info: "RunInfo", status: "Status", plan: "Plan", path: Path) -> None:
    """Refuse a plan for another application or cluster, as far as the run's folder tells, before asking anything."""
    from penstock.model.errors import FileProblem, InvalidInput
    from penstock.model.files import load_plan

    if plan.application != status.application:
        problem = f"{path} is a plan for {plan.application!r}, {info.run} runs {status.application!r}; plan again"
        raise InvalidInput("application", problem)
    try:
        first = load_plan(info.plan_path)
    except FileProblem:  # the run itself will tell
        return
    if plan.cluster != first.cluster:
        problem = f"{path} is a plan for {plan.cluster!r}, {info.run} is on {first.cluster!r}; plan again"
        raise InvalidInput("cluster", problem)
    for kind, made_for, runs_on in (
        ("application", plan.application_digest, first.application_digest),
        ("cluster", plan.cluster_digest, first.cluster_digest),
    ):
        if made_for != runs_on:
            name = getattr(plan, kind)
            raise InvalidInput(f"{kind}_digest", f"{name!r} is not what it was when {path} was made; plan again")


def changed_tasks(status: "Status", plan: "Plan") -> "list[Move]":
    """List the tasks that a plan puts in other slots than they are in."""
    from penstock.model.errors import InvalidInput
    from penstock.model.plan import Move

    wanted = {f"{name}[{number}]": slot for name, slots in plan.tasks.items() for number, slot in enumerate(slots)}
    if wanted.keys() != status.placement.keys():
        odd = sorted(wanted.keys() ^ status.placement.keys())[0]
        where = "the plan" if odd in wanted else "the run"
        raise InvalidInput("tasks", f"{odd!r} is in {where} only; plan again for the tasks that run")
    return [Move(task, slot, wanted[task]) for task, slot in status.placement.items() if slot != wanted[task]]


def _print(changes: "Sequence[Move]", outcomes: "Sequence[Outcome]", total: str, plan: Path, dry_run: bool) -> None:
    from penstock.cli.output import console, duration, table

    if not changes:
        console.print(f"nothing to change: all {total} are where {plan} puts them", markup=False, soft_wrap=True)
        return
    verb = "would move" if dry_run else "moved"
    console.print(f"{len(changes)} of {total} {verb} by {plan}", style="bold", markup=False, soft_wrap=True)
    held = {outcome.task: outcome.seconds for outcome in outcomes}
    rows = table("task", "from", "to", *([] if dry_run else ["held up"]), left=("from", "to"))
    for change in changes:
        cells = [change.task.replace("[", r"\["), change.before or "-", change.after or "-"]
        time = duration(held[change.task]) if change.task in held else "-"
        rows.add_row(*cells, *([] if dry_run else [time]))
    console.print(rows)
