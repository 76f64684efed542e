"""`penstock cluster fail`, `restore`, `release` and `priority`: changes of a cluster's book."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from penstock.admission import compare_rates, find_unmet, reprioritise, set_capacity
from penstock.admission import fail as failed
from penstock.admission import release as release_from_book
from penstock.admission import restore as restored
from penstock.cli.cluster.books import BOOK, BookOption, change_book, changes_json, print_changes
from penstock.cli.inputs import JsonOption
from penstock.cli.output import console, print_json
from penstock.model.book import Book
from penstock.model.errors import InvalidInput

ElementArgument = Annotated[
    str,
    typer.Argument(
        metavar="ELEMENT", help="A machine or a switch by its name, or a link by its label, such as m0--hub or 'a->b'."
    ),
]


def fail(element: ElementArgument, book: BookOption = BOOK, as_json: JsonOption = False) -> None:
    """Mark a machine, a switch or a link as failed.

    Paths through it are suspended, and the rates of the others are recomputed. Links of a failed machine or switch
    cannot be used either. No task moves. A guaranteed application that no longer has its rate is listed; admit it
    --again to find other paths. What penstock cluster serve runs over the element is stopped, and its tuples go to the
    other paths.

    Example: penstock cluster fail field2
    """
    _change_element(
        lambda _after, name: f"[bold]{name}[/] has failed",
        book,
        as_json,
        lambda found, name: failed(found, name).book,
        element,
    )


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
    restored at 0.5. A reduced capacity is kept over a failure; only --capacity changes it. Links of a machine or switch
    are usable again with it, except those that were marked as failed themselves.

    Example: penstock cluster restore m0--hub --capacity 0.5
    """

    def describe(after: Book, name: str) -> str:
        if capacity is not None:
            return f"[bold]{name}[/] works at {capacity:g} of its described capacity"
        if (kept := after.capacities.get(name)) is None:
            return f"[bold]{name}[/] works"
        return f"[bold]{name}[/] works at {kept:g} of its described capacity, as before; --capacity 1 resets it"

    _change_element(describe, book, as_json, lambda found, name: _restored(found, name, capacity), element)


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


def release(
    application: Annotated[str, typer.Argument(metavar="APP", help="Its name in the book.")],
    book: BookOption = BOOK,
    as_json: JsonOption = False,
) -> None:
    """Remove an application from a cluster's book.

    Best-effort applications share the capacity that it frees.

    Example: penstock cluster release words
    """
    before, after = change_book(book, lambda found: release_from_book(found, application))
    _print_effects(before, after, {"released": application}, f"released [bold]{application}[/]", book, as_json)


def change_priority(
    application: Annotated[str, typer.Argument(metavar="APP", help="Its name in the book.")],
    priority: Annotated[
        float,
        typer.Argument(metavar="PRIORITY", help="Its weight among best-effort applications; 2 is twice as much as 1."),
    ],
    book: BookOption = BOOK,
    as_json: JsonOption = False,
) -> None:
    """Change the priority of a best-effort application.

    Rates are recomputed, and no task moves.

    Example: penstock cluster priority words 3
    """
    before, after = change_book(book, lambda found: reprioritise(found, application, priority))
    done = f"[bold]{application}[/] has priority {priority:g}"
    _print_effects(before, after, {"application": application}, done, book, as_json)


def _change_element(
    describe: Callable[[Book, str], str],
    file: Path,
    as_json: bool,
    change: Callable[[Book, str], Book],
    element: str,
) -> None:
    """Change an element in the book, and print the effects."""
    before, after = change_book(file, lambda found: change(found, element_of(found, element)))
    name = element_of(after, element)
    note = ""
    if name not in after.failed and (ends := after.failed_ends(name)):
        are = "is" if len(ends) == 1 else "are"
        note = f"[yellow]it stays unusable until {' and '.join(ends)} {are} restored, too[/]"
    facts = {"failed": after.failed, "capacities": after.capacities}
    _print_effects(before, after, facts, describe(after, name), file, as_json, note)


def element_of(book: Book, text: str) -> str:
    """Return the element that a text names; a link that both directions share may be named from either end."""
    if text in book.ends or text in book.cluster.node_index:  # a--b and b--a may be two links
        return text
    source, arrow, target = text.partition("--")
    turned = f"{target}--{source}"
    return turned if arrow and turned in book.ends else text


def _print_effects(
    before: Book, after: Book, facts: Mapping[str, object], done: str, file: Path, as_json: bool, note: str = ""
) -> None:
    """Print what was done and its effects on the rates."""
    rates, missed = compare_rates(before, after), find_unmet(after)
    if as_json:
        print_json({**facts, "version": after.version, **changes_json(rates, missed)})
        return
    console.print(f"{done}; {file} is at version {after.version}", soft_wrap=True)
    if note:
        console.print(note, soft_wrap=True)
    if not rates and not missed:
        console.print("[dim]no rate changes[/]")
    print_changes(rates, missed)
