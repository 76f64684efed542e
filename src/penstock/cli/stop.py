"""`penstock stop`: end a running application."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.inputs import JsonOption, RunArgument, RunsOption
from penstock.cli.output import note_unless, print_json, print_line
from penstock.cli.run_view import find_resume_point
from penstock.runtime.control_socket import DrainRun, StopRun, Unanswered, ask
from penstock.runtime.storage.run_folder import find_running


def stop(
    run: RunArgument = None,
    now: Annotated[
        bool, typer.Option("--now", help="Stop at once, at the last checkpoint; the run can be resumed.")
    ] = False,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Stop a running application.

    Its sources stop, all tuples in flight are processed, all output is published, then it ends. With --now nothing
    after the last checkpoint is published; penstock runs resume continues from there. The command waits for the end;
    Ctrl-C stops the waiting only.

    Example: penstock stop word-count-20250131-142501 --now
    """
    info, note = find_running(run, runs), note_unless(as_json)
    request, doing = (StopRun(), "stopping") if now else (DrainRun(), "draining")
    with suppress(Unanswered):  # it ended before it could answer
        ask(info, request, timeout=None, heard=lambda: note(f"{doing} {info.run}"))
    if as_json:
        print_json({"run": info.run, "drained": not now, "telemetry": str(info.telemetry_path)})
    else:
        then = f"runs resume {info.called}" if now and find_resume_point(info) else f"report {info.called}"
        print_line(f"{info.run} has ended; next: penstock {then}")
