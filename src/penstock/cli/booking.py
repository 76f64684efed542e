"""What the commands about a cluster's book share: finding it, saving it, saying whose rates changed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

if TYPE_CHECKING:
    from penstock.admission.book import RateChange, Unmet
    from penstock.model.book import Book, Booking

T = TypeVar("T")

BOOK = Path("book.json")
TRIES = 20  # to save a change that others are faster with; of as many at once, one is saved each time

BookOption = Annotated[Path, typer.Option("--book", help="The file that the cluster's book is kept in.")]


def load_book(path: Path) -> "Book":
    """Read a book; where there is none, say how to begin one."""
    from penstock.admission.book import BookFile
    from penstock.model.errors import FileProblem

    file = BookFile(path)
    if not file.exists():
        raise FileProblem(f"{path}: there is no book; begin one by penstock admit APP CLUSTER, or name it by --book")
    return file.load()


def change_book(path: Path, change: "Callable[[Book], Book]") -> "tuple[Book, Book]":
    """Read a book, change it and save it, again where somebody else was faster; return it before and after."""
    from penstock.admission.book import BookFile

    def attempt() -> "tuple[Book, Book]":
        before = load_book(path)
        after = change(before)
        BookFile(path).save(after, before.version)
        return before, after

    return until_saved(attempt)


def until_saved(attempt: Callable[[], T]) -> T:
    """Do what reads a book, decides and saves it, anew where somebody else has saved another in between."""
    from penstock.admission.book import Outdated

    for _ in range(TRIES - 1):
        try:
            return attempt()
        except Outdated:
            continue
    return attempt()


def element_of(book: "Book", text: str) -> str:
    """Return the element that a text names; a link that both directions share may be named from either end."""
    if text in book.ends or text in book.cluster.node_index:  # a--b and b--a may be two links
        return text
    source, arrow, target = text.partition("--")
    turned = f"{target}--{source}"
    return turned if arrow and turned in book.ends else text


def needed(book: "Book") -> frozenset[str]:
    """Return all that some path needs: its elements, in use or only passed, and the switches on its way."""
    elements = {name for booking in book.bookings for path in booking.paths for name in path.elements}
    return frozenset(part for name in elements for part in (name, *book.ends.get(name, ())))


def print_changes(rates: "Sequence[RateChange]", unmet: "Sequence[Unmet]" = ()) -> None:
    """Say whose rates are others now, and which promises are not met."""
    from penstock.cli.output import console, number

    for change in rates:
        before, after = number(change.before_tps), number(change.after_tps)
        if before == after:
            continue
        relative = f" ({change.after_tps / change.before_tps - 1:+.0%})" if change.before_tps > 0 else ""
        console.print(f"  {change.application}: {before}/s → [bold]{after}/s[/]{relative}")
    stopped = [change.application for change in rates if not change.after_tps]
    for name in [name for name in stopped if name not in {missed.application for missed in unmet if missed.short}]:
        console.print(f"[yellow]{name} gets nothing[/]; penstock admit {name} --again looks for other paths")
    for missed in unmet:
        again = f"penstock admit {missed.application} --again looks for other paths"
        told = missed.told(lambda tps: f"{number(tps)}/s", share)
        console.print(f"[red]{missed.application} {told}[/]; {again}", soft_wrap=True)


def changes_json(rates: "Sequence[RateChange]", unmet: "Sequence[Unmet]" = ()) -> dict[str, Any]:
    """Return the same for programs."""
    return {"rates": [change._asdict() for change in rates], "unmet": [short._asdict() for short in unmet]}


def promise(booking: "Booking") -> str:
    """Write what an application was let in for."""
    from penstock.cli.output import number

    if booking.wanted_tps is None:
        offered = "" if booking.demand_tps is None else f", offers {number(booking.demand_tps)}/s"
        return f"best effort, priority {booking.priority:g}{offered}"
    return f"guaranteed {number(booking.wanted_tps)}/s"


def share(value: float | None) -> str:
    """Write a share of the time, with as many nines as it has."""
    if value is None:
        return "-"
    from math import floor, log10

    digits = 0 if value in (0.0, 1.0) else min(max(1, floor(-log10(1 - value)) - 1), 8)
    return f"{value:.{digits}%}"
