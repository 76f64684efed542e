"""`penstock status`: the state of a running application, or the outcome of one that has ended."""

from pathlib import Path
from time import sleep
from typing import Annotated, Any

import msgspec
import typer
from rich.text import Text

from penstock.cli.follower import LineDisplay, TableDisplay, log_text
from penstock.cli.inputs import JsonOption, RunArgument, RunsOption
from penstock.cli.output import console, neutral, print_json, print_line
from penstock.cli.run_view import clock, next_steps, summary, view
from penstock.model.errors import PenstockError
from penstock.model.status import Status
from penstock.runtime.control_socket import GetLog, GetStatus, ask
from penstock.runtime.storage.checkpoints import load_manifest, numbers
from penstock.runtime.storage.disk import Posix
from penstock.runtime.storage.run_folder import NoRun, RunInfo, find_current, last_status, outcome

WATCH_SECONDS = 1.0  # between two updates


def status(
    run: RunArgument = None,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until it ends or you press Ctrl-C.")] = False,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Show a running application: rates, queues, latencies, machines, tasks.

    Rates and times are of the last seconds; p50 and p99 are of sampled tuples. For a run that has ended it shows the
    outcome (completed, stopped, failed, died), why it ended, its totals and its last checkpoint.

    Example: penstock status word-count-20250131-142501 --watch
    """
    info = find_current(run, runs)
    if outcome(info)[0]:
        _print_ended(info, as_json)
        return
    found = ask(info, GetStatus())
    if watch:
        _watch(info, found, as_json)
    elif as_json:
        print_json(found)
    else:
        console.print(view(found, console.width))


def _watch(info: RunInfo, found: Status, as_json: bool) -> None:
    """Show the status repeatedly, with new lines of the log, until the run ends or Ctrl-C."""
    display = TableDisplay(console) if console.is_terminal else LineDisplay(console)
    last_line = ask(info, GetLog()).number
    with display:
        while True:
            if as_json:
                _print_line(found)
            else:
                display.show(found, "")
            try:
                sleep(WATCH_SECONDS)
                log = ask(info, GetLog(after=last_line))
                found = ask(info, GetStatus())
            except KeyboardInterrupt:
                return
            except NoRun:
                break
            last_line = log.number
            for line in () if as_json else log.lines:
                display.print_line(log_text(line))
    if not as_json:
        console.print(Text(f"run {info.run} has ended"))


def _print_line(found: Status) -> None:
    print(neutral(msgspec.json.encode(found).decode()), flush=True)


def _print_ended(info: RunInfo, as_json: bool) -> None:
    """Print how a run ended, from its folder and its checkpoints."""
    status, (word, reason), latest = last_status(info), outcome(info), last_checkpoint(info)
    if as_json:
        known: dict[str, Any] = {"run": info.run, "application": info.application, "phase": word}
        known |= msgspec.to_builtins(status) if status is not None else {}
        known |= {"outcome": word, "reason": reason, "started": info.started, "ended": info.ended}
        print_json(known | {"folder": info.folder, "last_checkpoint": latest})
        return
    lines = [("outcome", f"{word}: {reason}"), ("run", f"{info.run}, {_times(info)}")]
    if status is not None:
        lines += summary(status, info)
    else:
        lines += [("ran", f"{info.application}, under {info.policy}"), *next_steps(info)]
    if latest is not None:
        tuples = (
            f"after {latest['source_tuples']:,} source tuples" if latest["source_tuples"] is not None else "damaged"
        )
        lines.insert(len(lines) - 1, ("checkpoint", f"{latest['number']}, the last, {tuples}"))
    for name, text in lines:
        print_line(f"{name:<12}{text}")


def _times(info: RunInfo) -> str:
    started = f"started {info.started:%Y-%m-%d %H:%M:%S}"
    if info.ended is None:
        return started
    return (
        f"{started}, ended {info.ended:%Y-%m-%d %H:%M:%S}, after {clock((info.ended - info.started).total_seconds())}"
    )


def last_checkpoint(info: RunInfo) -> dict[str, Any] | None:
    """Return the number of a run's last complete checkpoint and the source tuples before it; None: there is none."""
    disk, folder = Posix(), str(info.checkpoints_path)
    for number in numbers(disk, folder)[:1]:
        try:
            manifest = load_manifest(disk, folder, number)
        except (PenstockError, OSError):
            return {"number": number, "source_tuples": None, "last": None}
        source_tuples = sum(task.counted for task in manifest.tasks if task.position)
        return {"number": number, "source_tuples": source_tuples, "last": manifest.last}
    return None
