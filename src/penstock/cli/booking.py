"""What the commands about a cluster's book share: finding it, saving it, saying whose rates changed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from penstock.control.book import RateChange, Unmet
    from penstock.model.book import Book, Booking

BOOK = Path("book.json")

BookOption = Annotated[Path, typer.Option("--book", help="The file that the cluster's book is kept in.")]


def load_book(path: Path) -> "Book":
    """Read a book; where there is none, say how to begin one."""
    from penstock.control.book import BookFile
    from penstock.model.errors import FileProblem

    file = BookFile(path)
    if not file.exists():
        raise FileProblem(f"{path}: there is no book; begin one by penstock admit APP CLUSTER, or name it by --book")
    return file.load()


def print_changes(rates: "Sequence[RateChange]", unmet: "Sequence[Unmet]" = ()) -> None:
    """Say whose rates are others now, and which guarantees are not met."""
    from penstock.cli.output import console, number

    for change in rates:
        before, after = number(change.before_tps), number(change.after_tps)
        share = f" ({change.after_tps / change.before_tps - 1:+.0%})" if change.before_tps > 0 else ""
        console.print(f"  {change.application}: {before}/s → [bold]{after}/s[/]{share}")
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
