"""Admit an application to a book, or reject it with the reason and suggestions.

A book is a value: nothing that was tried for a rejected application is ever part of it.
"""

from typing import NamedTuple

from msgspec.structs import replace

from penstock.admission.book.changes import RateChange, compare_rates
from penstock.admission.book.free_capacity import MEMORY
from penstock.admission.book.path_selection import PathSelection, rank_elements, select_paths
from penstock.admission.book.paths import POLICY, AdmissionRequest
from penstock.admission.book.sharing import recompute_shares
from penstock.admission.book.shortages import describe_limit, describe_needs, describe_users, explain_shortage
from penstock.admission.book.suggestions import Suggestion, find_suggestions
from penstock.estimate.availability import MAX_PATHS
from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING, Book, Booking
from penstock.model.errors import InvalidInput
from penstock.model.topology import Application

MOST_ESTIMATED = 64
"""Maximum number of paths if the availability may be estimated; `MOST_PATHS` if it has to be exact."""


class Admitted(NamedTuple):
    """The book with the new application, and the other applications whose rates changed."""

    book: Book
    booking: Booking
    rates: tuple[RateChange, ...]  # of the others
    at_most: float | None = None  # upper bound of an estimated availability; the booking has the lower one


class Refused(NamedTuple):
    """Why an application was rejected."""

    application: str
    reason: str  # one line: what limits it, and the smallest change that would help
    binding: str  # the limiting element; empty if it is not a single one
    suggestions: tuple[Suggestion, ...]


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
    reliable_routes: bool = True,
) -> Admitted | Refused:
    """Admit an application: with a guarantee if it has `guaranteed_tps`, else best effort with its priority.

    paths: maximum number of paths, each placed by `policy`.
    given: the application as the user specified it, for messages.
    advise: search for suggestions on rejection; this takes most of the time of a rejection.
    estimate: allow more paths than an exact availability can be computed for; the availability is then estimated with
    random draws from `seed`, and the lower bound of its 99 % interval must reach the requested one.
    reliable_routes: of all routes that keep a path's rate, use the most reliable ones instead of the policy's own.

    Raises `DuplicateName` if the book already has the application, `InvalidInput` if it cannot be placed at all.
    """
    book.refuse_booked(application.name)
    _refuse_nonsense(application, paths, estimate)
    request = AdmissionRequest(application, policy, paths, seed, application.priority, reliable_routes)
    return _decided(book, book, len(book.bookings), request, given, advise)


def replan(
    book: Book, name: str, *, policy: str | None = None, paths: int = 8, estimate: bool = False
) -> Admitted | Refused:
    """Search for an application's paths again, on working elements that others leave free.

    A rejection leaves its booking unchanged. Default policy: the one that it was admitted with.
    """
    booking, position = book[name], book.index[name]
    others = tuple(other for other in book.bookings if other is not booking)
    _refuse_nonsense(booking.application, paths, estimate)
    request = AdmissionRequest(
        booking.application, policy or booking.policy, paths, booking.seed, booking.priority, True
    )
    return _decided(book, replace(book, bookings=others), position, request, booking.given, advise=True)


def _decided(
    before: Book, without: Book, position: int, request: AdmissionRequest, given: str, advise: bool
) -> Admitted | Refused:
    found = select_paths(without, request)
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
    after = recompute_shares(replace(without, version=before.version + 1, bookings=bookings))
    return Admitted(
        after,
        after[application.name],
        tuple(c for c in compare_rates(before, after) if c.application != application.name),
        found.at_most,
    )


def _refusal(book: Book, request: AdmissionRequest, found: PathSelection, advise: bool) -> Refused:
    if found.shortage is not None:
        found = found._replace(shortage=explain_shortage(request, found.shortage))
    offers = find_suggestions(book, request, found) if advise else ()
    why, binding = _why(book, request, found)
    would = f"; {offers[0].text}" if offers else ""
    return Refused(request.application.name, f"{why}{would}", binding, offers)


def _why(book: Book, request: AdmissionRequest, found: PathSelection) -> tuple[str, str]:
    """Describe what limits a rejected application, and return the limiting element."""
    application, shortage = request.application, found.shortage
    wanted, asked = application.guaranteed_tps, application.availability
    if not found.paths:
        assert shortage is not None, "no path without a reason"
        exhausted = f": {describe_needs(book, shortage.needs)}" if shortage.exhausted else ""
        return f"{shortage.reason}{exhausted}", shortage.needs[0].element if shortage.needs else ""
    number, verb = ("1 path", "carries") if len(found.paths) == 1 else (f"{len(found.paths)} paths", "carry")
    if len(found.paths) == request.paths:
        number += ", the maximum allowed,"
    if wanted is not None and sum(found.rates) < wanted * (1 - 1e-9):
        limit = shortage.needs[0] if shortage and shortage.needs else found.paths[-1].limit
        became = "it has failed" if limit.element in book.failed else describe_users(book, limit)
        full = f" ({became})" if became else ""
        carried = f"{number} {verb} {sum(found.rates):.4g}/s of {wanted:g}/s"
        return f"{carried}, limited by {describe_limit(limit)}{full}", limit.element
    weakest = rank_elements(book, request, found.paths, None if wanted is None else found.rates)
    binding = weakest[0] if weakest else ""
    what = "availability" if wanted is None else f"availability of {wanted:g}/s"
    often = f"{found.achieved:.6g}"
    if found.at_most is not None:
        often = f"an estimated {often} to {found.at_most:.6g}"
    share = f"{often} with {number.rstrip(',')}, required {asked:g}"
    return f"{what} is {share}; {binding} fails too often", binding


def _refuse_nonsense(application: Application, paths: int, estimate: bool) -> None:
    if not 1 <= paths <= (MOST_ESTIMATED if estimate else MAX_PATHS):
        if MAX_PATHS < paths <= MOST_ESTIMATED:
            problem = f"expected at most {MAX_PATHS} for an exact availability, got {paths}"
            raise InvalidInput("paths", f"{problem}; estimate it (--estimate) or allow fewer")
        most = MOST_ESTIMATED if estimate else MAX_PATHS
        raise InvalidInput("paths", f"expected a number from 1 to {most}, got {paths}")
    for position, component in enumerate(application.components):
        for name in (CPU, BANDWIDTH, SENDING, RECEIVING, MEMORY):
            if name in component.resources:
                problem = "this name is reserved by the book; rename the resource"
                raise InvalidInput(f"components[{position}].resources.{name}", problem)
