"""`penstock runs list` and `clean`: the folders of runs."""

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from penstock.admission.reconciler.state import is_kept
from penstock.cli.inputs import JsonOption, RunsOption
from penstock.cli.output import console, print_json, print_line, table
from penstock.cli.run_view import clock
from penstock.model.errors import InvalidInput
from penstock.runtime.storage.run_folder import RunInfo, RunInUse, all_runs, outcome, remove

COLUMNS = ("run", "application", "state", "started", "duration", "outcome")
STYLES = {"failed": "red", "died": "red", "completed": "green"}


def list_runs(runs: RunsOption = Path("runs"), as_json: JsonOption = False) -> None:
    """List all runs, newest first.

    The state is starting, running or ended. The outcome is completed, stopped, failed, or died if its driver was
    killed. penstock status RUN shows more of each.

    Example: penstock runs list
    """
    facts = [run_facts(info) for info in all_runs(runs)]
    if as_json:
        print_json({"runs": facts})
    elif facts:
        print_runs(facts)
    else:
        print_line(f"there is no run in {runs}; start one with penstock run APP")


def run_facts(info: RunInfo) -> dict[str, Any]:
    """Return the facts of a run for the list."""
    word, reason = outcome(info)
    state = "ended" if word else "running" if info.socket else "starting"
    until = end_of(info) if word else datetime.now().astimezone()
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


def end_of(info: RunInfo) -> datetime:
    """Return when a run ended; if its driver died, when it last wrote its folder."""
    if info.ended is not None:
        return info.ended
    written = [each.stat().st_mtime for each in (info.path, *info.path.iterdir()) if each.exists()]
    return datetime.fromtimestamp(max(written)).astimezone()


def print_runs(facts: list[dict[str, Any]]) -> None:
    """Print a table of runs."""
    rows = table(*COLUMNS, left=COLUMNS)
    for each in facts:
        rows.add_row(*_cells(each))
    console.print(rows)


def _cells(facts: dict[str, Any]) -> list[str]:
    result = facts["outcome"] or "-"
    why = f": {facts['reason']}" if result in ("failed", "died") else ""
    style = STYLES.get(result)
    text = f"[{style}]{result}[/]{escape(why)}" if style else result + escape(why)
    started = f"{facts['started']:%Y-%m-%d %H:%M:%S}"
    names = [escape(facts["run"]), escape(facts["application"]), facts["state"]]
    return [*names, started, clock(facts["duration_s"]), text]


UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


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
    """Remove the folders of runs that have ended.

    Checkpoints, output and telemetry in them are removed, too; telemetry written elsewhere stays. Runs in progress,
    runs that penstock cluster serve will continue, and folders that are not a run's are kept. With both options a run
    is removed if both apply.

    Example: penstock runs clean --older-than 7d --dry-run
    """
    if older_than is None and keep is None:
        raise InvalidInput("older_than", "expected --older-than TIME, --keep N or both, got neither; name one")
    if as_json and not (yes or dry_run):
        raise InvalidInput("yes", "--json does not ask for confirmation; add --yes or --dry-run")
    chosen = list(_removable(all_runs(runs), None if older_than is None else age(older_than), keep or 0))
    facts = [run_facts(info) for info in chosen]
    if not as_json:
        _announce(facts, runs, dry_run)
    removed = []
    if chosen and not dry_run and (yes or _confirm(len(chosen))):
        for info in chosen:
            try:
                remove(info)
            except RunInUse:  # it is being resumed
                continue
            removed.append(info.run)
    if as_json:
        print_json({"dry_run": dry_run, "chosen": facts, "removed": removed})
    elif removed:
        _print(f"removed {len(removed)} of {len(chosen)}")


def age(text: str) -> timedelta:
    """Return the time of a text such as `12h`."""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)([smhdw])", text.strip())
    if found is None:
        problem = f"expected a time such as 45m, 12h, 7d or 2w, got {text!r}; choose another --older-than"
        raise InvalidInput("older_than", problem)
    return timedelta(**{UNITS[found[2]]: float(found[1])})


def _removable(found: Sequence[RunInfo], older: timedelta | None, keep: int) -> Iterator[RunInfo]:
    """Choose the runs to remove, of those that have ended and that no service will continue."""
    now = datetime.now().astimezone()
    for info in found[keep:]:
        recent = older is not None and now - end_of(info) < older
        machines = info.config.execution.share
        if outcome(info)[0] and not recent and not info.path.is_symlink() and not is_kept(info.path, machines):
            yield info


def _announce(facts: list[dict[str, Any]], runs: Path, dry_run: bool) -> None:
    if not facts:
        _print(f"nothing to remove in {runs}")
        return
    print_runs(facts)
    if dry_run:
        _print(f"would remove {len(facts)}; nothing was removed")


def _confirm(count: int) -> bool:
    """Ask the person at the terminal; reject if there is none."""
    if not sys.stdin.isatty():
        raise InvalidInput("yes", "expected confirmation, but there is no terminal; add --yes or --dry-run")
    return typer.confirm(f"Remove {'this run' if count == 1 else f'these {count} runs'}?", err=True)


def _print(text: str) -> None:
    print_line(text)
