"""Trials of what would let a refused application in, and how one that succeeded is told.

Every number that is offered has been tried as it is printed: amounts are rounded before they are tried, not after, as
an availability may fall where an element has more to give.
"""

import math
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from penstock.admission.book.attempts import Attempt, attempt
from penstock.admission.book.free_capacity import Room, room_of
from penstock.admission.book.paths import Request
from penstock.model.book import Book

PLACEMENTS = 300  # about; then what is known to be enough by then is the answer
LEAST = 1e-6  # of the most that could be needed; less than that is not looked for
HALVINGS = 11  # between the least and the most, as ratios: to 0.7 % of the increase
DIGITS = 4


class RemedyKind(StrEnum):
    """What would have to be different."""

    RATE = "rate"
    AVAILABILITY = "availability"
    BANDWIDTH = "bandwidth"
    CPU = "cpu"
    MEMORY = "memory"
    RESOURCE = "resource"
    RELEASE = "release"
    RESTORE = "restore"
    PATHS = "paths"


class Remedy(NamedTuple):
    """One change with which the application would have been let in."""

    kind: RemedyKind
    element: str  # machine, switch or link, or an application to release; empty where it would ask for less itself
    before: float  # tuples a second, a share of the time, Mbit/s, core-seconds or units a second, MB, or a number
    after: float
    text: str  # for a person
    also: tuple["Remedy", ...] = ()  # what else would have to be different at the same time
    resource: str = ""  # which, where there would have to be more of one; of a network card, which way


class Trials:
    """Attempts to let one application in where the cluster has more, or the application asks for less."""

    def __init__(self, book: Book, request: Request) -> None:
        self.book, self.request = book, request
        self.room = room_of(book)
        self._left = PLACEMENTS

    def attempt(self, room: Room | None, request: Request | None = None, book: Book | None = None) -> Attempt | None:
        """Try with another room, request or book; None when there has been enough trying."""
        if self._left <= 0:
            return None
        found = attempt(book or self.book, request or self.request, room)
        self._left -= len(found.paths) + 1
        return found

    def met(self, room: Room, request: Request | None = None) -> bool:
        """Return whether a trial let the application in."""
        found = self.attempt(room, request)
        return found is not None and found.met

    def met_in(self, book: Book) -> bool:
        """Return whether another book would have let the application in."""
        found = self.attempt(None, book=book)
        return found is not None and found.met


def rounded_down(value: float) -> float:
    """Round down to a few digits, as they are printed."""
    return _rounded(value, math.floor)


def rounded_up(value: float, digits: int = DIGITS) -> float:
    """Round up to a few digits, as they are printed."""
    return _rounded(value, math.ceil, digits)


def _rounded(value: float, towards: Callable[[float], int], digits: int = DIGITS) -> float:
    if value <= 0:
        return 0.0
    digits -= 1 + math.floor(math.log10(value))
    step = 1.0 if towards is math.floor else -1.0
    whole = towards(value * 10.0**digits * (1 + step * 1e-12))
    return float(f"{whole}e{-digits}")  # the number nearest to what is printed
