"""What would let a refused application in: more of an element, another one gone, or the best to be had as it is.

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
from penstock.control.book.obstacles import explained
from penstock.control.book.paths import Request
from penstock.control.book.room import Room, main_kind, room_of
from penstock.estimate.availability import MOST_PATHS, carried, failed_sets
from penstock.model.book import Book, Booking
from penstock.model.remaining import capacities
from penstock.model.routes import BITS
from penstock.model.slotgraph import MEGABIT
from penstock.model.taskgraph import expand_edges, expand_tasks
from penstock.model.topology import Application

MOST_ALONE = 4  # elements of which more is tried alone
MOST_TOGETHER = 6
MOST_RELEASED = 4  # applications without which it is tried
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
    RELEASE = "release"
    RESTORE = "restore"
    PATHS = "paths"


class Remedy(NamedTuple):
    """One change with which the application would have been let in."""

    kind: RemedyKind
    element: str  # machine, switch or link, or an application to release; empty where it would ask for less itself
    before: float  # tuples a second, a share of the time, Mbit/s, core-seconds a second, or a number
    after: float
    text: str  # for a person
    also: tuple["Remedy", ...] = ()  # what else would have to be different at the same time


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


def remedies(book: Book, request: Request, refused: Attempt) -> tuple[Remedy, ...]:
    """Return what would let an application in: restored elements or more paths, the smallest increases, then the rest.

    For best effort, where there is no path, any capacity at all is enough for a rate.
    """
    trials = Trials(book, request)
    found = [_restored(trials, refused), _more_paths(trials, refused)]  # what takes few trials, as they are limited
    if request.application.guaranteed_tps is not None:
        released = _released(trials, refused)
        rate = _best_rate(trials, refused) if len(refused.paths) <= MOST_PATHS else None
        more = [_more_of(trials, element) for element in _in_the_way(trials, refused)[:MOST_ALONE]]
        alone = sorted((remedy for remedy in more if remedy is not None), key=_increase)
        several = None if alone else _more_of_several(trials, refused)
        found += [*alone, several, released, rate]
    elif not refused.paths:
        found += [_any_more(trials, refused), _released(trials, refused)]
    return tuple(remedy for remedy in [*found, _best_availability(request, refused)] if remedy is not None)


def _restored(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return what has failed and would be enough if it worked: what stands in the way, one of the others, or all."""
    failed, short = trials.book.failed, refused.shortage.elements if refused.shortage is not None else ()
    if not refused.paths and refused.shortage is not None and short and not refused.shortage.gone:
        return None  # a pin to what has failed: the reason says it
    first = [name for name in short if name in failed]
    for names in [first, *([name] for name in failed[:MOST_ALONE]), list(failed)]:
        if names and trials.met_in(replace(trials.book, failed=tuple(name for name in failed if name not in names))):
            text = f"restoring {' and '.join(names)} would let it in"
            found = [Remedy(RemedyKind.RESTORE, name, 0.0, 1.0, text) for name in names]
            return found[0]._replace(also=tuple(found[1:]))
    return None


def _released(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return the guaranteed application of the lowest rate without which there would be room; None: no single one.

    First are those that use what stands in the way.
    """
    book, way = trials.book, set(_in_the_way(trials, refused))

    def last(booking: Booking) -> tuple[bool, float]:
        return all(way.isdisjoint(path.load) for path in booking.paths), booking.wanted_tps or 0.0

    for booking in sorted((one for one in book.bookings if one.guaranteed), key=last)[:MOST_RELEASED]:
        if trials.met_in(replace(book, bookings=tuple(other for other in book.bookings if other is not booking))):
            rate = booking.wanted_tps or 0.0
            text = f"releasing {booking.name}, which is guaranteed {rate:.{DIGITS}g}/s, would make room"
            return Remedy(RemedyKind.RELEASE, booking.name, rate, 0.0, text)
    return None


def _more_paths(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return how many paths would be enough, where as many as were allowed are not."""
    request = trials.request
    if len(refused.paths) < request.paths or request.paths >= MOST_PATHS:
        return None

    def enough(number: int) -> bool:
        return trials.met(trials.room, request._replace(paths=number))

    if not enough(MOST_PATHS):
        return None
    # Fewer may be kept in the end, but the others have to be looked for.
    fewer = range(request.paths + 1, MOST_PATHS)
    number = fewer.start + bisect_left(fewer, True, key=enough)
    return Remedy(RemedyKind.PATHS, "", request.paths, number, f"{number} paths instead of {request.paths} would do")


def _any_more(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return the elements of which any more than there is would let a best-effort application in."""
    more = _enough_of(trials, refused)
    if not more:
        return None
    found = []
    for element, amount in more.items():
        kind, unit, thing, _ = _measure(trials.room, element)
        now = _capacity(trials.room, element)
        found.append(Remedy(kind, element, now / unit, (now + amount) / unit, f"{thing} {element}"))
    text = f"any more of {' and of '.join(remedy.text for remedy in found)} would let it in"
    return found[0]._replace(text=text, also=tuple(found[1:]))


def _increase(remedy: Remedy) -> float:
    return remedy.after / remedy.before if remedy.before > 0 else math.inf


def _in_the_way(trials: Trials, refused: Attempt) -> list[str]:
    """Return the elements that limit the paths found to less than is wanted, or prevent another one.

    Not those that have failed: more of these is of no use.
    """
    wanted = trials.request.application.guaranteed_tps or 0.0
    short = explained(trials.request, refused.shortage).elements if refused.shortage is not None else ()
    names = dict.fromkeys([*(path.limit for path in refused.paths if path.rate_tps < wanted), *short])
    return [name for name in names if name not in trials.book.failed]


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
    more = _enough_of(trials, refused)
    if not more:
        return None
    # First all by the same share of what each could need, then each by itself: else the first would shift the whole
    # application to the elements of which there is still plenty.
    share = _smallest(lambda part: trials.met(_all_raised(trials.room, more, part)))
    enough = _all_raised(trials.room, more, share)
    found: list[Remedy] = []
    for element in more:
        remedy, enough = _least(trials, enough, element)
        found.append(remedy)
    return found[0]._replace(text=" and ".join(remedy.text for remedy in found), also=tuple(found[1:]))


def _enough_of(trials: Trials, refused: Attempt) -> dict[str, float]:
    """Return how much more of which elements is more than enough together; none where they would be too many."""
    more: dict[str, float] = {}
    tried: Attempt | None = refused
    while tried is None or not tried.met:
        way = _in_the_way(trials, tried) if tried is not None else []
        element = next((name for name in way if name not in more), None)
        if element is None or len(more) == MOST_TOGETHER:
            return {}
        more[element] = _plenty(trials, element)
        tried = trials.attempt(_all_raised(trials.room, more))
    return more


def _all_raised(room: Room, more: Mapping[str, float], share: float = 1.0) -> Room:
    for element, amount in more.items():
        room = room.raised(element, share * amount)
    return room


def _least(trials: Trials, plenty: Room, element: str) -> tuple[Remedy, Room]:
    """Return the least of an element that is enough where all else is as in `plenty`, and the room with that."""
    now, most = _capacity(trials.room, element), _capacity(plenty, element)
    share = _smallest(lambda part: trials.met(plenty.raised(element, (part - 1.0) * (most - now))))
    enough = now + share * (most - now)
    kind, unit, thing, measure = _measure(trials.room, element)
    rounded = _ceiling(enough / unit)
    if trials.met(plenty.raised(element, rounded * unit - most)):  # a little more is enough, too, but has to be tried
        enough = rounded * unit
    after, before = enough / unit, now / unit
    text = f"{thing} {element} would need {after:.{DIGITS}g} {measure} instead of {before:.{DIGITS}g}"
    return Remedy(kind, element, before, after, text), plenty.raised(element, enough - most)


def _smallest(enough: Callable[[float], bool]) -> float:
    """Return the smallest share that is enough, where all of it is."""
    low, high = LEAST, 1.0
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _measure(room: Room, element: str) -> tuple[RemedyKind, float, str, str]:
    """Return of which kind more of an element is, its unit in ours, what the element is called, and its unit's name."""
    if element in room.cluster.machine_index:
        return RemedyKind.CPU, 1.0, "machine", "cores' worth of cpu"
    return RemedyKind.BANDWIDTH, MEGABIT, "link", "Mbit/s"


def _capacity(room: Room, element: str) -> float:
    """Return an element's capacity, in bits or core-seconds a second."""
    return capacities(room.cluster)[element][main_kind(room.cluster, element)]


def _plenty(trials: Trials, element: str) -> float:
    """Return how much more of an element is enough for all paths, each at the rate asked for; best effort: at 1/s."""
    application, room = trials.request.application, trials.room
    tasks = expand_tasks(application)
    machine = element in room.cluster.machine_index
    load = float((tasks.cpu * tasks.gain).sum()) if machine else _bits(application)
    missing = min(room.left[element][main_kind(room.cluster, element)], 0.0)
    wanted = 1.0 if application.guaranteed_tps is None else application.guaranteed_tps
    return load * wanted * trials.request.paths - missing


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
