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
    now: Annotated[bool, typer.Option("--now", help="At once, whatever is under way.")] = False,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """End a running application: its sources stop, everything under way is processed, then it ends.

    Waits for the end; Ctrl-C leaves off waiting, not ending.
    """
    from penstock.cli.live import run_name
    from penstock.cli.output import console, errors, print_json
    from penstock.runtime.folder import find_running
    from penstock.runtime.socket import Drain, Stop, Unanswered, ask

    info = find_running(run, runs)
    if not as_json:
        errors.print(f"{'stopping' if now else 'draining'} {info.run}", markup=False, soft_wrap=True)
    with suppress(Unanswered):  # it ended before it could say so
        ask(info, Stop() if now else Drain(), timeout=None)
    if as_json:
        print_json({"run": info.run, "drained": not now, "telemetry": str(info.telemetry_path)})
    else:
        console.print(f"{info.run} has ended; next: penstock report {run_name(info)}", markup=False, soft_wrap=True)
