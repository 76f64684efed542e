"""`penstock fail` and `penstock restore`: tell the book what became of a machine, a switch or a link."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import app
from penstock.cli.booking import BOOK, BookOption
from penstock.cli.inputs import JsonOption

if TYPE_CHECKING:
    from penstock.model.book import Book

ElementArgument = Annotated[
    str,
    typer.Argument(
        metavar="ELEMENT",
        help="A machine or a switch by its name, or a link by its label, such as m0--hub or 'a->b'.",
    ),
]


@app.command(epilog="Examples: penstock fail field2; penstock fail hub; penstock fail m0--hub")
def fail(element: ElementArgument, book: BookOption = BOOK, as_json: JsonOption = False) -> None:
    """Mark a machine, a switch or a link as failed: paths over it rest, and what others can have is shared anew.

    Links of a machine or switch that has failed cannot be used either. No task moves. A guaranteed application that
    does not get its rate any more is named; admit it --again to find it other paths. What penstock operate runs over
    the element is stopped, and its tuples go to the other paths.
    """
    from penstock.admission.book import fail as failed

    def without(found: "Book", name: str) -> "Book":
        return failed(found, name).book

    _change(lambda _after, name: f"[bold]{name}[/] has failed", book, as_json, without, element)


@app.command(epilog="Examples: penstock restore field2; penstock restore m0--hub --capacity 0.5")
def restore(
    element: ElementArgument,
    capacity: Annotated[
        float | None, typer.Option(help="From now on so many times what the cluster's description says; 1: as it says.")
    ] = None,
    book: BookOption = BOOK,
    as_json: JsonOption = False,
) -> None:
    """Mark a machine, a switch or a link as working again, or change how much it can do; rates are shared anew.

    With --capacity it need not have failed: a link that has only half its bandwidth is restored at 0.5. Only
    --capacity changes that: what had less when it failed has as much when it works again, and --capacity 1 takes it
    back. Links of a machine or switch are of use again with it, but for those that were named as failed themselves.
    """

    def working(found: "Book", name: str) -> "Book":
        return _restored(found, name, capacity)

    def says(after: "Book", name: str) -> str:
        if capacity is not None:
            return f"[bold]{name}[/] works at {capacity:g} of what is described"
        if (kept := after.capacities.get(name)) is None:
            return f"[bold]{name}[/] works"
        return f"[bold]{name}[/] works at {kept:g} of what is described, as before; --capacity 1 takes that back"

    _change(says, book, as_json, working, element)


def _restored(book: "Book", element: str, capacity: float | None) -> "Book":
    """Return a book in which an element works, with so much of its capacity; None: as much as before it failed."""
    from msgspec.structs import replace

    from penstock.admission.book import restore as restored
    from penstock.admission.book import set_capacity
    from penstock.model.errors import InvalidInput

    if capacity is not None and not 0 < capacity < float("inf"):
        problem = f"expected a number > 0, got {capacity:g}; what does nothing has failed: penstock fail {element}"
        raise InvalidInput("capacity", problem)
    if capacity is None and element in book.capacities and element not in book.failed:
        lower = f"it is at {book.capacities[element]:g} of what is described"
        raise InvalidInput("element", f"{element!r} has not failed; {lower}, and --capacity 1 takes that back")
    after = book
    if element in book.failed or capacity is None:
        after = restored(book, element).book  # refuses what it does not know, and what has not failed
    if capacity is not None:
        after = set_capacity(after, element, capacity).book
    return replace(after, version=book.version + 1)


def _change(
    says: "Callable[[Book, str], str]",
    file: Path,
    as_json: bool,
    change: "Callable[[Book, str], Book]",
    element: str,
) -> None:
    """Change the book, and say what that changed."""
    from penstock.admission.book import rate_changes, unmet
    from penstock.cli.booking import change_book, changes_json, element_of, print_changes
    from penstock.cli.output import console, print_json

    before, after = change_book(file, lambda found: change(found, element_of(found, element)))
    rates, short = rate_changes(before, after), unmet(after)
    if as_json:
        state = {"failed": after.failed, "capacities": after.capacities, "version": after.version}
        print_json({**state, **changes_json(rates, short)})
        return
    name = element_of(after, element)
    console.print(f"{says(after, name)}; {file} is at version {after.version}", soft_wrap=True)
    if name not in after.failed and (ends := after.failed_ends(name)):
        are = "is" if len(ends) == 1 else "are"
        console.print(f"[yellow]it stays unusable until {' and '.join(ends)} {are} restored, too[/]", soft_wrap=True)
    if not rates and not short:
        console.print("[dim]no rate changes[/]")
    print_changes(rates, short)
