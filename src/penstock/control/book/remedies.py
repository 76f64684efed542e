"""What would let a refused application in: the best rate or availability to be had, or more of one element.

Every remedy has been tried: the application was let into the same book with just that changed. How much more of an
element is enough is found by bisection over its capacity, for the few elements that stood in the way; where more of
one alone does not help, several are raised, each time the one that then stands in the way.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import chain, combinations
from typing import NamedTuple

from msgspec.structs import replace

from penstock.control.book.attempts import ROUNDING, Attempt, attempt
from penstock.control.book.paths import Request
from penstock.control.book.room import Room, main_kind, room_of
from penstock.estimate.availability import MOST_PATHS, carried, failed_sets
from penstock.model.book import Book
from penstock.model.remaining import capacities
from penstock.model.routes import BITS
from penstock.model.slotgraph import MEGABIT
from penstock.model.taskgraph import expand_edges, expand_tasks
from penstock.model.topology import Application

MOST_ALONE = 4  # elements of which more is tried alone
MOST_TOGETHER = 6
LEAST = 1e-6  # of the most that an element could need; less than that is not looked for
HALVINGS = 11  # between the least and the most, as ratios: to 0.7 % of the increase
PLACEMENTS = 300  # about; then what is known to be enough by then is the answer
DIGITS = 4


class RemedyKind(StrEnum):
    """What would have to be different."""

    RATE = "rate"
    AVAILABILITY = "availability"
    BANDWIDTH = "bandwidth"
    CPU = "cpu"


class Remedy(NamedTuple):
    """One change with which the application would have been let in."""

    kind: RemedyKind
    element: str  # machine or link; empty where the application itself would ask for less
    before: float  # tuples a second, a share of the time, Mbit/s, or core-seconds a second
    after: float
    text: str  # for a person
    also: tuple["Remedy", ...] = ()  # what else would have to be different at the same time


class Trials:
    """Attempts to let one application in where the cluster has more, or the application asks for less."""

    def __init__(self, book: Book, request: Request) -> None:
        self.book, self.request = book, request
        self.room = room_of(book)
        self._left = PLACEMENTS

    def attempt(self, room: Room, request: Request | None = None) -> Attempt | None:
        """Try with another room or another request; None when there has been enough trying."""
        if self._left <= 0:
            return None
        found = attempt(self.book, request or self.request, room)
        self._left -= len(found.paths) + 1
        return found

    def met(self, room: Room, request: Request | None = None) -> bool:
        """Return whether a trial let the application in."""
        found = self.attempt(room, request)
        return found is not None and found.met


def remedies(book: Book, request: Request, refused: Attempt) -> tuple[Remedy, ...]:
    """Return what would let a guaranteed application in, the smallest increase of an element first.

    For best effort there is only the availability to change: any capacity at all is enough for a rate.
    """
    found = [_best_availability(request, refused)]
    if request.application.guaranteed_tps is not None:
        trials = Trials(book, request)
        rate = _best_rate(trials, refused) if len(refused.paths) <= MOST_PATHS else None
        more = [_more_of(trials, element) for element in _in_the_way(request, refused)[:MOST_ALONE]]
        alone = sorted((remedy for remedy in more if remedy is not None), key=_increase)
        several = None if alone else _more_of_several(trials, refused)
        found = [*alone, several, rate, *found]
    return tuple(remedy for remedy in found if remedy is not None)


def _increase(remedy: Remedy) -> float:
    return remedy.after / remedy.before if remedy.before > 0 else math.inf


def _in_the_way(request: Request, refused: Attempt) -> list[str]:
    """Return the elements that limit the paths found to less than is wanted, or prevent another one."""
    wanted = request.application.guaranteed_tps or 0.0
    short = refused.shortage.elements if refused.shortage is not None else ()
    return list(dict.fromkeys([*(path.limit for path in refused.paths if path.rate_tps < wanted), *short]))


def _best_availability(request: Request, refused: Attempt) -> Remedy | None:
    asked = request.application.availability
    best = _floor(refused.achieved)
    if asked is None or best <= 0 or refused.achieved >= asked:
        return None
    return Remedy(RemedyKind.AVAILABILITY, "", asked, best, f"an availability of {best:g} can be had")


def _best_rate(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return the best rate at the availability asked for: of the sums of rates that can be had, the highest."""
    application, fails = trials.request.application, trials.book.failure_probabilities
    wanted, asked = application.guaranteed_tps or 0.0, application.availability or 0.0
    elements, rates = [path.load for path in refused.paths], refused.rates
    sums = {sum(some) for some in chain.from_iterable(combinations(rates, k) for k in range(1, len(rates) + 1))}
    lower, failed = sorted(some for some in sums if some < wanted), failed_sets(elements, fails)
    enough = bisect_left(lower, True, key=lambda some: carried(failed, rates, some) < asked - ROUNDING)
    rate = lower[enough - 1] if enough else 0.0  # the availability falls with the rate
    best = _largest(_floor(rate), lambda some: trials.met(trials.room, _with_rate(trials.request, some)))
    return Remedy(RemedyKind.RATE, "", wanted, best, f"a rate of {best:g}/s can be had") if best > 0 else None


def _largest(top: float, accepted: Callable[[float], bool]) -> float:
    """Return a value that is accepted: the top, or the highest that bisection finds below it; 0: none was found."""
    if top <= 0 or accepted(top):
        return top
    low, high = 0.0, top
    for _ in range(HALVINGS):
        middle = _floor((low + high) / 2)
        low, high = (middle, high) if accepted(middle) else (low, middle)
    return low


def _more_of(trials: Trials, element: str) -> Remedy | None:
    """Return the least capacity of one element with which the application would be let in; None: no amount helps."""
    plenty = trials.room.raised(element, _plenty(trials, element))
    return _least(trials, plenty, element)[0] if trials.met(plenty) else None


def _more_of_several(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return the least capacities of several elements that are enough together; None where they would be too many."""
    more: dict[str, float] = {}
    tried: Attempt | None = refused
    while tried is None or not tried.met:
        way = _in_the_way(trials.request, tried) if tried is not None else []
        element = next((name for name in way if name not in more), None)
        if element is None or len(more) == MOST_TOGETHER:
            return None
        more[element] = _plenty(trials, element)
        tried = trials.attempt(_all_raised(trials.room, more))
    # First all by the same share of what each could need, then each by itself: else the first would shift the whole
    # application to the elements of which there is still plenty.
    share = _smallest(lambda part: trials.met(_all_raised(trials.room, more, part)))
    enough = _all_raised(trials.room, more, share)
    found: list[Remedy] = []
    for element in more:
        remedy, enough = _least(trials, enough, element)
        found.append(remedy)
    return found[0]._replace(text=" and ".join(remedy.text for remedy in found), also=tuple(found[1:]))


def _all_raised(room: Room, more: Mapping[str, float], share: float = 1.0) -> Room:
    for element, amount in more.items():
        room = room.raised(element, share * amount)
    return room


def _least(trials: Trials, plenty: Room, element: str) -> tuple[Remedy, Room]:
    """Return the least of an element that is enough where all else is as in `plenty`, and the room with that."""
    now, most = _capacity(trials.room, element), _capacity(plenty, element)
    share = _smallest(lambda part: trials.met(plenty.raised(element, (part - 1.0) * (most - now))))
    enough = now + share * (most - now)
    machine = element in trials.room.cluster.machine_index
    unit = 1.0 if machine else MEGABIT
    rounded = _ceiling(enough / unit)
    if trials.met(plenty.raised(element, rounded * unit - most)):  # a little more is enough, too, but has to be tried
        enough = rounded * unit
    after, before = enough / unit, now / unit
    thing, measure = ("machine", "cores' worth of cpu") if machine else ("link", "Mbit/s")
    text = f"{thing} {element} would need {after:.{DIGITS}g} {measure} instead of {before:.{DIGITS}g}"
    kind = RemedyKind.CPU if machine else RemedyKind.BANDWIDTH
    return Remedy(kind, element, before, after, text), plenty.raised(element, enough - most)


def _smallest(enough: Callable[[float], bool]) -> float:
    """Return the smallest share that is enough, where all of it is."""
    low, high = LEAST, 1.0
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _capacity(room: Room, element: str) -> float:
    """Return an element's capacity, in bits or core-seconds a second."""
    return capacities(room.cluster)[element][main_kind(room.cluster, element)]


def _plenty(trials: Trials, element: str) -> float:
    """Return how much more of an element is enough for all paths, each at the rate asked for."""
    application, room = trials.request.application, trials.room
    tasks = expand_tasks(application)
    machine = element in room.cluster.machine_index
    load = float((tasks.cpu * tasks.gain).sum()) if machine else _bits(application)
    missing = min(room.left[element][main_kind(room.cluster, element)], 0.0)
    return load * (application.guaranteed_tps or 0.0) * trials.request.paths - missing


def _bits(application: Application) -> float:
    """Return the bits a source tuple of all streams, were they all to cross one link."""
    tasks = expand_tasks(application)
    edges = expand_edges(tasks)
    return float((tasks.gain[edges.source] * edges.share * edges.tuple_bytes).sum()) * BITS


def _with_rate(request: Request, rate_tps: float) -> Request:
    return request._replace(application=replace(request.application, guaranteed_tps=rate_tps))


def _floor(value: float) -> float:
    """Round down to a few digits, so that what is said to be possible is."""
    return _rounded(value, math.floor)


def _ceiling(value: float) -> float:
    return _rounded(value, math.ceil)


def _rounded(value: float, towards: Callable[[float], int]) -> float:
    if value <= 0:
        return 0.0
    scale = 10.0 ** (DIGITS - 1 - math.floor(math.log10(value)))
    return towards(value * scale * (1 + 1e-12 * (1 if towards is math.floor else -1))) / scale
