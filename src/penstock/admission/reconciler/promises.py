"""Which applications have not what the book promised them: told when that begins, when it changes, when it is over."""

from collections.abc import Callable

from penstock.admission.book.changes import unmet
from penstock.admission.reconciler.outcomes import tps
from penstock.model.book import Book


class Promises:
    """Remembers what was told of promises that are not kept; tell: called with a line for each."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._missed: dict[str, str] = {}  # by application

    def compare(self, book: Book) -> None:
        """Tell which promises a book does not keep, other than was told already, and which it keeps again."""
        missed = {one.application: one.told(tps, _share) for one in unmet(book)}
        for name, text in missed.items():
            if self._missed.get(name) != text:
                self._tell(f"warning: {name} {text}; penstock cluster admit {name} --again looks for other paths")
        for name in self._missed:
            if name not in missed and name in book.index:
                self._tell(f"{name} has what it was promised again")
        self._missed = missed


def _share(part: float | None) -> str:
    return f"{part or 0.0:.6g}"
