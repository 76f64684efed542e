"""Suggest changes that would admit a rejected application.

Every suggestion has been tried: the application was admitted to the same book with just that change. If neither the
requested rate nor the requested availability is achievable, both are lowered.
"""

from bisect import bisect_left
from itertools import chain, combinations

from msgspec.structs import replace

from penstock.admission.book.capacity_increases import (
    MAX_SINGLE,
    find_limits,
    find_sufficient,
    raise_capacities,
    suggest_any_increase,
    suggest_increases,
)
from penstock.admission.book.free_capacity import MEMORY
from penstock.admission.book.path_selection import PathSelection, select_paths
from penstock.admission.book.paths import Request
from penstock.admission.book.trials import DIGITS, HALVINGS, MIN_SHARE, Suggestion, SuggestionKind, Trials, rounded_down
from penstock.estimate.availability import MAX_PATHS, carried, failed_sets
from penstock.model.book import ROUNDING, Book, Booking

MAX_RELEASED = 4  # applications whose release is tried


def suggestions(book: Book, request: Request, refused: PathSelection) -> tuple[Suggestion, ...]:
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
    way = {need.element for need in needs}
    memory = any(need.kind == MEMORY for need in needs)

    def last(booking: Booking) -> tuple[bool, float]:
        return all(way.isdisjoint(path.load) for path in booking.paths), booking.wanted_tps or 0.0

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


def _best_availability(request: Request, refused: PathSelection) -> Suggestion | None:
    best = rounded_down(refused.achieved)
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
        little = trials.attempt(trials.room, _asking(trials.request, rounded_down(MIN_SHARE * wanted), asked))
        often = asked if little is None or little.met else rounded_down(little.achieved)
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


def _largest(trials: Trials, request: Request, top: float) -> float:
    """Return a rate that is admitted: `top`, or the highest that bisection finds below it; 0 if none is found."""

    def accepted(rate: float) -> bool:
        return trials.met(trials.room, _asking(request, rate, request.application.availability))

    top = rounded_down(top)
    if top <= 0 or accepted(top):
        return top
    low, high = 0.0, top
    for _ in range(HALVINGS):
        middle = rounded_down((low + high) / 2)
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
    often = rounded_down(best.achieved) if best is not None else 0.0
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
    then = suggestions(working, trials.request, again)
    if again.met or not then:
        return None
    text = f"when {' and '.join(names)} {'is' if len(names) == 1 else 'are'} restored, {then[0].text}"
    found = [Suggestion(SuggestionKind.RESTORE, name, 0.0, 1.0, f"restoring {name}") for name in names]
    return found[0]._replace(text=text, also=(*found[1:], then[0]._replace(also=()), *then[0].also))


def _asking(request: Request, rate_tps: float | None, availability: float | None) -> Request:
    changed = replace(request.application, guaranteed_tps=rate_tps, availability=availability)
    return request._replace(application=changed)
