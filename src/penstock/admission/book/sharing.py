"""Allocate a book's cluster: guaranteed applications have their reservations, best-effort ones fair shares.

Guaranteed paths come first, in order of admission, those that work before those that do not. If a capacity no longer
suffices for all of them, the last admitted is reduced first. The reservation of a path that does not work stays closed
to best-effort ones, because its elements may recover at any time. Best-effort paths that work share what remains
(SPARCLE, eq. (4)). An application with a declared demand gets no more than that: the demand is an additional capacity
that all its paths use and no others, so that its surplus goes to the other applications.

An availability is a long-run figure: it counts every failure by its probability, whether or not the element has failed
now, and the rate each path would have if everything worked. So it changes with capacities, and with the reservations of
guaranteed applications, but not when an element fails; only current rates change then.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from penstock.estimate.availability import exact_or_estimated
from penstock.model.book import Book, BookedPath, Booking
from penstock.model.cluster import machine_of
from penstock.model.remaining import EXHAUSTED, add_up, capacities, scaled
from penstock.policies.allocation.fairness import fair_rates

PathKey = tuple[str, int]  # an application's name and the number of its path
RowKey = tuple[str, str]  # an element and a kind of capacity


class BookShares(NamedTuple):
    """Rates of all paths by application, and the marginal value of every capacity."""

    rates: Mapping[str, tuple[float, ...]]  # source tuples per second, now
    prices: Mapping[RowKey, float]  # the multipliers of eq. (4), by element and kind; zeros are left out


class Usage(NamedTuple):
    """Use of one capacity of an element, in its unit per second."""

    element: str
    kind: str  # machine (core-seconds), link (bits), or a resource
    capacity: float  # now; 0 if it is unusable
    guaranteed: float  # reserved by guaranteed applications
    best_effort: float

    @property
    def utilisation(self) -> float:
        """The used share of the capacity; 0 if there is none."""
        return (self.guaranteed + self.best_effort) / self.capacity if self.capacity > 0 else 0.0


def compute_shares(book: Book) -> BookShares:
    """Return the rates that all paths should have now."""
    kept, left = _kept(book)
    rates = {key: kept[key] if book.works(path) else 0.0 for key, path in _paths(book, guaranteed=True)}
    fair, prices = _fair(book, left)
    rates |= fair
    by_application = {
        booking.name: tuple(rates[booking.name, number] for number in range(len(booking.paths)))
        for booking in book.bookings
    }
    return BookShares(by_application, prices)


def recompute_shares(book: Book) -> Book:
    """Return the book with recomputed rates and availabilities."""
    rates = compute_shares(book).rates
    book = replace(book, bookings=tuple(_with_rates(one, rates[one.name]) for one in book.bookings))
    kept = _kept_shares(book)
    bookings = tuple(
        _with_shares(booking, [kept[booking.name, number] for number in range(len(booking.paths))], book)
        for booking in book.bookings
    )
    return replace(book, bookings=bookings)


def measure_usage(book: Book) -> tuple[Usage, ...]:
    """Return the use of every element and kind of capacity, machines first."""
    kept, _ = _kept(book)
    there_is = _capacities(book)
    by_guarantees = add_up((path.load, kept[key]) for key, path in _paths(book, guaranteed=True))
    by_others = add_up((path.load, path.rate_tps) for _, path in _paths(book, guaranteed=False))
    return tuple(
        Usage(
            element,
            kind,
            amount,
            by_guarantees.get(element, {}).get(kind, 0.0) if amount > 0 else 0.0,
            by_others.get(element, {}).get(kind, 0.0),
        )
        for element, kinds in there_is.items()
        for kind, amount in kinds.items()
    )


def _with_rates(booking: Booking, rates: Iterable[float]) -> Booking:
    paths = tuple(replace(path, rate_tps=rate) for path, rate in zip(booking.paths, rates, strict=True))
    return replace(booking, paths=paths)


def _with_shares(booking: Booking, kept: list[float], book: Book) -> Booking:
    """Return a booking with the shares of its paths that can be kept; at admission, all of each is."""
    if kept == [path.kept_share for path in booking.paths]:
        return booking
    paths = tuple(replace(path, kept_share=share) for path, share in zip(booking.paths, kept, strict=True))
    found = replace(booking, paths=paths)
    return replace(found, achieved_availability=current_availability(found, book.failure_probabilities))


def _kept_shares(book: Book) -> dict[PathKey, float]:
    """Return the share of each path's rate that its capacity allows if everything works; best effort: 1 or 0."""
    kept, left = _kept(replace(book, failed=()) if book.failed else book)
    shares = {key: kept[key] / path.reserved_tps if path.reserved_tps else 1.0 for key, path in _paths(book, True)}
    for key, path in _paths(book, guaranteed=False):
        needs = (
            (element, kind) for element, kinds in path.load.items() for kind, amount in kinds.items() if amount > 0
        )
        shares[key] = float(all(left[element][kind] > 0 for element, kind in needs))
    return shares


def _paths(book: Book, guaranteed: bool) -> list[tuple[PathKey, BookedPath]]:
    return [
        ((booking.name, number), path)
        for booking in book.bookings
        if booking.guaranteed is guaranteed
        for number, path in enumerate(booking.paths)
    ]


def _capacities(book: Book) -> dict[str, dict[str, float]]:
    """Return the current capacities of every element."""
    return {
        element: {kind: 0.0 if element in book.unusable else amount for kind, amount in kinds.items()}
        for element, kinds in capacities(scaled(book.cluster, book.capacities)).items()
    }


def _kept(book: Book) -> tuple[dict[PathKey, float], dict[str, dict[str, float]]]:
    """Return the rate that each guaranteed path can keep, and what they leave of every element."""
    left = _capacities(book)
    kept: dict[PathKey, float] = {}
    for key, path in sorted(_paths(book, guaranteed=True), key=lambda one: not book.works(one[1])):
        rooms = [
            left[element][kind] / amount
            for element, kinds in path.load.items()
            if element not in book.unusable
            for kind, amount in kinds.items()
            if amount > 0
        ]
        kept[key] = max(min([path.reserved_tps, *rooms, *_slot_rates(book, path)]), 0.0)
        # What is missing because of rounding alone does not count.
        if kept[key] >= path.reserved_tps * (1 - EXHAUSTED):
            kept[key] = path.reserved_tps
        for element, kinds in path.load.items():
            for kind, amount in kinds.items():
                left[element][kind] -= kept[key] * amount
    there_is = _capacities(book)
    for element, kinds in left.items():
        for kind, amount in kinds.items():
            kinds[kind] = amount if amount > EXHAUSTED * there_is[element][kind] else 0.0
    return kept, left


def _slot_rates(book: Book, path: BookedPath) -> list[float]:
    """Return the rates that the slots of a path allow, each being one thread."""
    speed = {machine.name: machine.speed for machine in book.cluster.machines}
    return [
        speed[machine_of(slot)] * book.capacities.get(machine_of(slot), 1.0) / work for slot, work in path.slots.items()
    ]


def _fair(book: Book, left: Mapping[str, Mapping[str, float]]) -> tuple[dict[PathKey, float], dict[RowKey, float]]:
    """Return the fair rates of all best-effort paths, 0 for those that do not work, and the prices."""
    rates = {key: 0.0 for key, _ in _paths(book, guaranteed=False)}
    working = [(key, path) for key, path in _paths(book, guaranteed=False) if book.works(path)]
    if not working:
        return rates, {}
    rows = sorted({(element, kind) for _, path in working for element, kinds in path.load.items() for kind in kinds})
    number = {row: position for position, row in enumerate(rows)}
    names = [booking.name for booking in book.bookings if not booking.guaranteed]
    owner = np.array([names.index(name) for (name, _), _ in working], dtype=np.int32)
    demand = {number: book[name].demand_tps for number, name in enumerate(names) if number in owner}
    wanted = [(number, tps) for number, tps in demand.items() if tps is not None]
    load = np.zeros((len(rows) + len(working) + len(wanted), len(working)))
    capacity = np.array(
        [left[element][kind] for element, kind in rows] + [1.0] * len(working) + [tps for _, tps in wanted]
    )
    for row, (application, _) in enumerate(wanted, len(rows) + len(working)):
        load[row] = owner == application
    for column, (_, path) in enumerate(working):
        for element, kinds in path.load.items():
            for kind, amount in kinds.items():
                load[number[element, kind], column] = amount
        # Only the path itself is limited by its slots: one row, for the slowest of them.
        load[len(rows) + column, column] = 1.0 / min([np.inf, *_slot_rates(book, path)])
    fair = fair_rates(load, capacity, owner, np.array([book[name].priority for name in names]))
    rates |= {key: float(rate) for (key, _), rate in zip(working, fair.paths, strict=True)}
    return rates, {row: float(price) for row, price in zip(rows, fair.prices, strict=False) if price > 0}


def current_availability(booking: Booking, fails: Mapping[str, float]) -> float:
    """Return a booking's availability from the share of each path's rate that its capacity allows now.

    For a guaranteed application, that of its rate; else that of any path with a rate. If estimated, its lower bound.
    """
    if booking.wanted_tps is None:
        usable = [path.elements for path in booking.paths if path.kept_share > 0]
        found = exact_or_estimated(usable, None, 0.0, fails, booking.seed)
    else:
        rates = [path.reserved_tps * path.kept_share for path in booking.paths]
        found = exact_or_estimated(
            [path.elements for path in booking.paths], rates, booking.wanted_tps, fails, booking.seed
        )
    return min(found.low, 1.0)
