"""What would let a refused application in: more of an element, another one gone, or the best to be had as it is.

Every remedy has been tried: the application was let into the same book with just that changed. Where neither the rate
nor the availability that was asked for can be had, the two are lowered together.
"""

from bisect import bisect_left
from itertools import chain, combinations

from msgspec.structs import replace

from penstock.admission.book.attempts import Attempt, attempt
from penstock.admission.book.free_capacity import MEMORY
from penstock.admission.book.increases import MOST_ALONE, all_raised, any_more, enough_of, in_the_way, more
from penstock.admission.book.paths import Request
from penstock.admission.book.trials import DIGITS, HALVINGS, LEAST, Remedy, RemedyKind, Trials, rounded_down
from penstock.estimate.availability import MOST_PATHS, carried, failed_sets
from penstock.model.book import ROUNDING, Book, Booking

MOST_RELEASED = 4  # applications without which it is tried


def remedies(book: Book, request: Request, refused: Attempt) -> tuple[Remedy, ...]:
    """Return what would let an application in: restored elements or more paths, the smallest increases, then the rest.

    For best effort, where there is no path, any capacity at all is enough for a rate.
    """
    trials = Trials(book, request)
    found = [_restored(trials, refused), _more_paths(trials, refused)]  # what takes few trials, as they are limited
    if request.application.guaranteed_tps is not None:
        released = _released(trials, refused)
        rate = _best_rate(trials, refused) if 0 < len(refused.paths) <= MOST_PATHS else None
        found += [*more(trials, refused), released, rate]
    elif not refused.paths:
        found += [*any_more(trials, refused), _released(trials, refused)]
    found.append(_best_availability(request, refused))
    if not any(found):
        found.append(_more_for_less(trials, refused) or _restored_first(trials, refused))
    return tuple(remedy for remedy in found if remedy is not None)


def _restored(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return what has failed and would be enough if it worked: what stands in the way, one of the others, or all."""
    failed, short = trials.book.failed, refused.shortage.needs if refused.shortage is not None else ()
    if not refused.paths and refused.shortage is not None and short and not refused.shortage.gone:
        return None  # a pin to what has failed: the reason says it
    first = [need.element for need in short if need.element in failed]
    for names in [first, *([name] for name in failed[:MOST_ALONE]), list(failed)]:
        if names and trials.met_in(replace(trials.book, failed=tuple(name for name in failed if name not in names))):
            text = f"restoring {' and '.join(names)} would let it in"
            found = [Remedy(RemedyKind.RESTORE, name, 0.0, 1.0, text) for name in names]
            return found[0]._replace(also=tuple(found[1:]))
    return None


def _released(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return the application of the lowest rate without which there would be room; None: no single one.

    First are those that use what stands in the way. Best-effort ones only take memory from others.
    """
    book, needs = trials.book, in_the_way(trials, refused)
    way = {need.element for need in needs}
    memory = any(need.kind == MEMORY for need in needs)

    def last(booking: Booking) -> tuple[bool, float]:
        return all(way.isdisjoint(path.load) for path in booking.paths), booking.wanted_tps or 0.0

    for booking in sorted((one for one in book.bookings if one.guaranteed or memory), key=last)[:MOST_RELEASED]:
        if trials.met_in(replace(book, bookings=tuple(other for other in book.bookings if other is not booking))):
            rate = booking.rate_tps if booking.wanted_tps is None else booking.wanted_tps
            what = "is guaranteed" if booking.guaranteed else "has"
            text = f"releasing {booking.name}, which {what} {rate:.{DIGITS}g}/s, would make room"
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


def _best_availability(request: Request, refused: Attempt) -> Remedy | None:
    best = rounded_down(refused.achieved)
    asked = request.application.availability
    if asked is None or best <= 0 or refused.achieved >= asked:
        return None
    return Remedy(RemedyKind.AVAILABILITY, "", asked, best, f"an availability of {best:g} can be had")


def _best_rate(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return the best rate at the availability asked for, or at the best one where no rate is there so often."""
    application = trials.request.application
    wanted, asked = application.guaranteed_tps or 0.0, application.availability
    best, often = _largest(trials, trials.request, _sum_at(trials, refused, asked)), asked
    if best <= 0 and asked is not None and refused.achieved <= 0:  # else the rate asked for is there for some time
        little = trials.attempt(trials.room, _asking(trials.request, rounded_down(LEAST * wanted), asked))
        often = asked if little is None or little.met else rounded_down(little.achieved)
        if often > 0:
            top = _sum_at(trials, refused, often) or sum(refused.rates)  # lower rates may have paths that higher do not
            best = _largest(trials, _asking(trials.request, wanted, often), top)
    if best <= 0:
        return None
    if asked is None or often is None or often >= asked:
        return Remedy(RemedyKind.RATE, "", wanted, best, f"a rate of {best:g}/s can be had")
    text = f"no rate was found that is there for {asked:g} of the time, but {best:g}/s for {often:g} of it can be had"
    less = Remedy(RemedyKind.AVAILABILITY, "", asked, often, f"an availability of {often:g}")
    return Remedy(RemedyKind.RATE, "", wanted, best, text, (less,))


def _sum_at(trials: Trials, refused: Attempt, availability: float | None) -> float:
    """Return the highest sum of rates of the paths found, below the rate asked for, that is there so often; 0: none."""
    elements, rates = [path.load for path in refused.paths], refused.rates
    wanted, fails = trials.request.application.guaranteed_tps or 0.0, trials.book.failure_probabilities
    sums = {sum(some) for some in chain.from_iterable(combinations(rates, k) for k in range(1, len(rates) + 1))}
    lower, failed = sorted(some for some in sums if some < wanted), failed_sets(elements, fails)
    enough = bisect_left(lower, True, key=lambda some: carried(failed, rates, some) < (availability or 0.0) - ROUNDING)
    return lower[enough - 1] if enough else 0.0  # the availability falls with the rate


def _largest(trials: Trials, request: Request, top: float) -> float:
    """Return a rate that is let in: the top, or the highest that bisection finds below it; 0: none was found."""

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


def _more_for_less(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return what more of elements would let the application in if it also asked for a lower availability."""
    book, request, asked = trials.book, trials.request, trials.request.application.availability
    if asked is None or refused.paths:
        return None
    rate = request.application.guaranteed_tps
    raised = enough_of(Trials(book, _asking(request, rate, None)), refused)
    best = Trials(book, request).attempt(all_raised(trials.room, raised)) if raised else None
    often = rounded_down(best.achieved) if best is not None else 0.0
    if often <= 0:
        return None
    lower = Trials(book, _asking(request, rate, often))
    found = next(iter(any_more(lower, refused) if rate is None else more(lower, refused)), None)
    if found is None:
        return None
    less = Remedy(RemedyKind.AVAILABILITY, "", asked, often, f"with an availability of {often:g} instead of {asked:g}")
    return found._replace(text=f"{found.text}, {less.text}", also=(*found.also, less))


def _restored_first(trials: Trials, refused: Attempt) -> Remedy | None:
    """Return what would let the application in when what stands in the way and has failed works again."""
    book, shortage = trials.book, refused.shortage
    names = [need.element for need in shortage.needs if need.element in book.failed] if shortage is not None else []
    if shortage is None or not shortage.gone or not names:
        return None
    working = replace(book, failed=tuple(name for name in book.failed if name not in names))
    again = attempt(working, trials.request)
    then = remedies(working, trials.request, again)
    if again.met or not then:
        return None
    text = f"when {' and '.join(names)} {'is' if len(names) == 1 else 'are'} restored, {then[0].text}"
    found = [Remedy(RemedyKind.RESTORE, name, 0.0, 1.0, f"restoring {name}") for name in names]
    return found[0]._replace(text=text, also=(*found[1:], then[0]._replace(also=()), *then[0].also))


def _asking(request: Request, rate_tps: float | None, availability: float | None) -> Request:
    changed = replace(request.application, guaranteed_tps=rate_tps, availability=availability)
    return request._replace(application=changed)
