"""`penstock status`: how is a running application doing, or how did it end?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.inputs import JsonOption, RunArgument, RunsOption

if TYPE_CHECKING:
    from penstock.model.status import Status
    from penstock.runtime.storage.run_folder import RunInfo

EXAMPLE = "penstock status word-count-20250131-142501 --watch"
WATCH_SECONDS = 1.0  # between two looks


def status(
    run: RunArgument = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until it ends or you press Ctrl-C.")] = False,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Show a running application: rates, queues, latencies, machines, tasks.

    Rates and times are of the last seconds; p50 and p99 are of sampled tuples. For a run that has ended it shows the
    outcome (completed, stopped, failed, died), why it ended, its totals and its last checkpoint.
    """
    from penstock.cli.output import console, print_json
    from penstock.runtime.control_socket import GetStatus, ask
    from penstock.runtime.storage.run_folder import find_current, outcome

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
        from penstock.cli.run_view import view

        console.print(view(found, console.width))


def _watch(info: "RunInfo", found: "Status", as_json: bool) -> None:
    """Show the status again and again, and what was said in between; ends with the run or by Ctrl-C."""
    from time import sleep

    from rich.text import Text

    from penstock.cli.follower import LineDisplay, TableDisplay, log_text
    from penstock.cli.output import console
    from penstock.runtime.control_socket import GetLog, GetStatus, ask
    from penstock.runtime.storage.run_folder import NoRun

    display = TableDisplay(console) if console.is_terminal else LineDisplay(console)
    heard = ask(info, GetLog()).number
    with display:
        while True:
            if as_json:
                _print_line(found)
            else:
                display.show(found, "")
            try:
                sleep(WATCH_SECONDS)
                said = ask(info, GetLog(after=heard))
                found = ask(info, GetStatus())
            except KeyboardInterrupt:
                return
            except NoRun:
                break
            heard = said.number
            for line in () if as_json else said.lines:
                display.say(log_text(line))
    if not as_json:
        console.print(Text(f"run {info.run} has ended"))


def _print_line(found: "Status") -> None:
    import msgspec

    from penstock.cli.output import neutral

    print(neutral(msgspec.json.encode(found).decode()), flush=True)


def _print_ended(info: "RunInfo", as_json: bool) -> None:
    """Say how a run ended: from what its driver wrote at the end, and from its checkpoints."""
    import msgspec

    from penstock.cli.output import console, print_json
    from penstock.cli.run_view import next_steps, summary
    from penstock.runtime.storage.run_folder import last_status, outcome

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
        console.print(f"{name:<12}{text}", markup=False, soft_wrap=True)


def _times(info: "RunInfo") -> str:
    from penstock.cli.run_view import clock

    started = f"started {info.started:%Y-%m-%d %H:%M:%S}"
    if info.ended is None:
        return started
    return (
        f"{started}, ended {info.ended:%Y-%m-%d %H:%M:%S}, after {clock((info.ended - info.started).total_seconds())}"
    )


def last_checkpoint(info: "RunInfo") -> dict[str, Any] | None:
    """Return the number of a run's last complete checkpoint and the source tuples before it; None: it has none."""
    from penstock.model.errors import PenstockError
    from penstock.runtime.storage.checkpoints import numbers, read_manifest
    from penstock.runtime.storage.disk import Posix

    disk, folder = Posix(), str(info.checkpoints_path)
    for number in numbers(disk, folder)[:1]:
        try:
            manifest = read_manifest(disk, folder, number)
        except (PenstockError, OSError):
            return {"number": number, "source_tuples": None, "last": None}
        given = sum(task.counted for task in manifest.tasks if task.position)
        return {"number": number, "source_tuples": given, "last": manifest.last}
    return None
