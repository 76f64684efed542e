"""Let an application into a book, or say why not and what would help.

A book is a value: what was tried for an application that is refused has never been in it.
"""

from typing import NamedTuple

from msgspec.structs import replace

from penstock.admission.book.attempts import Attempt, attempt, by_gain
from penstock.admission.book.changes import RateChange, rate_changes
from penstock.admission.book.free_capacity import MEMORY
from penstock.admission.book.obstacles import called, explained, fully_booked, told
from penstock.admission.book.paths import POLICY, Request
from penstock.admission.book.remedies import remedies
from penstock.admission.book.sharing import settled
from penstock.admission.book.trials import Remedy
from penstock.estimate.availability import MOST_PATHS
from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING, Book, Booking
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application

MOST_ESTIMATED = 64
"""Paths that an application may have where its availability may be estimated; else those of an exact one."""


class Admitted(NamedTuple):
    """The book with an application in it, and whose rates that changed."""

    book: Book
    booking: Booking
    rates: tuple[RateChange, ...]  # of the others
    at_most: float | None = None  # the availability, where it was estimated: the booking has the least that it is


class Refused(NamedTuple):
    """Why an application was not let in."""

    application: str
    reason: str  # one line: what stands in the way, and the smallest change that would help
    binding: str  # the element that stands in the way; empty where no single one does
    remedies: tuple[Remedy, ...]


def admit(
    book: Book,
    application: Application,
    *,
    policy: str = POLICY,
    paths: int = 8,
    seed: int = 0,
    given: str = "",
    advise: bool = True,
    estimate: bool = False,
    surest: bool = True,
) -> Admitted | Refused:
    """Let an application in: with a guarantee if it has `guaranteed_tps`, else best effort by its priority.

    `paths` is how many it may have at most, each placed by `policy`; `given` is how a person named it. Without
    `advise` no remedies are looked for, which takes most of the time of a refusal. With `estimate` it may have more
    paths than an exact availability can be computed of; this is then estimated by draws from `seed`, and the lower
    bound of a 99 % interval has to meet what was asked. With `surest`, of all routes by which a path has its rate
    the surest are taken; without it, the policy's own. Raises `DuplicateName` for an application that is in the book,
    `InvalidInput` for one that cannot be anywhere.
    """
    book.refuse_booked(application.name)
    _refuse_nonsense(application, paths, estimate)
    request = Request(application, policy, paths, seed, application.priority, surest)
    return _decided(book, book, len(book.bookings), request, given, advise)


def replan(
    book: Book,
    name: str,
    *,
    policy: str | None = None,
    paths: int = 8,
    advise: bool = True,
    estimate: bool = False,
) -> Admitted | Refused:
    """Find an application's paths anew, on what works now and all others leave; a refusal leaves it as it is.

    Without a policy, by the one that it was let in by.
    """
    booking, position = book[name], book.index[name]
    others = tuple(other for other in book.bookings if other is not booking)
    _refuse_nonsense(booking.application, paths, estimate)
    request = Request(booking.application, policy or booking.policy, paths, booking.seed, booking.priority, True)
    return _decided(book, replace(book, bookings=others), position, request, booking.given, advise)


def _decided(
    before: Book, without: Book, position: int, request: Request, given: str, advise: bool
) -> Admitted | Refused:
    found = attempt(without, request)
    if not found.met:
        return _refusal(without, request, found, advise)
    application = request.application
    guaranteed = application.guaranteed_tps is not None
    booking = Booking(
        application=application,
        given=given,
        policy=request.policy,
        seed=request.seed,
        priority=request.priority,
        achieved_availability=min(found.achieved, 1.0),
        paths=tuple(
            path.booked(0.0, rate if guaranteed else 0.0) for path, rate in zip(found.paths, found.rates, strict=True)
        ),
    )
    bookings = (*without.bookings[:position], booking, *without.bookings[position:])
    after = settled(replace(without, version=before.version + 1, bookings=bookings))
    return Admitted(
        after,
        after[application.name],
        tuple(c for c in rate_changes(before, after) if c.application != application.name),
        found.at_most,
    )


def _refusal(book: Book, request: Request, found: Attempt, advise: bool) -> Refused:
    if found.shortage is not None:
        found = found._replace(shortage=explained(request, found.shortage))
    offers = remedies(book, request, found) if advise else ()
    why, binding = _why(book, request, found)
    would = f"; {offers[0].text}" if offers else ""
    return Refused(request.application.name, f"{why}{would}", binding, offers)


def _why(book: Book, request: Request, found: Attempt) -> tuple[str, str]:
    """Say what stands in the way, and which element."""
    application, shortage = request.application, found.shortage
    wanted, asked = application.guaranteed_tps, application.availability
    if not found.paths:
        assert shortage is not None, "no path without a reason"
        gone = f": {told(book, shortage.needs)}" if shortage.gone else ""
        return f"{shortage.reason}{gone}", shortage.needs[0].element if shortage.needs else ""
    number, verb = ("1 path", "carries") if len(found.paths) == 1 else (f"{len(found.paths)} paths", "carry")
    if len(found.paths) == request.paths:
        number += ", as many as are allowed,"
    if wanted is not None and sum(found.rates) < wanted * (1 - 1e-9):
        limit = shortage.needs[0] if shortage and shortage.needs else found.paths[-1].limit
        became = "it has failed" if limit.element in book.failed else fully_booked(book, limit)
        full = f" ({became})" if became else ""
        carried = f"{number} {verb} {sum(found.rates):.4g}/s of {wanted:g}/s"
        return f"{carried}, limited by {called(limit)}{full}", limit.element
    weakest = by_gain(book, request, found.paths, None if wanted is None else found.rates)
    binding = weakest[0] if weakest else ""
    what = "a path works" if wanted is None else f"{wanted:g}/s are carried"
    often = f"{found.achieved:.6g}"
    if found.at_most is not None:
        often = f"an estimated {often} to {found.at_most:.6g}"
    share = f"{often} of the time with {number.rstrip(',')}, not for {asked:g}"
    return f"{what} for {share}; {binding} fails too often", binding


def _refuse_nonsense(application: Application, paths: int, estimate: bool) -> None:
    if not 1 <= paths <= (MOST_ESTIMATED if estimate else MOST_PATHS):
        if MOST_PATHS < paths <= MOST_ESTIMATED:
            problem = f"expected at most {MOST_PATHS}, of which the availability is exact, got {paths}"
            raise InvalidInput("paths", f"{problem}; have it estimated (--estimate), or allow fewer")
        most = MOST_ESTIMATED if estimate else MOST_PATHS
        raise InvalidInput("paths", f"expected a number from 1 to {most}, got {paths}")
    for position, component in enumerate(application.components):
        for name in (CPU, BANDWIDTH, SENDING, RECEIVING, MEMORY):
            if name in component.resources:
                problem = "the book uses this name for something else; rename the resource"
                raise InvalidInput(f"components[{position}].resources.{name}", problem)
