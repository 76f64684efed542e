"""`penstock fail` and `penstock restore`: tell the book what became of a machine or a link."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.app import app
from penstock.cli.booking import BOOK, BookOption
from penstock.cli.inputs import JsonOption

if TYPE_CHECKING:
    from penstock.control.book import Changed
    from penstock.model.book import Book

ElementArgument = Annotated[
    str, typer.Argument(metavar="ELEMENT", help="A machine by its name, or a link by its label, such as m0--hub.")
]


@app.command(epilog="Examples: penstock fail field2; penstock fail m0--hub")
def fail(element: ElementArgument, book: BookOption = BOOK, as_json: JsonOption = False) -> None:
    """Mark a machine or a link as failed: paths over it rest, and what others can have is shared anew.

    No task moves. A guaranteed application that does not get its rate any more is named; admit it --again to find it
    other paths. What penstock operate runs over the element is stopped, and its tuples go to the other paths.
    """
    from penstock.cli.booking import load_book
    from penstock.control.book import fail as failed

    before = load_book(book)
    _tell(f"[bold]{element}[/] has failed", before, failed(before, element), book, as_json)


@app.command(epilog="Examples: penstock restore field2; penstock restore m0--hub --capacity 0.5")
def restore(
    element: ElementArgument,
    capacity: Annotated[
        float | None, typer.Option(help="From now on so many times what the cluster's description says; 1: as it says.")
    ] = None,
    book: BookOption = BOOK,
    as_json: JsonOption = False,
) -> None:
    """Mark a machine or a link as working again, or change how much it can do; rates are shared anew.

    With --capacity it need not have failed: a link that has only half its bandwidth is restored at 0.5.
    """
    from penstock.cli.booking import load_book
    from penstock.control.book import restore as restored
    from penstock.control.book import set_capacity

    before = load_book(book)
    says = f"[bold]{element}[/] works" + ("" if capacity is None else f" at {capacity:g} of what is described")
    if capacity is None:
        _tell(says, before, restored(before, element), book, as_json)
        return
    back = restored(before, element).book if element in before.failed else before
    _tell(says, before, set_capacity(back, element, capacity), book, as_json)


def _tell(what: str, before: "Book", changed: "Changed", file: Path, as_json: bool) -> None:
    """Save a change and say what it changed."""
    from penstock.cli.booking import changes_json, print_changes
    from penstock.cli.output import console, print_json
    from penstock.control.book import BookFile, rate_changes

    BookFile(file).save(changed.book, before.version)
    rates = rate_changes(before, changed.book)
    if as_json:
        print_json(
            {"failed": changed.book.failed, "version": changed.book.version, **changes_json(rates, changed.unmet)}
        )
        return
    console.print(f"{what}; {file} is at version {changed.book.version}", soft_wrap=True)
    if not rates and not changed.unmet:
        console.print("[dim]no rate changes[/]")
    print_changes(rates, changed.unmet)
