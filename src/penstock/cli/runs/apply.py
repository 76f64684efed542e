"""`penstock runs apply`: change a running application to another plan or other tuple policies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from penstock.cli import inputs
from penstock.cli.formatting import changed_texts
from penstock.cli.output import console, duration, print_json, print_line, table
from penstock.cli.runs.waiting import showing_checkpoint
from penstock.model.errors import FileProblem, InvalidInput
from penstock.model.files import load_plan
from penstock.model.plan import Move, Plan
from penstock.model.status import Status
from penstock.model.tuples import TuplePolicies, over
from penstock.policies.streams import changed, check_names
from penstock.runtime.control_socket import ApplyPlan, GetStatus, SwitchTuplePolicies, ask
from penstock.runtime.handle import MovedTask
from penstock.runtime.storage.run_folder import RunInfo, find_running


def apply(
    plan: Annotated[Path | None, typer.Argument(help="A plan file for the same application and cluster.")] = None,
    run: inputs.RunOption = None,
    routing: inputs.RoutingOption = None,
    sending: inputs.SendingOption = None,
    slot_ms: inputs.SlotOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would change.")] = False,
    runs: inputs.RunsOption = Path("runs"),
    as_json: inputs.JsonOption = False,
) -> None:
    """Change a running application to another plan or other tuple policies.

    Only tasks whose slot differs move, and they are listed. Tuple policies that differ from those in force are switched
    too: the plan's, and the options' before them. Those that neither names stay in force; none removes a policy.
    Streams by key keep their grouping.

    Example: penstock runs apply better.toml --dry-run
    """
    if plan is None and routing is None and sending is None and slot_ms is None:
        raise InvalidInput("plan", "expected a plan file, --routing, --sending or --slot-ms, got none; name one")
    wanted = None if plan is None else inputs.plan_file(plan)
    info = find_running(run, runs)
    now = ask(info, GetStatus())
    changes = []
    if wanted is not None and plan is not None:
        refuse_other(info, now, wanted, plan)
        with inputs.naming(plan):
            changes = changed_tasks(now, wanted)
    planned = now.tuples if wanted is None else over(now.tuples, wanted.tuples)
    tuples = changed(planned, routing, sending, slot_ms)
    check_names(tuples)
    switched = changed_policies(now.tuples, tuples)
    outcomes = [] if dry_run else _apply(info, wanted if changes else None, tuples if switched else None)
    if as_json:
        policies = {"before": now.tuples, "after": tuples}
        moved = [change._asdict() for change in changes]
        print_json({"dry_run": dry_run, "changes": moved, "outcomes": outcomes, "policies": policies})
        return
    if plan is not None:
        _print(changes, outcomes, f"{len(now.placement)} tasks", plan, dry_run)
    _print_policies(switched, dry_run, alone=plan is None)


def changed_policies(before: TuplePolicies, after: TuplePolicies) -> dict[str, tuple[str, str]]:
    """Return the tuple policies that differ, by what they are for: the one before and the one after."""
    old, new = before.texts, after.texts
    if before.slot == after.slot or not after.named:  # without policies there are no slots
        old.pop("slot", None), new.pop("slot", None)
    else:
        old["slot"] = f"{before.slot:g} ms"
    return changed_texts(old, new, "none")


def _apply(info: RunInfo, plan: Plan | None, tuples: TuplePolicies | None) -> list[MovedTask]:
    """Switch a run to tuple policies, then move its tasks as a plan places them; None: unchanged."""
    with showing_checkpoint(info, "applying"):
        if tuples is not None:
            ask(info, SwitchTuplePolicies(tuples), timeout=None)
        silent = TuplePolicies()  # options may override those of the plan
        return [] if plan is None else ask(info, ApplyPlan(replace(plan, tuples=silent)), timeout=None)


def refuse_other(info: RunInfo, status: Status, plan: Plan, path: Path) -> None:
    """Reject a plan for another application or cluster before contacting the run, as far as its folder shows."""
    if plan.application != status.application:
        problem = f"{path} is a plan for {plan.application!r}, {info.run} runs {status.application!r}; plan again"
        raise InvalidInput("application", problem)
    try:
        first = load_plan(info.plan_path)
    except FileProblem:  # the run itself checks
        return
    if plan.cluster != first.cluster:
        problem = f"{path} is a plan for {plan.cluster!r}, {info.run} is on {first.cluster!r}; plan again"
        raise InvalidInput("cluster", problem)
    for name, slots in first.tasks.items():
        planned = len(plan.tasks.get(name, ()))
        if plan.application_digest != first.application_digest and planned != len(slots):
            problem = f"{path} has {planned} tasks, {info.run} {len(slots)}, and a run keeps their number; plan again"
            raise InvalidInput(f"tasks.{name}", problem)
    for kind, made_for, runs_on in (
        ("application", plan.application_digest, first.application_digest),
        ("cluster", plan.cluster_digest, first.cluster_digest),
    ):
        if made_for != runs_on:
            name = getattr(plan, kind)
            raise InvalidInput(f"{kind}_digest", f"{name!r} is not what it was when {path} was made; plan again")


def changed_tasks(status: Status, plan: Plan) -> list[Move]:
    """List the tasks whose slot differs in a plan."""
    wanted = {f"{name}[{number}]": slot for name, slots in plan.tasks.items() for number, slot in enumerate(slots)}
    if wanted.keys() != status.placement.keys():
        odd = sorted(wanted.keys() ^ status.placement.keys())[0]
        where = "the plan" if odd in wanted else "the run"
        raise InvalidInput("tasks", f"{odd!r} is in {where} only; plan again for the tasks that run")
    return [Move(task, slot, wanted[task]) for task, slot in status.placement.items() if slot != wanted[task]]


def _print(changes: Sequence[Move], outcomes: Sequence[MovedTask], total: str, plan: Path, dry_run: bool) -> None:
    if not changes:
        print_line(f"nothing to change: all {total} are already where {plan} has them")
        return
    verb = "would move" if dry_run else "moved"
    print_line(f"{len(changes)} of {total} {verb} by {plan}", "bold")
    held = {outcome.task: outcome.seconds for outcome in outcomes}
    rows = table("task", "from", "to", *([] if dry_run else ["held up"]), left=("from", "to"))
    for change in changes:
        cells = [change.task.replace("[", r"\["), change.before or "-", change.after or "-"]
        time = duration(held[change.task]) if change.task in held else "-"
        rows.add_row(*cells, *([] if dry_run else [time]))
    console.print(rows)


def _print_policies(switched: dict[str, tuple[str, str]], dry_run: bool, alone: bool) -> None:
    if not switched:
        if alone:
            print_line("nothing to change: these tuple policies are in force")
        return
    verb = "would be switched" if dry_run else "switched"
    print_line(f"tuple policies {verb}", "bold")
    rows = table("for", "from", "to", left=("from", "to"))
    for name, (before, after) in switched.items():
        rows.add_row(name, before, after)
    console.print(rows)
