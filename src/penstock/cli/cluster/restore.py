"""`penstock cluster restore`: mark an element as working again, or change its capacity."""

from typing import Annotated

import typer
from msgspec.structs import replace

from penstock.admission import restore as restored
from penstock.admission import set_capacity
from penstock.cli.cluster.books import BOOK, BookOption, ElementArgument, change_element
from penstock.cli.inputs import JsonOption
from penstock.model.book import Book
from penstock.model.errors import InvalidInput

EXAMPLE = "penstock cluster restore m0--hub --capacity 0.5"


def restore(
    element: ElementArgument,
    capacity: Annotated[
        float | None,
        typer.Option(metavar="FACTOR", help="Its capacity from now on, as a multiple of the described one; 1 resets."),
    ] = None,
    book: BookOption = BOOK,
    as_json: JsonOption = False,
) -> None:
    """Mark an element as working again, or change its capacity.

    Rates are recomputed. With --capacity the element need not have failed: a link that has only half its bandwidth is
    restored at 0.5. Only --capacity changes a capacity: an element that was reduced when it failed is as reduced when
    it works again. Links of a machine or switch are usable again with it, except those that were marked as failed
    themselves.
    """

    def describe(after: Book, name: str) -> str:
        if capacity is not None:
            return f"[bold]{name}[/] works at {capacity:g} of its described capacity"
        if (kept := after.capacities.get(name)) is None:
            return f"[bold]{name}[/] works"
        return f"[bold]{name}[/] works at {kept:g} of its described capacity, as before; --capacity 1 resets it"

    change_element(describe, book, as_json, lambda found, name: _restored(found, name, capacity), element)


def _restored(book: Book, element: str, capacity: float | None) -> Book:
    """Return a book in which an element works at a multiple of its capacity; None: the multiple before it failed."""
    if capacity is not None and not 0 < capacity < float("inf"):
        problem = f"expected a number > 0, got {capacity:g}; if it does not work: penstock cluster fail {element}"
        raise InvalidInput("capacity", problem)
    if capacity is None and element in book.capacities and element not in book.failed:
        lower = f"it is at {book.capacities[element]:g} of its described capacity"
        raise InvalidInput("element", f"{element!r} has not failed; {lower}, and --capacity 1 resets that")
    after = book
    if element in book.failed or capacity is None:
        after = restored(book, element).book  # rejects unknown elements, and those that have not failed
    if capacity is not None:
        after = set_capacity(after, element, capacity).book
    return replace(after, version=book.version + 1)
