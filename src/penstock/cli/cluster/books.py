"""Shared parts of the commands on a cluster's book: loading, saving, printing changed rates."""

from collections.abc import Callable, Sequence
from math import floor, log10
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from penstock.admission import BookFile, Outdated, RateChange, Unmet
from penstock.cli.output import console, number
from penstock.model.book import Book, Booking
from penstock.model.errors import FileProblem

T = TypeVar("T")

BOOK = Path("book.json")
TRIES = 20  # to save a change; of N concurrent ones, one succeeds each time

BookOption = Annotated[Path, typer.Option("--book", help="The file of the cluster's book.")]


def load_book(path: Path) -> Book:
    """Read a book; if there is none, say how to create one."""
    file = BookFile(path)
    if not file.exists():
        problem = "there is no book; create one with penstock cluster admit APP CLUSTER, or name it with --book"
        raise FileProblem(f"{path}: {problem}")
    return file.load()


def change_book(path: Path, change: Callable[[Book], Book]) -> tuple[Book, Book]:
    """Read a book, change it and save it, again after a concurrent change; return it before and after."""

    def attempt() -> tuple[Book, Book]:
        before = load_book(path)
        after = change(before)
        BookFile(path).save(after, before.version)
        return before, after

    return until_saved(attempt)


def until_saved(attempt: Callable[[], T]) -> T:
    """Repeat reading, deciding and saving until no concurrent change interferes."""
    for _ in range(TRIES - 1):
        try:
            return attempt()
        except Outdated:
            continue
    return attempt()


def needed(book: Book) -> frozenset[str]:
    """Return all elements that some path uses or passes, and the switches on its route."""
    elements = {name for booking in book.bookings for path in booking.paths for name in path.elements}
    return frozenset(part for name in elements for part in (name, *book.ends.get(name, ())))


def print_changes(rates: Sequence[RateChange], missed: Sequence[Unmet] = ()) -> None:
    """Print the changed rates and the unmet guarantees."""
    for change in rates:
        before, after = number(change.before_tps), number(change.after_tps)
        if before == after:
            continue
        relative = f" ({change.after_tps / change.before_tps - 1:+.0%})" if change.before_tps > 0 else ""
        console.print(f"  {change.application}: {before}/s → [bold]{after}/s[/]{relative}")
    stopped = [change.application for change in rates if not change.after_tps]
    for name in [name for name in stopped if name not in {one.application for one in missed if one.short}]:
        console.print(
            f"[yellow]{name} gets nothing[/]; penstock cluster admit {name} --again searches for other paths",
            soft_wrap=True,
        )
    for one in missed:
        again = f"penstock cluster admit {one.application} --again searches for other paths"
        text = one.describe(lambda tps: f"{number(tps)}/s", share)
        console.print(f"[red]{one.application} {text}[/]; {again}", soft_wrap=True)


def changes_json(rates: Sequence[RateChange], missed: Sequence[Unmet] = ()) -> dict[str, Any]:
    """Return changed rates and unmet guarantees for JSON."""
    return {"rates": [change._asdict() for change in rates], "unmet": [one._asdict() for one in missed]}


def booking_in_words(booking: Booking) -> str:
    """Return the guarantee of an application, for a table."""
    if booking.wanted_tps is None:
        offered = "" if booking.demand_tps is None else f", offers {number(booking.demand_tps)}/s"
        return f"best effort, priority {booking.priority:g}{offered}"
    return f"guaranteed {number(booking.wanted_tps)}/s"


def share(value: float | None) -> str:
    """Format a share of the time, with all its nines."""
    if value is None:
        return "-"
    digits = 0 if value in (0.0, 1.0) else min(max(1, floor(-log10(1 - value)) - 1), 8)
    return f"{value:.{digits}%}"
