"""`penstock stop`: end a running application."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.app import app
from penstock.cli.inputs import JsonOption, RunArgument, RunsOption

EXAMPLES = """Examples:

  penstock stop

  penstock stop word-count-20250131-142501 --now
"""


@app.command(epilog=EXAMPLES)
def stop(
    run: RunArgument = None,
    now: Annotated[bool, typer.Option("--now", help="At once, as of the last checkpoint; it can be resumed.")] = False,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """End a running application: its sources stop, everything under way is processed and published, then it ends.

    With --now nothing is published that came after the last checkpoint; penstock run --resume goes on from there. Waits
    for the end; Ctrl-C leaves off waiting, not ending.
    """
    from penstock.cli.live import goes_on
    from penstock.cli.output import console, errors, print_json
    from penstock.runtime.control_socket import Drain, Stop, Unanswered, ask
    from penstock.runtime.storage.run_folder import find_running

    def say() -> None:
        if not as_json:
            errors.print(f"{'stopping' if now else 'draining'} {info.run}", markup=False, soft_wrap=True)

    info = find_running(run, runs)
    with suppress(Unanswered):  # it ended before it could say so
        ask(info, Stop() if now else Drain(), timeout=None, heard=say)
    if as_json:
        print_json({"run": info.run, "drained": not now, "telemetry": str(info.telemetry_path)})
    else:
        then = f"run --resume {info.called}" if now and goes_on(info) else f"report {info.called}"
        console.print(f"{info.run} has ended; next: penstock {then}", markup=False, soft_wrap=True)
