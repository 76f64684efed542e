"""`penstock cluster release`: remove an application from the book and free its capacity."""

from typing import Annotated

import typer

from penstock.admission import compare_rates, find_unmet
from penstock.admission import release as release_from_book
from penstock.cli.cluster.books import BOOK, BookOption, change_book, changes_json, print_changes
from penstock.cli.inputs import JsonOption
from penstock.cli.output import console, print_json

EXAMPLE = "penstock cluster release words"


def release(
    application: Annotated[str, typer.Argument(metavar="APP", help="Its name in the book.")],
    book: BookOption = BOOK,
    as_json: JsonOption = False,
) -> None:
    """Remove an application from a cluster's book.

    Best-effort applications share the capacity that it frees.
    """
    before, after = change_book(book, lambda found: release_from_book(found, application))
    changed, missed = compare_rates(before, after), find_unmet(after)
    if as_json:
        print_json({"released": application, "version": after.version, **changes_json(changed, missed)})
        return
    console.print(f"released [bold]{application}[/]; {book} is at version {after.version}", soft_wrap=True)
    print_changes(changed, missed)
