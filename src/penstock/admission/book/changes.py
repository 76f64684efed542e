"""Change a book: release an application, change a priority, fail or restore an element, change a capacity.

No task moves. Best-effort rates are reallocated over the paths that work, guaranteed paths keep theirs. Promises that
the remaining capacity cannot keep, in rate or in availability, are reported.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from penstock.admission.book.sharing import recompute_shares
from penstock.model.book import SAME, Book
from penstock.model.errors import InvalidInput


class RateChange(NamedTuple):
    """An application whose rate has changed."""

    application: str
    before_tps: float
    after_tps: float


class Unmet(NamedTuple):
    """An application whose promise is not kept: its rate or its availability is too low."""

    application: str
    wanted_tps: float | None  # None: best effort
    rate_tps: float  # now
    availability: float | None  # requested
    achieved_availability: float
    short: bool  # rate below the guarantee now
    seldom: bool  # availability below the requested one

    def describe(self, rate: Callable[[float], str], share: Callable[[float | None], str]) -> str:
        """Describe the promise and what is achieved; `rate` and `share` format rates and availabilities."""
        asked, often = share(self.availability), share(self.achieved_availability)
        if self.wanted_tps is None:
            return f"requested availability {asked} and has {often}"
        wanted, now = rate(self.wanted_tps), f"gets {rate(self.rate_tps)}"
        if not self.seldom:
            return f"is guaranteed {wanted} and {now}"
        text = f"is guaranteed {wanted} with availability {asked} and has {often}"
        return f"{text}; it {now}" if self.short else text


class Changed(NamedTuple):
    """A book after a change, the applications whose rates changed, and all promises that are not kept now."""

    book: Book
    rates: tuple[RateChange, ...]
    unmet: tuple[Unmet, ...]


def release(book: Book, name: str) -> Book:
    """Return the book without an application; raises `UnknownName` if it is not in the book."""
    leaving = book[name]
    left = tuple(booking for booking in book.bookings if booking is not leaving)
    return recompute_shares(replace(book, version=book.version + 1, bookings=left))


def reprioritise(book: Book, name: str, priority: float) -> Book:
    """Return the book with a new priority of a best-effort application."""
    if book[name].guaranteed:
        problem = f"{name!r} has a guaranteed rate and no priority; release it and admit it as best effort"
        raise InvalidInput("priority", problem)
    bookings = tuple(replace(b, priority=priority) if b.name == name else b for b in book.bookings)
    return recompute_shares(replace(book, version=book.version + 1, bookings=bookings))


def fail(book: Book, element: str) -> Changed:
    """Mark a machine, a switch or a link as failed; the links of a failed machine or switch are unusable, too.

    Raises `UnknownName`, or `InvalidInput` if it is already marked.
    """
    book.refuse_unknown("element", element)
    if element in book.failed:
        raise InvalidInput("element", f"{element!r} has already failed; restore it first")
    return _changed(book, replace(book, failed=(*book.failed, element)))


def restore(book: Book, element: str) -> Changed:
    """Mark a failed element as working; a link is usable only if its ends work, too."""
    book.refuse_unknown("element", element)
    if element not in book.failed:
        why = "; there is nothing to restore"
        if ends := book.failed_ends(element):
            why = f" itself, but {' and '.join(ends)} {'has; restore that' if len(ends) == 1 else 'have; restore them'}"
        raise InvalidInput("element", f"{element!r} has not failed{why}")
    return _changed(book, replace(book, failed=tuple(other for other in book.failed if other != element)))


def set_capacity(book: Book, element: str, factor: float) -> Changed:
    """Scale a machine's speed or a link's bandwidth relative to its description; 1 is as described."""
    book.refuse_incapable("element", element)
    if not (math.isfinite(factor) and factor > 0):
        raise InvalidInput("factor", f"expected a number > 0, got {factor}; use fail for an element without capacity")
    others = {name: given for name, given in book.capacities.items() if name != element}
    return _changed(book, replace(book, capacities=others if factor == 1 else others | {element: factor}))


def find_unmet(book: Book) -> tuple[Unmet, ...]:
    """Return the applications whose working paths do not carry their rates, or whose availability is too low.

    The availability is computed from current capacities and all failure probabilities, including those of elements that
    have failed now.
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


def compare_rates(before: Book, after: Book) -> tuple[RateChange, ...]:
    """Return the applications in both books whose rates differ."""
    pairs = [(before[b.name].rate_tps, b) for b in after.bookings if b.name in before.index]
    return tuple(
        RateChange(booking.name, old, booking.rate_tps)
        for old, booking in pairs
        if not math.isclose(old, booking.rate_tps, rel_tol=SAME)
    )


def _changed(before: Book, after: Book) -> Changed:
    book = recompute_shares(replace(after, version=before.version + 1))
    return Changed(book, compare_rates(before, book), find_unmet(book))
