"""`penstock cluster fail`: mark a machine, a switch or a link as failed."""

from penstock.admission import fail as failed
from penstock.cli.cluster.books import BOOK, BookOption, ElementArgument, change_element
from penstock.cli.inputs import JsonOption

EXAMPLE = "penstock cluster fail field2"


def fail(element: ElementArgument, book: BookOption = BOOK, as_json: JsonOption = False) -> None:
    """Mark a machine, a switch or a link as failed.

    Paths through it are suspended, and the rates of the others are recomputed. Links of a failed machine or switch
    cannot be used either. No task moves. A guaranteed application that no longer has its rate is listed; admit it
    --again to find other paths. What penstock cluster serve runs over the element is stopped, and its tuples go to the
    other paths.
    """
    change_element(
        lambda _after, name: f"[bold]{name}[/] has failed",
        book,
        as_json,
        lambda found, name: failed(found, name).book,
        element,
    )
