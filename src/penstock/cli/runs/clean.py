"""`penstock runs clean`: remove runs that have ended."""

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.admission.reconciler.state import is_kept
from penstock.cli.inputs import JsonOption, RunsOption
from penstock.cli.output import console, print_json
from penstock.cli.runs.list import end_of, print_runs, run_facts
from penstock.model.errors import InvalidInput
from penstock.runtime.storage.run_folder import RunInfo, RunInUse, all_runs, outcome, remove

EXAMPLE = "penstock runs clean --older-than 7d --dry-run"
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
    console.print(text, markup=False, soft_wrap=True)
