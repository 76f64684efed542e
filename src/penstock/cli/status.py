"""`penstock status`: how is a running application doing?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import app
from penstock.cli.inputs import JsonOption, RunArgument, RunsOption

if TYPE_CHECKING:
    from penstock.model.status import Status
    from penstock.runtime.folder import RunInfo

EXAMPLES = """Examples:

  penstock status

  penstock status word-count-20250131-142501 --watch

  penstock status --json | jq .latency.p99_ms
"""
WATCH_SECONDS = 1.0  # between two looks


@app.command(epilog=EXAMPLES)
def status(
    run: RunArgument = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until it ends or you press Ctrl-C.")] = False,
    runs: RunsOption = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Show how a running application is doing: rates, queues, times, machines, and where every task is.

    Rates and times are of the last seconds; p50 and p99 are of sampled tuples.
    """
    from penstock.cli.output import console, print_json
    from penstock.runtime.folder import find_running
    from penstock.runtime.socket import GetStatus, ask

    info = find_running(run, runs)
    found = ask(info, GetStatus())
    if watch:
        _watch(info, found, as_json)
    elif as_json:
        print_json(found)
    else:
        from penstock.cli.live import view

        console.print(view(found, console.width))


def _watch(info: "RunInfo", found: "Status", as_json: bool) -> None:
    """Show the status again and again, and what was said in between; ends with the run or by Ctrl-C."""
    from time import sleep

    from rich.text import Text

    from penstock.cli.follow import LineDisplay, TableDisplay, log_text
    from penstock.cli.output import console
    from penstock.runtime.folder import NoRun
    from penstock.runtime.socket import GetLog, GetStatus, ask

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
