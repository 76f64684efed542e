"""For how much of the time an application has what it was promised: exactly, or by draws where it has many paths."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from penstock.estimate.availability import MOST_PATHS, Estimate, any_works, carries, estimate_carries
from penstock.model.book import Booking

DRAWS = 20_000  # of an estimate


def available(
    paths: Sequence[Collection[str]],
    rates: Sequence[float] | None,
    wanted: float,
    fails: Mapping[str, float],
    seed: int,
) -> Estimate:
    """Return for how much of the time paths carry a rate, without `rates` for how much any of them works."""
    if len(paths) <= MOST_PATHS:
        exact = any_works(paths, fails) if rates is None else carries(paths, rates, wanted, fails)
        return Estimate(exact, exact, exact)
    own, enough = ([1.0] * len(paths), 1.0) if rates is None else (rates, wanted)
    return estimate_carries(paths, own, enough, fails, DRAWS, np.random.default_rng(seed))


def in_force(booking: Booking, fails: Mapping[str, float]) -> float:
    """Return the availability that a booking has by what can be kept for its paths now.

    Of a guaranteed application that of its rate; else that of any path that can have a rate. Where it is estimated, the
    least that it is.
    """
    if booking.wanted_tps is None:
        usable = [path.elements for path in booking.paths if path.kept_share > 0]
        found = available(usable, None, 0.0, fails, booking.seed)
    else:
        rates = [path.reserved_tps * path.kept_share for path in booking.paths]
        found = available([path.elements for path in booking.paths], rates, booking.wanted_tps, fails, booking.seed)
    return min(found.low, 1.0)
