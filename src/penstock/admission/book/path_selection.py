"""Select paths for an application until its rate or availability is reached.

Guaranteed (SPARCLE, §IV-D): search path after path on the capacity that guaranteed applications leave, and subtract
each at its full rate, until P(Σ rates of working paths ≥ R) ≥ A (7). Subtracting the full rate makes the next path a
different one. Once the guarantee holds, rates are reduced from the last path to the first, each to the minimum that
still keeps the guarantee, because reserved capacity is lost to others: never more than R, and on the last path only
what is missing.

Best effort: search path after path on the predicted capacities (6) until P(at least one works) ≥ A. Each path's use at
its predicted rate is subtracted before the next search.

If no further path is left because all must share an element, such as the machine of a source, SPARCLE gives up,
although the paths are meant for the time when others fail. We add a second search: it uses the capacity that is left
when no path reserves more than R (guaranteed), or when elements are divided evenly over the paths that use them (best
effort), and it avoids one element of the earlier paths: first the one whose failures reduce the availability most, then
the next few.

The availability of more than 16 paths is estimated if that is allowed. Then only its lower bound counts, and the rates
of the guarantee are not reduced.
"""

from collections.abc import Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import numpy as np

from penstock.admission.book.free_capacity import FreeCapacity, Need, find_free_capacity
from penstock.admission.book.paths import AdmissionRequest, FoundPath, Shortage, next_path
from penstock.estimate.availability import MAX_PATHS, REACHED, Estimate, carried, exact_or_estimated, failed_sets
from penstock.model.book import CPU, ROUNDING, Book
from penstock.model.cluster import check_pins, required_machines
from penstock.policies.allocation.fairness import predicted_capacity

MAX_AVOIDED = 6  # elements that the second search tries to avoid, one at a time


NO_AVAILABILITY = Estimate(0.0, 0.0, 0.0)  # the availability of no path


class PathSelection(NamedTuple):
    """The paths found, whether they suffice, and why there are no more."""

    paths: tuple[FoundPath, ...]
    rates: tuple[float, ...]  # reserved for each path (guaranteed), or predicted (best effort)
    achieved: float  # availability; if estimated, its lower bound
    met: bool
    shortage: Shortage | None = None
    at_most: float | None = None  # upper bound of an estimated availability


def select_paths(book: Book, request: AdmissionRequest, room: FreeCapacity | None = None) -> PathSelection:
    """Search for paths on the capacity that guaranteed applications leave, or on `room`; the book is not changed."""
    application = request.application
    check_pins(application, book.cluster)
    if (obstacle := _pinned_to_failed(book, request)) is not None:
        return PathSelection((), (), 0.0, False, obstacle)
    if application.guaranteed_tps is not None:
        return _guaranteed(book, request, application.guaranteed_tps, room or find_free_capacity(book))
    return _best_effort(book, request, room or find_free_capacity(book))


def _pinned_to_failed(book: Book, request: AdmissionRequest) -> Shortage | None:
    for component in request.application.components:
        for pin in component.pins:
            if pin is not None and pin in book.failed:
                where = f"component {component.name!r} is pinned to machine {pin!r}, which has failed"
                return Shortage(f"{where}; restore it or pin the component to another", (Need(pin, CPU),))
        able = [machine.name for machine in book.cluster.machines if component.on in machine.labels]
        if component.on is not None and all(name in book.failed for name in able):
            where = f"component {component.name!r} needs a machine with the label {component.on!r}, and all have failed"
            return Shortage(f"{where}; restore one", tuple(Need(name, CPU) for name in able))
    if all(machine.name in book.failed for machine in book.cluster.machines):
        return Shortage("every machine has failed")
    return None


def _guaranteed(book: Book, request: AdmissionRequest, wanted: float, room: FreeCapacity) -> PathSelection:
    fails, asked = book.failure_probabilities, request.application.availability or 0.0
    tight = wide = room
    paths: list[FoundPath] = []
    rates: list[float] = []
    found_to_be, shortage = NO_AVAILABILITY, None
    for _ in range(request.paths):
        found = next_path(request, tight, book.cluster)
        if isinstance(found, Shortage) and sum(rates) >= wanted * (1 - REACHED):
            found = _avoiding_path(book, request, wide, paths, rates) or found
        if isinstance(found, Shortage):
            shortage = found
            break
        paths.append(found)
        rates.append(min(found.rate_tps, wanted))
        found_to_be = _available(request, paths, fails, rates)
        if _holds(rates, wanted, found_to_be.low, asked):
            return _kept(request, paths, _cut_down(paths, rates, wanted, asked, fails), fails)
        tight = tight.less(found.load, found.rate_tps, found.memory_mb)
        wide = wide.less(found.load, rates[-1], found.memory_mb)
    return PathSelection(tuple(paths), tuple(rates), found_to_be.low, False, shortage, _at_most(found_to_be))


def _kept(
    request: AdmissionRequest, paths: list[FoundPath], rates: list[float], fails: Mapping[str, float]
) -> PathSelection:
    """Return the paths to be booked: those with a rate above 0."""
    used = [number for number, rate in enumerate(rates) if rate > 0]
    there = _available(request, paths, fails, rates)
    kept = (tuple(paths[number] for number in used), tuple(rates[number] for number in used))
    return PathSelection(*kept, there.low, True, at_most=_at_most(there))


def _available(
    request: AdmissionRequest,
    paths: Sequence[FoundPath],
    fails: Mapping[str, float],
    rates: Sequence[float] | None = None,
) -> Estimate:
    """Return the availability of the requested rate; without `rates`, that of any path."""
    wanted = request.application.guaranteed_tps or 0.0
    return exact_or_estimated([path.load for path in paths], rates, wanted, fails, request.seed)


def _at_most(availability: Estimate) -> float | None:
    return None if availability.low == availability.high else availability.high


def _holds(rates: list[float], wanted: float, achieved: float, asked: float) -> bool:
    """Return whether a guarantee holds; without a requested availability, while everything works."""
    return sum(rates) >= wanted * (1 - REACHED) and achieved >= asked - ROUNDING


def _cut_down(
    paths: list[FoundPath], rates: list[float], wanted: float, asked: float, fails: Mapping[str, float]
) -> list[float]:
    """Return the minimum rates that keep a guarantee, reduced from the last path to the first."""
    cut = list(rates)
    if len(paths) > MAX_PATHS:
        return cut
    failed = failed_sets([path.load for path in paths], fails)
    for number in reversed(range(len(cut))):
        others = cut[:number] + cut[number + 1 :]
        sums = {sum(some) for some in chain.from_iterable(combinations(others, k) for k in range(len(others) + 1))}
        steps = sorted({0.0, cut[number]} | {wanted - some for some in sums if 0 < wanted - some < cut[number]})
        low, high = 0, len(steps) - 1  # the availability does not decrease with the rate and changes only at the steps
        while low < high:
            middle = (low + high) // 2
            trial = [*cut[:number], steps[middle], *cut[number + 1 :]]
            if _holds(trial, wanted, carried(failed, trial, wanted), asked):
                high = middle
            else:
                low = middle + 1
        cut[number] = steps[high]
    return cut


def _best_effort(book: Book, request: AdmissionRequest, there_is: FreeCapacity) -> PathSelection:
    asked, fails = request.application.availability or 0.0, book.failure_probabilities
    expected = there_is.times(_predicted_shares(book, request))  # (6)
    room = expected
    paths: list[FoundPath] = []
    found_to_be, shortage = NO_AVAILABILITY, None
    while len(paths) < request.paths:
        found = next_path(request, room, book.cluster)
        if isinstance(found, Shortage) and paths:
            found = _avoiding_path(book, request, _divided(expected, paths), paths) or found
        if isinstance(found, Shortage):
            shortage = found
            break
        paths.append(found)
        found_to_be = _available(request, paths, fails)
        if found_to_be.low >= asked - ROUNDING:
            break
        room = room.less(found.load, found.rate_tps, found.memory_mb)
    rates = tuple(path.rate_tps for path in paths)
    met = bool(paths) and found_to_be.low >= asked - ROUNDING
    return PathSelection(tuple(paths), rates, found_to_be.low, met, shortage, _at_most(found_to_be))


def _divided(expected: FreeCapacity, paths: list[FoundPath]) -> FreeCapacity:
    """Return what one more path can expect if elements are divided evenly over the paths that use them."""
    users = [element for path in paths for element, kinds in path.load.items() if kinds]
    room = expected.times({element: 1.0 / (1 + users.count(element)) for element in users})
    for path in paths:
        room = room.less({}, 0.0, path.memory_mb)
    return room


def _avoiding_path(
    book: Book, request: AdmissionRequest, room: FreeCapacity, paths: list[FoundPath], rates: list[float] | None = None
) -> FoundPath | None:
    """Return a path that avoids an element of the earlier ones; None if none of the few tried can be avoided."""
    needed = required_machines(request.application, room.as_cluster())
    ends = [element for element in rank_elements(book, request, paths, rates) if element not in needed]
    for element in ends[:MAX_AVOIDED]:
        found = next_path(request, room.without(element), book.cluster)
        if not isinstance(found, Shortage) and not any(set(found.load) == set(path.load) for path in paths):
            return found
    return None


def rank_elements(
    book: Book, request: AdmissionRequest, paths: Sequence[FoundPath], rates: Sequence[float] | None = None
) -> list[str]:
    """Return the elements of paths that may fail, first the one whose failures reduce the availability most.

    With `rates`, the availability of the requested rate; else that of any path.
    """
    fails = dict(book.failure_probabilities)

    def without_failures_of(name: str) -> float:
        return _available(request, paths, fails | {name: 0.0}, rates).value

    names = dict.fromkeys(name for path in paths for name in path.load if fails[name] > 0)
    return sorted(names, key=without_failures_of, reverse=True)


def _predicted_shares(book: Book, request: AdmissionRequest) -> dict[str, float]:
    """Return the share of each element that the application can expect among best-effort ones."""
    others: dict[str, float] = {}
    for booking in book.bookings:
        if not booking.guaranteed:
            for element in {element for path in booking.paths for element, kinds in path.load.items() if kinds}:
                others[element] = others.get(element, 0.0) + booking.priority
    shares = predicted_capacity(np.ones(len(others)), request.priority, np.array(list(others.values())))
    return dict(zip(others, shares.tolist(), strict=True))
