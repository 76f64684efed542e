"""`penstock cluster serve`: run the admitted applications at their booked rates until Ctrl-C."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from penstock.admission import PathState, ReconcilerState
from penstock.admission import serve as serve_book
from penstock.admission.reconciler.service import BookService
from penstock.api.dataflow import Dataflow
from penstock.cli.cluster.books import BOOK, BookOption, load_book
from penstock.cli.flows import find_flow, is_described
from penstock.cli.follower import STOPPING, Interrupts
from penstock.cli.output import console, neutral, number, print_note, table
from penstock.model.book import Booking
from penstock.model.errors import InvalidInput
from penstock.workloads.dataflows import DATAFLOWS

PACE_S = 0.1  # between polls of signals and time
DRAINING = "draining all paths; Ctrl-C again stops them at once"
ALARMING = ("backoff", "stuck", "down", "impossible")


def serve(
    book: BookOption = BOOK,
    runs: Annotated[Path, typer.Option(help="Folder for run folders; each start of a path makes one.")] = Path("runs"),
    workers: Annotated[
        int | None,
        typer.Option(help="Maximum worker processes, one per machine and path; default: twice what is booked.", min=1),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", help="Drain and end after this time; default: on Ctrl-C."),
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between tables of rates.")] = 5.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON instead of each table.")] = False,
) -> None:
    """Run the admitted applications at their booked rates.

    Each path is a run of its own, with its own checkpoints, on emulated machines; all share the machines and links of
    the cluster. The paths of an application divide its sources' tuples in proportion to their rates.

    The book is followed continuously: penstock cluster admit starts paths, penstock cluster release drains them, and
    changed rates take effect at once, without a restart. A path over an element that penstock cluster fail marks is
    stopped; what its last checkpoint does not cover goes to the other paths, which continue. When penstock cluster
    restore marks it as working, the path starts again. A run that fails by itself is stopped likewise, and started
    again after a pause.

    See what runs with penstock cluster book, or one path with penstock status RUN. Ctrl-C drains all of it. The
    progress is kept beside the book: the next penstock cluster serve continues the sources from there.

    Example: penstock cluster serve --for 60 --every 10
    """
    for option, value in (("for", seconds), ("every", every)):
        if value is not None and not 0 < value < float("inf"):
            raise InvalidInput(option, f"expected seconds > 0, got {value:g}; choose another --{option}")
    load_book(book)

    def log(text: str) -> None:
        style = "yellow" if text.startswith("warning: ") else None
        print_note(text, style)

    with Interrupts() as interrupts, serve_book(book, _flow, runs=runs, workers=workers, report=log) as operating:
        _follow(operating, interrupts, seconds, every, as_json)
        log("draining what runs" if not interrupts.count else DRAINING)
        operating.leave()
        _await_end(operating, interrupts, log)
    log("all paths have ended")


def _follow(operating: BookService, interrupts: Interrupts, seconds: float | None, every: float, as_json: bool) -> None:
    """Show the rates until the time is up or Ctrl-C."""
    started = shown = monotonic()
    while not interrupts.count and not operating.wait(0):
        now = monotonic()
        if seconds is not None and now - started >= seconds:
            return
        if now - shown >= every:
            shown = now
            if as_json:
                print(neutral(_line(operating.state())), flush=True)
            else:
                console.print(_table(operating.state()))
        sleep(PACE_S)


def _await_end(operating: BookService, interrupts: Interrupts, log: Callable[[str], None]) -> None:
    """Wait until all paths have ended; Ctrl-C stops them at once."""
    patience = 2
    while not operating.wait(PACE_S):
        if interrupts.count >= patience:
            patience = interrupts.count + 1
            log(STOPPING)
            operating.leave(now=True)


def _flow(booking: Booking) -> Dataflow:
    """Return the dataflow of an application as the command line named it when it was admitted."""
    application = booking.application
    if not booking.given:
        problem = (
            f"the book does not name the program of {booking.name!r}: it was not admitted with penstock cluster admit"
        )
        raise InvalidInput("application", f"{problem}; use penstock.serve with its dataflow")
    ready = is_described(booking.given) or booking.given.partition(":")[0] in DATAFLOWS
    rate = application.guaranteed_tps if ready and application.offered_tps is None else None
    return find_flow(booking.given, rate=rate, seed=booking.seed)


def _line(state: ReconcilerState) -> str:
    return msgspec.json.encode(state).decode()


def _table(state: ReconcilerState) -> Table:
    """Return a table of the paths with booked and actual rates."""
    columns = ("application", "path", "phase", "booked\n/s", "given\n/s", "at sinks\n/s", "machines")
    rows = table(*columns, left=("path", "phase", "machines"))
    for path in state.paths:
        rows.add_row(
            path.application,
            path.path or f"#{path.number}",
            _phase(path),
            number(path.booked_tps),
            number(path.emitted_tps),
            number(path.written_tps),
            ", ".join(path.machines),
        )
    if not state.paths:
        rows.add_row("[dim]nothing is admitted[/]")
    return rows


def _phase(path: PathState) -> str:
    style = "green" if path.phase == "running" else "red" if path.phase in ALARMING else "yellow"
    return f"[{style}]{path.phase}[/]"
