"""`penstock cluster priority`: change the weight of a best-effort application."""

from typing import Annotated

import typer

from penstock.admission import compare_rates, find_unmet, reprioritise
from penstock.cli.cluster.books import BOOK, BookOption, change_book, changes_json, print_changes
from penstock.cli.inputs import JsonOption
from penstock.cli.output import console, print_json

EXAMPLE = "penstock cluster priority words 3"


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
    """
    before, after = change_book(book, lambda found: reprioritise(found, application, priority))
    changed, missed = compare_rates(before, after), find_unmet(after)
    if as_json:
        print_json({"application": application, "version": after.version, **changes_json(changed, missed)})
        return
    console.print(f"[bold]{application}[/] has priority {priority:g}; {book} is at version {after.version}")
    print_changes(changed, missed)
