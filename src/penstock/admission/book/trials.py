"""Try changes that would admit a rejected application, and represent those that succeed.

Every number that is suggested has been tried exactly as printed: amounts are rounded before they are tried, not after,
because an availability may decrease if an element has more capacity.
"""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from penstock.admission.book.free_capacity import FreeCapacity, find_free_capacity
from penstock.admission.book.path_selection import PathSelection, select_paths
from penstock.admission.book.paths import Request
from penstock.model.book import Book

MAX_PLACEMENTS = 300  # budget of placements, approximately; then the best result so far is the answer
MIN_SHARE = 1e-6  # of the largest amount that could be needed; smaller amounts are not searched for
HALVINGS = 11  # between minimum and maximum, geometrically: to 0.7 % of the increase
DIGITS = 4


class SuggestionKind(StrEnum):
    """What the suggestion changes."""

    RATE = "rate"
    AVAILABILITY = "availability"
    BANDWIDTH = "bandwidth"
    CPU = "cpu"
    MEMORY = "memory"
    RESOURCE = "resource"
    RELEASE = "release"
    RESTORE = "restore"
    PATHS = "paths"


class Suggestion(NamedTuple):
    """One change with which the application would have been admitted."""

    kind: SuggestionKind
    element: str  # machine, switch or link, or an application to release; empty if the request itself changes
    before: float  # tuples per second, an availability, Mbit/s, core-seconds or units per second, MB, or a number
    after: float
    text: str  # for a person
    also: tuple["Suggestion", ...] = ()  # further changes that are needed at the same time
    resource: str = ""  # the resource to be increased; for a network card, its direction


class Trials:
    """Search paths for one application on a cluster with more capacity, or with a smaller request."""

    def __init__(self, book: Book, request: Request) -> None:
        self.book, self.request = book, request
        self.room = find_free_capacity(book)
        self._left = MAX_PLACEMENTS

    def attempt(
        self, room: FreeCapacity | None, request: Request | None = None, book: Book | None = None
    ) -> PathSelection | None:
        """Try with another capacity, request or book; None if the budget is used up."""
        if self._left <= 0:
            return None
        found = select_paths(book or self.book, request or self.request, room)
        self._left -= len(found.paths) + 1
        return found

    def met(self, room: FreeCapacity, request: Request | None = None) -> bool:
        """Return whether a trial admits the application."""
        found = self.attempt(room, request)
        return found is not None and found.met

    def met_in(self, book: Book) -> bool:
        """Return whether another book would have admitted the application."""
        found = self.attempt(None, book=book)
        return found is not None and found.met


def rounded_down(value: float) -> float:
    """Round down to the digits that are printed."""
    return _rounded(value, math.floor)


def rounded_up(value: float, digits: int = DIGITS) -> float:
    """Round up to the digits that are printed."""
    return _rounded(value, math.ceil, digits)


def _rounded(value: float, towards: Callable[[float], int], digits: int = DIGITS) -> float:
    if value <= 0:
        return 0.0
    digits -= 1 + math.floor(math.log10(value))
    step = 1.0 if towards is math.floor else -1.0
    whole = towards(value * 10.0**digits * (1 + step * 1e-12))
    return float(f"{whole}e{-digits}")  # the number nearest to the printed one
