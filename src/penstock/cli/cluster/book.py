"""`penstock cluster book`: the admitted applications, their rates, and the use of each element."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.admission import Usage, find_unmet, measure_usage
from penstock.admission.reconciler.state import ReconcilerState, read_state
from penstock.cli.cluster.books import BOOK, BookOption, booking_in_words, load_book, needed, print_changes, share
from penstock.cli.drawing.usage import draw_usage
from penstock.cli.formatting import plural
from penstock.cli.inputs import SVG, JsonOption, refuse_file
from penstock.cli.output import console, number, print_json, print_line, table, terminal_width
from penstock.cli.svg.cluster import cluster_svg
from penstock.model.book import Book, Booking
from penstock.model.files import write_whole

FULLEST = 12  # elements that the table names


def book(
    path: BookOption = BOOK,
    svg: Annotated[Path | None, typer.Option(help="Also draw the network into this file (.svg).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the admitted applications and the use of each element.

    A guaranteed application has its rate reserved; the others share the rest, in proportion to their priorities where
    they compete. Used is what all of them together may take at their current rates. Of the time is the long-run share
    of it in which an application is served, at current capacities; it is red where that is less than requested.

    Example: penstock cluster book --svg edge.svg
    """
    refuse_file(svg, SVG)
    found = load_book(path)
    used, state = measure_usage(found), read_state(path)
    if svg is not None:
        write_whole(svg, cluster_svg(found.cluster, fullness(found, used), needed(found)))
    if as_json:
        print_json(_as_json(found, used, state))
        return
    _print(found, used, state, path)
    if svg is not None:
        print_line(f"drew {svg}")


def fullness(book: Book, used: tuple[Usage, ...]) -> dict[str, float | None]:
    """Return the highest used share of any capacity of each element; None if it cannot be used."""
    most: dict[str, float | None] = {}
    for one in used:
        most[one.element] = max(most.get(one.element) or 0.0, one.utilisation)
    return most | dict.fromkeys(sorted(book.unusable))


def _print(book: Book, used: tuple[Usage, ...], state: ReconcilerState | None, path: Path) -> None:
    cluster = book.cluster
    size = f"{plural(len(cluster.machines), 'machine')}, {plural(len(cluster.links), 'link')}"
    console.print(f"[bold]{cluster.name}[/] ({size}), {path} at version {book.version}\n", soft_wrap=True)
    if book.bookings:
        console.print(_applications(book, state))
    else:
        console.print("No application is admitted yet: penstock cluster admit APP")
    _print_notes(book, state)
    console.print()
    for line in draw_usage(cluster, fullness(book, used), terminal_width()):
        console.print(line, no_wrap=True, overflow="ignore", crop=False)
    _print_fullest(used)


def _applications(book: Book, state: ReconcilerState | None) -> Any:
    live = state is not None and state.alive
    seen = ("seen\n/s",) if live else ()
    rows = table(
        "application", "admitted for", "rate\n/s", *seen, "of the\ntime", "asked", "paths", left=("admitted for",)
    )
    for booking in book.bookings:
        rate = f"[red]{number(booking.rate_tps)}[/]" if booking.short else number(booking.rate_tps)
        often = share(booking.achieved_availability)
        works = sum(book.works(path) for path in booking.paths)
        paths = str(works) if works == len(booking.paths) else f"[yellow]{works} of {len(booking.paths)}[/]"
        emitted = (
            [number(sum(path.emitted_tps for path in state.of(booking.name)))] if live and state is not None else []
        )
        rows.add_row(
            f"[bold]{booking.name}[/]",
            booking_in_words(booking),
            rate,
            *emitted,
            f"[red]{often}[/]" if booking.seldom else often,
            share(booking.availability),
            paths,
        )
    return rows


def _print_notes(book: Book, state: ReconcilerState | None) -> None:
    if book.failed:
        console.print(f"\n[red]failed: {', '.join(book.failed)}[/]", soft_wrap=True)
    for element, factor in book.capacities.items():
        console.print(f"[yellow]{element} is at {factor:g} of what is described[/]", soft_wrap=True)
    print_changes((), find_unmet(book))
    if state is not None and state.alive:
        runs = sum(path.phase == "running" for path in state.paths)
        console.print(f"[dim]penstock cluster serve runs {runs} of {len(state.paths)} paths (process {state.pid})[/]")


def _print_fullest(used: tuple[Usage, ...]) -> None:
    busy = sorted((one for one in used if one.utilisation >= 0.005), key=lambda one: -one.utilisation)
    if not busy:
        return
    rows = table("fullest", "of its", "used", "guaranteed", "best effort", "free", left=("of its",))
    for one in busy[:FULLEST]:
        kept, shared = one.guaranteed / one.capacity, one.best_effort / one.capacity
        free = max(0.0, 1 - one.utilisation)
        rows.add_row(
            one.element, _kind(one.kind), f"{one.utilisation:.0%}", f"{kept:.0%}", f"{shared:.0%}", f"{free:.0%}"
        )
    console.print()
    console.print(rows)
    if len(busy) > FULLEST:
        console.print(f"[dim]and {len(busy) - FULLEST} more in use[/]")


def _kind(kind: str) -> str:
    return {"machine": "cpu", "link": "bandwidth"}.get(kind, kind)


def _as_json(book: Book, used: tuple[Usage, ...], state: ReconcilerState | None) -> Mapping[str, Any]:
    return {
        "cluster": book.cluster.name,
        "version": book.version,
        "applications": [_booking(booking, book) for booking in book.bookings],
        "failed": book.failed,
        "capacities": book.capacities,
        "unmet": [short._asdict() for short in find_unmet(book)],
        "usage": [one._asdict() | {"utilisation": one.utilisation} for one in used],
        "operator": state if state is not None and state.alive else None,
    }


def _booking(booking: Booking, book: Book) -> Mapping[str, Any]:
    return {
        "name": booking.name,
        "promise": booking.kind,
        "priority": None if booking.guaranteed else booking.priority,
        "wanted_tps": booking.wanted_tps,
        "demand_tps": booking.demand_tps,
        "rate_tps": booking.rate_tps,
        "availability": booking.availability,
        "achieved_availability": booking.achieved_availability,
        "policy": booking.policy,
        "paths": [
            {
                "rate_tps": path.rate_tps,
                "reserved_tps": path.reserved_tps,
                "kept_share": path.kept_share,
                "works": book.works(path),
                "tasks": path.plan.tasks,
                "routes": path.plan.routes,
            }
            for path in booking.paths
        ],
    }
