"""Suggest changes that would admit a rejected application.

Every suggestion has been tried: the application was admitted to the same book with just that change. If neither the
requested rate nor the requested availability is achievable, both are lowered.

Bisection finds a sufficient capacity of each of the few limiting elements. If no single increase helps, several
elements are raised, each time the one that limits then. More is not always better: a path may move to a faster machine
that fails more often. Therefore every amount is rounded before it is tried, and printed exactly as it was tried.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from enum import StrEnum
from itertools import chain, combinations
from typing import NamedTuple

from msgspec.structs import replace

from penstock.admission.book.free_capacity import MEMORY, FreeCapacity, Need, find_free_capacity
from penstock.admission.book.path_selection import PathSelection, select_paths
from penstock.admission.book.paths import AdmissionRequest
from penstock.admission.book.shortages import UNITS, explain_shortage
from penstock.estimate.availability import MAX_PATHS, carried, failed_sets
from penstock.model.book import BANDWIDTH, CPU, RECEIVING, ROUNDING, SENDING, Book, Booking
from penstock.model.routes import BITS
from penstock.model.taskgraph import expand_edges, expand_tasks
from penstock.model.topology import Application

MAX_PLACEMENTS = 300  # budget of placements, approximately; then the best result so far is the answer
MIN_SHARE = 1e-6  # of the largest amount that could be needed; smaller amounts are not searched for
HALVINGS = 11  # between minimum and maximum, geometrically: to 0.7 % of the increase
DIGITS = 4
MAX_RELEASED = 4  # applications whose release is tried
MAX_SINGLE = 4  # elements that are tried alone
MAX_COMBINED = 6


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


_KINDS = {
    CPU: SuggestionKind.CPU,
    MEMORY: SuggestionKind.MEMORY,
    **dict.fromkeys((BANDWIDTH, SENDING, RECEIVING), SuggestionKind.BANDWIDTH),
}


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

    def __init__(self, book: Book, request: AdmissionRequest) -> None:
        self.book, self.request = book, request
        self.room = find_free_capacity(book)
        self._left = MAX_PLACEMENTS

    def attempt(
        self, room: FreeCapacity | None, request: AdmissionRequest | None = None, book: Book | None = None
    ) -> PathSelection | None:
        """Try with another capacity, request or book; None if the budget is used up."""
        if self._left <= 0:
            return None
        found = select_paths(book or self.book, request or self.request, room)
        self._left -= len(found.paths) + 1
        return found

    def met(self, room: FreeCapacity, request: AdmissionRequest | None = None) -> bool:
        """Return whether a trial admits the application."""
        found = self.attempt(room, request)
        return found is not None and found.met

    def met_in(self, book: Book) -> bool:
        """Return whether another book would have admitted the application."""
        found = self.attempt(None, book=book)
        return found is not None and found.met


def round_down(value: float) -> float:
    """Round down to the digits that are printed."""
    return _rounded(value, math.floor)


def round_up(value: float, digits: int = DIGITS) -> float:
    """Round up to the digits that are printed."""
    return _rounded(value, math.ceil, digits)


def _rounded(value: float, towards: Callable[[float], int], digits: int = DIGITS) -> float:
    if value <= 0:
        return 0.0
    digits -= 1 + math.floor(math.log10(value))
    step = 1.0 if towards is math.floor else -1.0
    whole = towards(value * 10.0**digits * (1 + step * 1e-12))
    return float(f"{whole}e{-digits}")  # the number nearest to the printed one


def find_suggestions(book: Book, request: AdmissionRequest, refused: PathSelection) -> tuple[Suggestion, ...]:
    """Return suggestions: restored elements or more paths, the smallest increases, then the others.

    A best-effort application without any path needs only some capacity, however little.
    """
    trials = Trials(book, request)
    found = [_restored(trials, refused), _more_paths(trials, refused)]  # first what needs few trials, which are limited
    if request.application.guaranteed_tps is not None:
        released = _released(trials, refused)
        rate = _best_rate(trials, refused) if 0 < len(refused.paths) <= MAX_PATHS else None
        found += [*suggest_increases(trials, refused), released, rate]
    elif not refused.paths:
        found += [*suggest_any_increase(trials, refused), _released(trials, refused)]
    found.append(_best_availability(request, refused))
    if not any(found):
        found.append(_more_for_less(trials, refused) or _restored_first(trials, refused))
    return tuple(remedy for remedy in found if remedy is not None)


def _restored(trials: Trials, refused: PathSelection) -> Suggestion | None:
    """Return failed elements whose recovery would suffice: those that limit it, a single other one, or all."""
    failed, short = trials.book.failed, refused.shortage.needs if refused.shortage is not None else ()
    if not refused.paths and refused.shortage is not None and short and not refused.shortage.exhausted:
        return None  # pinned to a failed machine: the reason already names it
    first = [need.element for need in short if need.element in failed]
    for names in [first, *([name] for name in failed[:MAX_SINGLE]), list(failed)]:
        if names and trials.met_in(replace(trials.book, failed=tuple(name for name in failed if name not in names))):
            text = f"restoring {' and '.join(names)} would admit it"
            found = [Suggestion(SuggestionKind.RESTORE, name, 0.0, 1.0, text) for name in names]
            return found[0]._replace(also=tuple(found[1:]))
    return None


def _released(trials: Trials, refused: PathSelection) -> Suggestion | None:
    """Return the application with the lowest rate whose release would suffice; None if no single one does.

    Applications that use the limiting elements come first. Best-effort ones only take memory from others.
    """
    book, needs = trials.book, find_limits(trials, refused)
    limiting = {need.element for need in needs}
    memory = any(need.kind == MEMORY for need in needs)

    def last(booking: Booking) -> tuple[bool, float]:
        return all(limiting.isdisjoint(path.load) for path in booking.paths), booking.wanted_tps or 0.0

    for booking in sorted((one for one in book.bookings if one.guaranteed or memory), key=last)[:MAX_RELEASED]:
        if trials.met_in(replace(book, bookings=tuple(other for other in book.bookings if other is not booking))):
            rate = booking.rate_tps if booking.wanted_tps is None else booking.wanted_tps
            what = "is guaranteed" if booking.guaranteed else "has"
            text = f"releasing {booking.name}, which {what} {rate:.{DIGITS}g}/s, would make room"
            return Suggestion(SuggestionKind.RELEASE, booking.name, rate, 0.0, text)
    return None


def _more_paths(trials: Trials, refused: PathSelection) -> Suggestion | None:
    """Return the number of paths that would suffice if the maximum allowed does not."""
    request = trials.request
    if len(refused.paths) < request.paths or request.paths >= MAX_PATHS:
        return None

    def enough(number: int) -> bool:
        return trials.met(trials.room, request._replace(paths=number))

    if not enough(MAX_PATHS):
        return None
    # Fewer paths may be booked in the end, but this many have to be searched for.
    fewer = range(request.paths + 1, MAX_PATHS)
    number = fewer.start + bisect_left(fewer, True, key=enough)
    text = f"{number} paths instead of {request.paths} would suffice"
    return Suggestion(SuggestionKind.PATHS, "", request.paths, number, text)


def _best_availability(request: AdmissionRequest, refused: PathSelection) -> Suggestion | None:
    best = round_down(refused.achieved)
    asked = request.application.availability
    if asked is None or best <= 0 or refused.achieved >= asked:
        return None
    return Suggestion(SuggestionKind.AVAILABILITY, "", asked, best, f"an availability of {best:g} is achievable")


def _best_rate(trials: Trials, refused: PathSelection) -> Suggestion | None:
    """Return the highest rate with the requested availability, or with the highest one that any rate has."""
    application = trials.request.application
    wanted, asked = application.guaranteed_tps or 0.0, application.availability
    best, often = _largest(trials, trials.request, _sum_at(trials, refused, asked)), asked
    if best <= 0 and asked is not None and refused.achieved <= 0:  # else the requested rate has some availability
        little = trials.attempt(trials.room, _asking(trials.request, round_down(MIN_SHARE * wanted), asked))
        often = asked if little is None or little.met else round_down(little.achieved)
        if often > 0:
            top = _sum_at(trials, refused, often) or sum(refused.rates)  # lower rates may have paths that higher lack
            best = _largest(trials, _asking(trials.request, wanted, often), top)
    if best <= 0:
        return None
    if asked is None or often is None or often >= asked:
        return Suggestion(SuggestionKind.RATE, "", wanted, best, f"a rate of {best:g}/s is achievable")
    text = f"no rate with availability {asked:g} was found, but {best:g}/s with availability {often:g} is achievable"
    less = Suggestion(SuggestionKind.AVAILABILITY, "", asked, often, f"an availability of {often:g}")
    return Suggestion(SuggestionKind.RATE, "", wanted, best, text, (less,))


def _sum_at(trials: Trials, refused: PathSelection, availability: float | None) -> float:
    """Return the highest sum of path rates below the requested rate with the given availability; 0 if there is none."""
    elements, rates = [path.load for path in refused.paths], refused.rates
    wanted, fails = trials.request.application.guaranteed_tps or 0.0, trials.book.failure_probabilities
    sums = {sum(some) for some in chain.from_iterable(combinations(rates, k) for k in range(1, len(rates) + 1))}
    lower, failed = sorted(some for some in sums if some < wanted), failed_sets(elements, fails)
    enough = bisect_left(lower, True, key=lambda some: carried(failed, rates, some) < (availability or 0.0) - ROUNDING)
    return lower[enough - 1] if enough else 0.0  # the availability decreases with the rate


def _largest(trials: Trials, request: AdmissionRequest, top: float) -> float:
    """Return a rate that is admitted: `top`, or the highest that bisection finds below it; 0 if none is found."""

    def accepted(rate: float) -> bool:
        return trials.met(trials.room, _asking(request, rate, request.application.availability))

    top = round_down(top)
    if top <= 0 or accepted(top):
        return top
    low, high = 0.0, top
    for _ in range(HALVINGS):
        middle = round_down((low + high) / 2)
        low, high = (middle, high) if accepted(middle) else (low, middle)
    return low


def _more_for_less(trials: Trials, refused: PathSelection) -> Suggestion | None:
    """Return capacity increases that would admit the application at a lower availability."""
    book, request, asked = trials.book, trials.request, trials.request.application.availability
    if asked is None or refused.paths:
        return None
    rate = request.application.guaranteed_tps
    raised = find_sufficient(Trials(book, _asking(request, rate, None)), refused)
    best = Trials(book, request).attempt(raise_capacities(trials.room, raised)) if raised else None
    often = round_down(best.achieved) if best is not None else 0.0
    if often <= 0:
        return None
    lower = Trials(book, _asking(request, rate, often))
    found = next(
        iter(suggest_any_increase(lower, refused) if rate is None else suggest_increases(lower, refused)), None
    )
    if found is None:
        return None
    less = Suggestion(
        SuggestionKind.AVAILABILITY, "", asked, often, f"with an availability of {often:g} instead of {asked:g}"
    )
    return found._replace(text=f"{found.text}, {less.text}", also=(*found.also, less))


def _restored_first(trials: Trials, refused: PathSelection) -> Suggestion | None:
    """Return what would admit the application once the failed elements that limit it work again."""
    book, shortage = trials.book, refused.shortage
    names = [need.element for need in shortage.needs if need.element in book.failed] if shortage is not None else []
    if shortage is None or not shortage.exhausted or not names:
        return None
    working = replace(book, failed=tuple(name for name in book.failed if name not in names))
    again = select_paths(working, trials.request)
    then = find_suggestions(working, trials.request, again)
    if again.met or not then:
        return None
    text = f"when {' and '.join(names)} {'is' if len(names) == 1 else 'are'} restored, {then[0].text}"
    found = [Suggestion(SuggestionKind.RESTORE, name, 0.0, 1.0, f"restoring {name}") for name in names]
    return found[0]._replace(text=text, also=(*found[1:], then[0]._replace(also=()), *then[0].also))


def _asking(request: AdmissionRequest, rate_tps: float | None, availability: float | None) -> AdmissionRequest:
    changed = replace(request.application, guaranteed_tps=rate_tps, availability=availability)
    return request._replace(application=changed)


def suggest_increases(trials: Trials, refused: PathSelection) -> list[Suggestion]:
    """Return increases that would admit an application: of single elements, the smallest first, or of several."""
    found = [_more_of(trials, need) for need in find_limits(trials, refused)[:MAX_SINGLE]]
    alone = sorted((remedy for remedy in found if remedy is not None), key=_increase)
    several = None if alone else _more_of_several(trials, refused)
    return alone if several is None else [several]


def suggest_any_increase(trials: Trials, refused: PathSelection) -> list[Suggestion]:
    """Return the elements of which any increase would admit a best-effort application.

    Memory is held at any rate, so its increase has to be sufficient.
    """
    raised = find_sufficient(trials, refused)
    if not raised:
        return []
    if any(need.kind == MEMORY for need in raised):
        return suggest_increases(trials, refused)
    found = []
    for need, amount in raised.items():
        kind, unit, thing, measure = _measure(need)
        what = "" if need.kind in (CPU, BANDWIDTH) else f" {measure}"
        found.append(_remedy(trials, need, kind, amount / unit, f"{what} of {thing} {need.element}"))
    text = f"any more{' and'.join(remedy.text for remedy in found)} would admit it"
    return [found[0]._replace(text=text, also=tuple(found[1:]))]


def find_limits(trials: Trials, refused: PathSelection) -> list[Need]:
    """Return what limits the paths found below the requested rate, or prevents another path.

    Failed elements are left out: more of their capacity does not help.
    """
    wanted = trials.request.application.guaranteed_tps or 0.0
    short = explain_shortage(trials.request, refused.shortage).needs if refused.shortage is not None else ()
    needs = dict.fromkeys([*(path.limit for path in refused.paths if path.rate_tps < wanted), *short])
    return [need for need in needs if need.element not in trials.book.failed]


def find_sufficient(trials: Trials, refused: PathSelection) -> dict[Need, float]:
    """Return totals of several elements that are more than sufficient together; empty if too many are needed."""
    raised: dict[Need, float] = {}
    tried: PathSelection | None = refused
    while tried is None or not tried.met:
        limits = find_limits(trials, tried) if tried is not None else []
        need = next((need for need in limits if need not in raised), None)
        if need is None or len(raised) == MAX_COMBINED:
            return {}
        raised[need] = _plenty(trials, need)
        tried = trials.attempt(raise_capacities(trials.room, raised))
    return raised


def raise_capacities(room: FreeCapacity, amounts: Mapping[Need, float], share: float = 1.0) -> FreeCapacity:
    """Return free capacity with new totals, or with a share of each increase, rounded as they are printed."""
    for need, amount in amounts.items():
        now, (_, unit, _, _) = room.whole(need), _measure(need)
        room = room.having(need, round_up((now + share * (amount - now)) / unit) * unit)
    return room


def _increase(remedy: Suggestion) -> float:
    return remedy.after / remedy.before if remedy.before > 0 else math.inf


def _more_of(trials: Trials, need: Need) -> Suggestion | None:
    """Return the minimum total of one element that admits the application; None if no amount helps."""
    plenty = raise_capacities(trials.room, {need: _plenty(trials, need)})
    return _least(trials, plenty, need)[0] if trials.met(plenty) else None


def _more_of_several(trials: Trials, refused: PathSelection) -> Suggestion | None:
    """Return minimum totals of several elements that suffice together; None if too many are needed."""
    raised = find_sufficient(trials, refused)
    if not raised:
        return None
    # First scale all increases together, then reduce each by itself: otherwise the first reduction would shift the
    # whole application to the elements that still have plenty.
    enough = raise_capacities(trials.room, raised)
    low, high = MIN_SHARE, 1.0
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        less = raise_capacities(trials.room, raised, middle)
        low, high, enough = (low, middle, less) if trials.met(less) else (middle, high, enough)
    found: list[Suggestion] = []
    for need in raised:
        remedy, enough = _least(trials, enough, need)
        found.append(remedy)
    return found[0]._replace(text=" and ".join(remedy.text for remedy in found), also=tuple(found[1:]))


def _least(trials: Trials, enough: FreeCapacity, need: Need) -> tuple[Suggestion, FreeCapacity]:
    """Return the minimum total of one element with all others as in `enough`, and the free capacity with that."""
    kind, unit, thing, measure = _measure(need)
    now, most = trials.room.whole(need) / unit, enough.whole(need) / unit
    after, too_little = round_up(most), now
    low, high = MIN_SHARE, 1.0
    for _ in range(HALVINGS):
        middle = math.sqrt(low * high)
        amount = round_up(now + middle * (most - now))
        if too_little < amount < after:
            less = enough.having(need, amount * unit)
            if trials.met(less):
                after, enough = amount, less
            else:
                too_little = amount
        low, high = (low, middle) if amount >= after else (middle, high)
    for digits in range(1, DIGITS):  # of amounts between these, the one with the fewest digits
        amount = round_up(too_little, digits)
        if too_little < amount < after and trials.met(less := enough.having(need, amount * unit)):
            after, enough = amount, less
            break
    text = f"{thing} {need.element} would need {after:.{DIGITS}g} {measure} instead of {_distinct(now, after)}"
    return _remedy(trials, need, kind, after, text), enough


def _remedy(trials: Trials, need: Need, kind: SuggestionKind, after: float, text: str) -> Suggestion:
    _, unit, _, _ = _measure(need)
    which = "" if need.kind in (CPU, BANDWIDTH, MEMORY) else need.kind
    return Suggestion(kind, need.element, trials.room.whole(need) / unit, after, text, resource=which)


def _distinct(now: float, after: float) -> str:
    """Format the current amount with as many digits as distinguish it from the required one."""
    texts = (f"{now:.{digits}g}" for digits in range(DIGITS, 17))
    return next((text for text in texts if float(text) != after), f"{now:.17g}")


def _measure(need: Need) -> tuple[SuggestionKind, float, str, str]:
    """Return the kind of an increase, its unit, and the names of its element type and unit."""
    unit, measure = UNITS.get(need.kind, (1.0, need.kind))
    kind = _KINDS.get(need.kind, SuggestionKind.RESOURCE)
    return kind, unit, "link" if need.kind == BANDWIDTH else "machine", measure


def _plenty(trials: Trials, need: Need) -> float:
    """Return a total that suffices for all paths, each at the requested rate; best effort: at 1/s."""
    application, room = trials.request.application, trials.room
    wanted = 1.0 if application.guaranteed_tps is None else application.guaranteed_tps
    load = _memory(application) if need.kind == MEMORY else _load(application, need.kind) * wanted
    taken = room.whole(need) - room.free(need)
    amount = max(room.whole(need), taken) + load * trials.request.paths
    _, unit, _, _ = _measure(need)
    return round_up(amount / unit) * unit


def _memory(application: Application) -> float:
    return float(expand_tasks(application).memory_mb.sum())


def _load(application: Application, kind: str) -> float:
    """Return the use per source tuple of one kind, with all tasks on one machine or all streams over one link."""
    tasks = expand_tasks(application)
    if kind == CPU:
        return float((tasks.cpu * tasks.gain).sum())
    if kind in tasks.resources:
        return float((tasks.needs[:, tasks.resources.index(kind)] * tasks.gain).sum())
    edges = expand_edges(tasks)
    return float((tasks.gain[edges.source] * edges.share * edges.tuple_bytes).sum()) * BITS
