"""What becomes of a book: an application leaves, a priority changes, an element fails, returns or changes capacity.

No task moves: best-effort rates are shared anew over the paths that work, guaranteed paths keep theirs, and where what
is left falls short of what was promised, the rate now or the share of the time, that is said.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from penstock.admission.book.sharing import settled
from penstock.model.book import SAME, Book
from penstock.model.errors import InvalidInput


class RateChange(NamedTuple):
    """An application whose rate is another."""

    application: str
    before_tps: float
    after_tps: float


class Unmet(NamedTuple):
    """An application that has not what it was promised: less than its rate, or too seldom."""

    application: str
    wanted_tps: float | None  # None: best effort
    rate_tps: float  # now
    availability: float | None  # that it asked for
    achieved_availability: float
    short: bool  # of its rate, now
    seldom: bool  # served for less of the time than it asked for

    def told(self, rate: Callable[[float], str], share: Callable[[float | None], str]) -> str:
        """Say what it was promised and what it has, given how rates and shares of the time are written."""
        asked, often = share(self.availability), share(self.achieved_availability)
        if self.wanted_tps is None:
            return f"asked to be served {asked} of the time and is for {often}"
        wanted, now = rate(self.wanted_tps), f"gets {rate(self.rate_tps)}"
        if not self.seldom:
            return f"is guaranteed {wanted} and {now}"
        text = f"is guaranteed {wanted} for {asked} of the time and has it for {often}"
        return f"{text}; it {now}" if self.short else text


class Changed(NamedTuple):
    """A book after a change, the applications whose rates it changed, and all promises that are not met now."""

    book: Book
    rates: tuple[RateChange, ...]
    unmet: tuple[Unmet, ...]


def release(book: Book, name: str) -> Book:
    """Return the book without an application; raises `UnknownName` where it is not there."""
    leaving = book[name]
    left = tuple(booking for booking in book.bookings if booking is not leaving)
    return settled(replace(book, version=book.version + 1, bookings=left))


def reprioritise(book: Book, name: str, priority: float) -> Book:
    """Return the book with another priority of a best-effort application."""
    if book[name].guaranteed:
        problem = f"{name!r} is guaranteed a rate and has none; release it and admit it as best effort"
        raise InvalidInput("priority", problem)
    bookings = tuple(replace(b, priority=priority) if b.name == name else b for b in book.bookings)
    return settled(replace(book, version=book.version + 1, bookings=bookings))


def fail(book: Book, element: str) -> Changed:
    """Mark a machine, a switch or a link as failed: nothing can use it then, nor the links of the former two.

    Raises `UnknownName`, and `InvalidInput` where it is marked already.
    """
    book.refuse_unknown("element", element)
    if element in book.failed:
        raise InvalidInput("element", f"{element!r} has failed already; restore it first")
    return _changed(book, replace(book, failed=(*book.failed, element)))


def restore(book: Book, element: str) -> Changed:
    """Mark what has failed as working again; a link is of use only when its ends work, too."""
    book.refuse_unknown("element", element)
    if element not in book.failed:
        why = "; there is nothing to restore"
        if ends := book.failed_ends(element):
            why = f" itself, but {' and '.join(ends)} {'has; restore that' if len(ends) == 1 else 'have; restore them'}"
        raise InvalidInput("element", f"{element!r} has not failed{why}")
    return _changed(book, replace(book, failed=tuple(other for other in book.failed if other != element)))


def set_capacity(book: Book, element: str, factor: float) -> Changed:
    """Multiply what the description says of a machine's speed or a link's bandwidth; 1 is as described."""
    book.refuse_incapable("element", element)
    if not (math.isfinite(factor) and factor > 0):
        raise InvalidInput("factor", f"expected a number > 0, got {factor}; an element that does nothing has failed")
    others = {name: given for name, given in book.capacities.items() if name != element}
    return _changed(book, replace(book, capacities=others if factor == 1 else others | {element: factor}))


def unmet(book: Book) -> tuple[Unmet, ...]:
    """Return the applications whose working paths do not carry their rates, or that are served too seldom.

    The latter by the capacities of now and the chance of all failures, whether or not one of them is there now.
    """
    return tuple(
        Unmet(
            application=booking.name,
            wanted_tps=booking.wanted_tps,
            rate_tps=booking.rate_tps,
            availability=booking.availability,
            achieved_availability=booking.achieved_availability,
            short=booking.short,
            seldom=booking.seldom,
        )
        for booking in book.bookings
        if booking.short or booking.seldom
    )


def rate_changes(before: Book, after: Book) -> tuple[RateChange, ...]:
    """Return the applications in both books whose rates differ."""
    pairs = [(before[b.name].rate_tps, b) for b in after.bookings if b.name in before.index]
    return tuple(
        RateChange(booking.name, old, booking.rate_tps)
        for old, booking in pairs
        if not math.isclose(old, booking.rate_tps, rel_tol=SAME)
    )


def _changed(before: Book, after: Book) -> Changed:
    book = settled(replace(after, version=before.version + 1))
    return Changed(book, rate_changes(before, book), unmet(book))
