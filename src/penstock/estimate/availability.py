"""The fraction of time in which an application's paths carry a rate, with independent failures (SPARCLE, (7)).

A path works if all of its elements do, so paths that share elements do not fail independently. The probability of every
set of failed paths is computed exactly: elements used by the same paths are merged into one that works with the product
of their probabilities; then these merged elements are processed one after another, and each, if it fails, adds its
paths to the set. All terms are sums and products of probabilities, so there is no cancellation. This takes 2^paths
steps per merged element, which limits the number of paths; `estimate_carries` samples states instead and returns
bounds.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from penstock.model.errors import InvalidInput, UnknownName, choices
from penstock.model.taskgraph import Bools, Floats

MAX_PATHS = 16
REACHED = 1e-9  # relative; a sum of rates that falls short by less is sufficient
DRAWS = 20_000  # random draws per estimate of many paths


DOUBT = 0.01  # probability that an estimate is outside its bounds


class Estimate(NamedTuple):
    """The fraction of samples, and bounds that contain the probability in at least 99 of 100 estimates."""

    value: float
    low: float
    high: float


def any_works(paths: Sequence[Collection[str]], fails: Mapping[str, float]) -> float:
    """Return the probability that at least one path works: the availability of a best-effort application.

    `paths` has the elements of each path, `fails` the failure probability of each element.
    """
    return float(failed_sets(paths, fails)[:-1].sum()) if paths else 0.0


def carries(
    paths: Sequence[Collection[str]], rates: Sequence[float], wanted: float, fails: Mapping[str, float]
) -> float:
    """Return the probability that the rates of the working paths add up to at least `wanted` (7)."""
    return carried(failed_sets(paths, fails), _checked(paths, rates), wanted)


def carried(failed: Floats, rates: Sequence[float] | Floats, wanted: float) -> float:
    """Return the result of `carries` from that of `failed_sets`, which does not depend on rates."""
    works = np.arange(len(failed))[:, None] >> np.arange(len(rates)) & 1 == 0
    return float(failed[_enough(works @ np.asarray(rates, dtype=np.float64), wanted)].sum())


def estimate_carries(
    paths: Sequence[Collection[str]],
    rates: Sequence[float],
    wanted: float,
    fails: Mapping[str, float],
    draws: int,
    rng: np.random.Generator,
) -> Estimate:
    """Estimate the result of `carries` from random states of all elements, for any number of paths.

    The bounds are those of Clopper and Pearson, which are valid for any number of samples, even if all agree.
    """
    from scipy.special import betaincinv

    groups = _merged(paths, fails)
    uses = np.array([[mask >> path & 1 for path in range(len(paths))] for mask in groups]).reshape(-1, len(paths))
    down = rng.random((draws, len(groups))) >= np.array(list(groups.values()))
    reached = _enough((down.astype(np.float64) @ uses == 0) @ _checked(paths, rates), wanted)
    count = int(reached.sum())
    low = betaincinv(count, draws - count + 1, DOUBT / 2) if count else 0.0
    high = betaincinv(count + 1, draws - count, 1.0 - DOUBT / 2) if count < draws else 1.0
    return Estimate(count / draws, float(low), float(high))


def exact_or_estimated(
    paths: Sequence[Collection[str]],
    rates: Sequence[float] | None,
    wanted: float,
    fails: Mapping[str, float],
    seed: int,
) -> Estimate:
    """Return the probability that paths carry a rate, estimated if they are many; without `rates`, that any works."""
    if len(paths) <= MAX_PATHS:
        exact = any_works(paths, fails) if rates is None else carries(paths, rates, wanted, fails)
        return Estimate(exact, exact, exact)
    own, enough = ([1.0] * len(paths), 1.0) if rates is None else (rates, wanted)
    return estimate_carries(paths, own, enough, fails, DRAWS, np.random.default_rng(seed))


def failed_sets(paths: Sequence[Collection[str]], fails: Mapping[str, float]) -> Floats:
    """Return the probability that exactly a set of paths has failed, indexed by the set's bits: [2^paths]."""
    if len(paths) > MAX_PATHS:
        problem = f"expected at most {MAX_PATHS} for an exact answer, got {len(paths)}; use estimate_carries"
        raise InvalidInput("paths", problem)
    sets = np.arange(2 ** len(paths))
    probability = np.zeros(len(sets))
    probability[0] = 1.0
    for mask, works in _merged(paths, fails).items():
        fallen = np.bincount(sets | mask, weights=probability, minlength=len(sets))
        probability = works * probability + (1.0 - works) * fallen
    return probability


def _merged(paths: Sequence[Collection[str]], fails: Mapping[str, float]) -> dict[int, float]:
    """Return for each set of paths, by its bits, the probability that all elements used by exactly this set work."""
    users: dict[str, int] = {}
    for number, path in enumerate(paths):
        for element in path:
            users[element] = users.get(element, 0) | 1 << number
    works: dict[int, float] = {}
    for element, mask in users.items():
        if element not in fails:
            raise UnknownName(f"fails.{element}", f"unknown failure probability; there are {choices(fails)}")
        if not 0.0 <= fails[element] <= 1.0:
            raise InvalidInput(f"fails.{element}", f"expected a number from 0 to 1, got {fails[element]}")
        works[mask] = works.get(mask, 1.0) * (1.0 - fails[element])
    return works


def _enough(carried: Floats, wanted: float) -> Bools:
    return np.asarray(carried >= wanted * (1.0 - REACHED))


def _checked(paths: Sequence[Collection[str]], rates: Sequence[float]) -> Floats:
    if len(rates) != len(paths):
        raise InvalidInput("rates", f"expected one for each of the {len(paths)} paths, got {len(rates)}")
    return np.asarray(rates, dtype=np.float64)
