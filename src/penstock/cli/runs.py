"""`penstock runs`: which runs there are, and removing those that have ended."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.app import app
from penstock.cli.inputs import JsonOption, RunsOption

if TYPE_CHECKING:
    from penstock.runtime.storage.run_folder import RunInfo

LIST_EXAMPLES = """Examples:

  penstock runs list

  penstock runs list --json | jq -r '.runs[] | select(.outcome == "failed") | .run'
"""
CLEAN_EXAMPLES = """Examples:

  penstock runs clean --older-than 7d --dry-run

  penstock runs clean --keep 10 --yes
"""
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
STYLES = {"failed": "red", "died": "red", "completed": "green"}

runs_group = typer.Typer(help="List runs, and remove those that have ended.", no_args_is_help=True)
app.add_typer(runs_group, name="runs")


@runs_group.callback()
def group() -> None:
    """List runs, and remove those that have ended."""


@runs_group.command("list", epilog=LIST_EXAMPLES)
def list_runs(runs: RunsOption = Path("runs"), as_json: JsonOption = False) -> None:
    """List all runs, the newest first: name, application, state, start, duration and outcome.

    The state is starting, running or ended. The outcome is completed, stopped, failed, or died if its driver was
    killed. penstock status RUN shows more of each.
    """
    from penstock.cli.output import console, print_json, table
    from penstock.runtime.storage.run_folder import all_runs

    facts = [_facts(info) for info in all_runs(runs)]
    if as_json:
        print_json({"runs": facts})
        return
    if not facts:
        console.print(f"there is no run in {runs}; start one with penstock run APP", markup=False, soft_wrap=True)
        return
    rows = table(*COLUMNS, left=COLUMNS)
    for each in facts:
        rows.add_row(*_cells(each))
    console.print(rows)


@runs_group.command(epilog=CLEAN_EXAMPLES)
def clean(
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Remove runs that ended longer ago: 45m, 12h, 7d or 2w.")
    ] = None,
    keep: Annotated[int | None, typer.Option(metavar="N", help="Keep the N runs started last.", min=0)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print which runs would be removed.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Remove the folders of runs that have ended, with their checkpoints, output and telemetry.

    Runs in progress and runs that penstock operate goes on with are kept, and so is every folder that is not a run's.
    Telemetry that was sent elsewhere stays there. With both options a run is removed if both say so.
    """
    from penstock.cli.output import print_json
    from penstock.model.errors import InvalidInput
    from penstock.runtime.storage.run_folder import Taken, all_runs, remove

    if older_than is None and keep is None:
        raise InvalidInput("older_than", "expected --older-than TIME, --keep N or both, got neither; name one")
    if as_json and not (yes or dry_run):
        raise InvalidInput("yes", "with --json nobody is asked; add --yes or --dry-run")
    chosen = list(_old(all_runs(runs), None if older_than is None else age(older_than), keep or 0))
    facts = [_facts(info) for info in chosen]
    if not as_json:
        _announce(facts, runs, dry_run)
    removed = []
    if chosen and not dry_run and (yes or _agreed(len(chosen))):
        for info in chosen:
            try:
                remove(info)
            except Taken:  # somebody resumes it at this moment
                continue
            removed.append(info.run)
    if as_json:
        print_json({"dry_run": dry_run, "chosen": facts, "removed": removed})
    elif removed:
        _say(f"removed {len(removed)} of {len(chosen)}")


def age(text: str) -> timedelta:
    """Return the time of a text such as `12h`."""
    from penstock.model.errors import InvalidInput

    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smhdw])", text.strip())
    if found is None:
        problem = f"expected a time such as 45m, 12h, 7d or 2w, got {text!r}; choose another --older-than"
        raise InvalidInput("older_than", problem)
    return timedelta(**{UNITS[found[2]]: float(found[1])})


COLUMNS = ("run", "application", "state", "started", "duration", "outcome")


def _old(found: Sequence["RunInfo"], than: timedelta | None, keep: int) -> Iterator["RunInfo"]:
    """Choose the runs to remove, of those that have ended and nobody goes on with."""
    from penstock.admission.reconciler.state import is_kept
    from penstock.runtime.storage.run_folder import outcome

    now = datetime.now().astimezone()
    for info in found[keep:]:
        recent = than is not None and now - _ended(info) < than
        machines = None if info.setup is None else info.setup.share
        if outcome(info)[0] and not recent and not info.path.is_symlink() and not is_kept(info.path, machines):
            yield info


def _ended(info: "RunInfo") -> datetime:
    """Return when a run ended; of one whose driver died, when it last wrote its folder."""
    if info.ended is not None:
        return info.ended
    written = [each.stat().st_mtime for each in (info.path, *info.path.iterdir()) if each.exists()]
    return datetime.fromtimestamp(max(written)).astimezone()


def _facts(info: "RunInfo") -> dict[str, Any]:
    from penstock.runtime.storage.run_folder import outcome

    word, reason = outcome(info)
    state = "ended" if word else "running" if info.socket else "starting"
    until = _ended(info) if word else datetime.now().astimezone()
    return {
        "run": info.run,
        "application": info.application,
        "state": state,
        "started": info.started,
        "duration_s": max((until - info.started).total_seconds(), 0.0),
        "outcome": word or None,
        "reason": reason or None,
        "folder": info.folder,
    }


def _cells(facts: dict[str, Any]) -> list[str]:
    from rich.markup import escape

    from penstock.cli.live import clock

    outcome = facts["outcome"] or "-"
    why = f": {facts['reason']}" if outcome in ("failed", "died") else ""
    style = STYLES.get(outcome)
    told = f"[{style}]{outcome}[/]{escape(why)}" if style else outcome + escape(why)
    started = f"{facts['started']:%Y-%m-%d %H:%M:%S}"
    return [
        escape(facts["run"]),
        escape(facts["application"]),
        facts["state"],
        started,
        clock(facts["duration_s"]),
        told,
    ]


def _announce(facts: Sequence[dict[str, Any]], runs: Path, dry_run: bool) -> None:
    from penstock.cli.output import console, table

    if not facts:
        _say(f"nothing to remove in {runs}")
        return
    rows = table(*COLUMNS, left=COLUMNS)
    for each in facts:
        rows.add_row(*_cells(each))
    console.print(rows)
    if dry_run:
        _say(f"would remove {len(facts)}; nothing was removed")


def _agreed(count: int) -> bool:
    """Ask the person at the terminal; refuse where there is none."""
    import sys

    from penstock.model.errors import InvalidInput

    if not sys.stdin.isatty():
        raise InvalidInput("yes", "nobody can be asked, as there is no terminal; add --yes or --dry-run")
    return typer.confirm(f"Remove {'this run' if count == 1 else f'these {count} runs'}?", err=True)


def _say(text: str) -> None:
    from penstock.cli.output import console

    console.print(text, markup=False, soft_wrap=True)
