"""Availability of an application's promise: exact, or estimated with random draws if it has many paths."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from penstock.estimate.availability import MAX_PATHS, Estimate, any_works, carries, estimate_carries
from penstock.model.book import Booking

DRAWS = 20_000  # random draws per estimate


def compute_availability(
    paths: Sequence[Collection[str]],
    rates: Sequence[float] | None,
    wanted: float,
    fails: Mapping[str, float],
    seed: int,
) -> Estimate:
    """Return the probability that paths carry a rate; without `rates`, that any path works."""
    if len(paths) <= MAX_PATHS:
        exact = any_works(paths, fails) if rates is None else carries(paths, rates, wanted, fails)
        return Estimate(exact, exact, exact)
    own, enough = ([1.0] * len(paths), 1.0) if rates is None else (rates, wanted)
    return estimate_carries(paths, own, enough, fails, DRAWS, np.random.default_rng(seed))


def current_availability(booking: Booking, fails: Mapping[str, float]) -> float:
    """Return a booking's availability from the share of each path's rate that its capacity allows now.

    For a guaranteed application, that of its rate; else that of any path with a rate. If estimated, its lower bound.
    """
    if booking.wanted_tps is None:
        usable = [path.elements for path in booking.paths if path.kept_share > 0]
        found = compute_availability(usable, None, 0.0, fails, booking.seed)
    else:
        rates = [path.reserved_tps * path.kept_share for path in booking.paths]
        found = compute_availability(
            [path.elements for path in booking.paths], rates, booking.wanted_tps, fails, booking.seed
        )
    return min(found.low, 1.0)
