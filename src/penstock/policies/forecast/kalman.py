"""Kalman filter: how far a new count moves the forecast follows from how noisy the counts are, POTUS's Kalman.

A count is a level and noise. The level takes a random step every slot (the local level model) and, with a trend, moves
by a slope that takes random steps of its own (the local linear trend; Harvey 1989). The paper says only "Kalman
filter".

The forecast depends only on the variances of the steps relative to that of the noise. They are estimated by maximum
likelihood from the counts so far, again whenever their number has doubled. The filter starts with a diffuse prior: with
the first count as its level, the first difference as its slope.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
from scipy.optimize import brute, minimize

from penstock.model.entity import NonNegative
from penstock.model.errors import InvalidInput
from penstock.model.kernel import kernel
from penstock.model.taskgraph import Floats
from penstock.policies.forecast.api import Counts, ahead

FIRST = 32  # number of slots before variances are first estimated
UNKNOWN = (0.1, 0.001)  # variances of level and slope until then
SMALLEST, LARGEST = -8.0, 4.0  # range of a variance, as logarithms to base ten


class Steps(NamedTuple):
    """How the level and its slope move: variances of their steps relative to that of the noise."""

    level: float
    slope: float


@dataclass(frozen=True, slots=True)
class Kalman:
    """Expect the level estimated by a Kalman filter, extrapolated with its slope if there is a trend.

    trend: the level has a slope.
    level: variance of the level's step per slot relative to that of the noise; None: estimated from the past.
    slope: the same for the slope's step; only with a trend.
    """

    trend: bool = False
    level: NonNegative | None = None
    slope: NonNegative | None = None

    honest: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.slope is not None and not self.trend:
            raise InvalidInput("slope", f"expected none without a trend, got {self.slope}; add trend=true")

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return the extrapolated levels; `rng` is not used."""
        begun = 2 if self.trend else 1
        levels, slopes = np.zeros(len(counts)), np.zeros(len(counts))
        levels[:begun] = counts[:begun]
        if self.trend:
            slopes[1:2] = np.diff(counts[:2])
        if len(counts) > begun:
            self._follow(counts.astype(np.float64), begun, levels, slopes)
        return ahead(levels + lead * slopes, lead)

    def _follow(self, counts: Floats, begun: int, levels: Floats, slopes: Floats) -> None:
        """Filter interval by interval, each with the variances most likely given its past."""
        steps = self._steps(*UNKNOWN)
        state = opinion(counts, steps, self.trend)
        for begin, end in pairwise(_doubling(begun, len(counts))):
            if begin > begun:
                steps = self._estimate(counts[:begin])
            follow(counts[begin:end], steps, state, levels[begin:end], slopes[begin:end])

    def _steps(self, level: float, slope: float) -> Steps:
        """Return the variances: parameters, or else estimates."""
        given = slope if self.slope is None else self.slope
        return Steps(level if self.level is None else self.level, given if self.trend else 0.0)

    def _estimate(self, seen: Floats) -> Steps:
        """Return the most likely variances given the counts: the best of a grid, refined."""
        free = [self.level is None, self.trend and self.slope is None]
        if not any(free):
            return self._steps(*UNKNOWN)

        def steps_at(logarithms: Floats) -> Steps:
            tried = np.zeros(2)
            tried[free] = logarithms
            return self._steps(*(10**tried).tolist())

        def judge(logarithms: Floats) -> float:
            return unlikeliness(seen, steps_at(logarithms), self.trend)

        near = np.atleast_1d(brute(judge, (slice(SMALLEST, LARGEST + 1.0),) * sum(free), finish=None))
        around = np.vstack([near, near + np.diag(np.where(near > 0.0, -0.5, 0.5))])
        best = minimize(
            judge,
            near,
            method="Nelder-Mead",
            bounds=[(SMALLEST, LARGEST)] * len(near),
            options={"initial_simplex": around, "xatol": 0.01, "fatol": 0.01},
        )
        return steps_at(best.x)


def _doubling(begun: int, slots: int) -> list[int]:
    """Return the starts of intervals, each but the first after as many slots as it has, and the end of the last."""
    begins = [begun]
    estimate_at = FIRST
    while estimate_at < slots:
        begins.append(estimate_at)
        estimate_at *= 2
    return [*begins, slots]


@kernel
def opinion(counts: Floats, steps: Steps, trend: bool) -> Floats:
    """Return what one count, or two if there is a trend, imply for the level and its slope.

    [5] level, slope, variance of the level, covariance, variance of the slope, in units of the noise's variance.
    """
    if trend:
        return np.array([counts[1], counts[1] - counts[0], 1.0, 1.0, 2.0 + steps.level + steps.slope])
    return np.array([counts[0], 0.0, 1.0, 0.0, 0.0])


@kernel
def follow(counts: Floats, steps: Steps, state: Floats, levels: Floats, slopes: Floats) -> tuple[float, float]:
    """Filter counts, updating the state, and write level and slope after each.

    Returns the sums over slots of the squared error relative to its variance, and of the variance's logarithm.
    """
    squares, logarithms = 0.0, 0.0
    for slot in range(len(counts)):
        expected = state[0] + state[1]
        level_variance = state[2] + 2.0 * state[3] + state[4] + steps.level
        covariance = state[3] + state[4]
        slope_variance = state[4] + steps.slope
        error, variance = counts[slot] - expected, level_variance + 1.0
        state[0] = expected + error * level_variance / variance
        state[1] += error * covariance / variance
        state[2] = level_variance / variance
        state[3] = covariance / variance
        state[4] = slope_variance - covariance * covariance / variance
        levels[slot], slopes[slot] = state[0], state[1]
        squares += error * error / variance
        logarithms += np.log(variance)
    return squares, logarithms


@kernel
def unlikeliness(seen: Floats, steps: Steps, trend: bool) -> float:
    """Return twice the negative log-likelihood, up to a constant, with the best variance of the noise."""
    begun = 2 if trend else 1
    state = opinion(seen, steps, trend)
    left = np.empty(len(seen))
    squares, logarithms = follow(seen[begun:], steps, state, left, left)
    number = len(seen) - begun
    return float(number * np.log(max(squares / number, 1e-300)) + logarithms)
