"""What the commands about a cluster's book share: finding it, saving it, saying whose rates changed."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from penstock.control.book import RateChange, Unmet
    from penstock.model.book import Book, Booking

BOOK = Path("book.json")
TRIES = 5  # to save a change that others are faster with

BookOption = Annotated[Path, typer.Option("--book", help="The file that the cluster's book is kept in.")]


def load_book(path: Path) -> "Book":
    """Read a book; where there is none, say how to begin one."""
    from penstock.control.book import BookFile
    from penstock.model.errors import FileProblem

    file = BookFile(path)
    if not file.exists():
        raise FileProblem(f"{path}: there is no book; begin one by penstock admit APP CLUSTER, or name it by --book")
    return file.load()


def change_book(path: Path, change: "Callable[[Book], Book]") -> "tuple[Book, Book]":
    """Read a book, change it and save it, again where somebody else was faster; return it before and after."""
    from penstock.control.book import BookFile, Outdated

    file = BookFile(path)
    for attempt in range(TRIES):
        before = load_book(path)
        after = change(before)
        try:
            file.save(after, before.version)
        except Outdated:
            if attempt == TRIES - 1:
                raise
        else:
            return before, after
    raise AssertionError("the last try returns or raises")


def element_of(book: "Book", text: str) -> str:
    """Return the element that a text names; a link that both directions share may be named from either end."""
    source, arrow, target = text.partition("--")
    turned = f"{target}--{source}"
    return turned if arrow and turned in book.ends else text


def print_changes(rates: "Sequence[RateChange]", unmet: "Sequence[Unmet]" = ()) -> None:
    """Say whose rates are others now, and which guarantees are not met."""
    from penstock.cli.output import console, number

    for change in rates:
        before, after = number(change.before_tps), number(change.after_tps)
        if before == after:
            continue
        share = f" ({change.after_tps / change.before_tps - 1:+.0%})" if change.before_tps > 0 else ""
        console.print(f"  {change.application}: {before}/s → [bold]{after}/s[/]{share}")
    stopped = [change.application for change in rates if not change.after_tps]
    for name in [name for name in stopped if name not in {short.application for short in unmet}]:
        console.print(f"[yellow]{name} gets nothing[/]; penstock admit {name} --again looks for other paths")
    for short in unmet:
        told = f"is guaranteed {number(short.wanted_tps)}/s and gets {number(short.rate_tps)}/s"
        again = f"penstock admit {short.application} --again looks for other paths"
        console.print(f"[red]{short.application} {told}[/]; {again}", soft_wrap=True)


def changes_json(rates: "Sequence[RateChange]", unmet: "Sequence[Unmet]" = ()) -> dict[str, Any]:
    """Return the same for programs."""
    return {"rates": [change._asdict() for change in rates], "unmet": [short._asdict() for short in unmet]}


def promise(booking: "Booking") -> str:
    """Write what an application was let in for."""
    from penstock.cli.output import number

    if booking.wanted_tps is None:
        return f"best effort, priority {booking.priority:g}"
    return f"guaranteed {number(booking.wanted_tps)}/s"


def share(value: float | None) -> str:
    """Write a share of the time, with as many nines as it has."""
    if value is None:
        return "-"
    from math import floor, log10

    digits = 0 if value in (0.0, 1.0) else min(max(1, floor(-log10(1 - value)) - 1), 8)
    return f"{value:.{digits}%}"
