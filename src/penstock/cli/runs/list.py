"""`penstock runs list`: list all runs."""

from datetime import datetime
from pathlib import Path
from typing import Any

from rich.markup import escape

from penstock.cli.inputs import JsonOption, RunsOption
from penstock.cli.output import console, print_json, table
from penstock.cli.run_view import clock
from penstock.runtime.storage.run_folder import RunInfo, all_runs, outcome

EXAMPLE = "penstock runs list"
COLUMNS = ("run", "application", "state", "started", "duration", "outcome")
STYLES = {"failed": "red", "died": "red", "completed": "green"}


def list_runs(runs: RunsOption = Path("runs"), as_json: JsonOption = False) -> None:
    """List all runs, newest first.

    The state is starting, running or ended. The outcome is completed, stopped, failed, or died if its driver was
    killed. penstock status RUN shows more of each.
    """
    facts = [run_facts(info) for info in all_runs(runs)]
    if as_json:
        print_json({"runs": facts})
    elif facts:
        print_runs(facts)
    else:
        console.print(f"there is no run in {runs}; start one with penstock run APP", markup=False, soft_wrap=True)


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
