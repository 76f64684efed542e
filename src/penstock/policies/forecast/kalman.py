"""Kalman filter: how far a new count moves the forecast follows from how noisy the counts are, POTUS's Kalman.

A count is a level and noise. The level takes a random step every slot (the local level model) and, with a trend, moves
by a slope that takes random steps of its own (the local linear trend; Harvey 1989). The paper says no more than "Kalman
filter".

The forecast depends on the variances of the steps relative to that of the noise only. These are what makes the counts
seen so far most likely, and are estimated anew whenever what was seen has doubled. The filter begins without an opinion
(diffuse): with the first count as its level, the first difference as its slope.
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
from penstock.policies.forecast.api import Counts
from penstock.policies.forecast.whole import ahead

FIRST = 32  # slots seen when variances are first estimated
UNKNOWN = (0.1, 0.001)  # variances of level and slope until then
SMALLEST, LARGEST = -8.0, 4.0  # logarithms to base ten between which a variance is looked for


class Steps(NamedTuple):
    """How the level and its slope move: variances of their steps relative to that of the noise."""

    level: float
    slope: float


@dataclass(frozen=True, slots=True)
class Kalman:
    """Expect the level that a Kalman filter sees, moved on by its slope where there is a trend.

    trend: the level has a slope.
    level: the variance of the level's step a slot relative to that of the noise; None: estimated from the past.
    slope: the same of the slope's; only with a trend.
    """

    trend: bool = False
    level: NonNegative | None = None
    slope: NonNegative | None = None

    honest: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.slope is not None and not self.trend:
            raise InvalidInput("slope", f"expected none without a trend, got {self.slope}; add trend=true")

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return the levels, moved on; `rng` is not used."""
        begun = 2 if self.trend else 1
        levels, slopes = np.zeros(len(counts)), np.zeros(len(counts))
        levels[:begun] = counts[:begun]
        if self.trend:
            slopes[1:2] = np.diff(counts[:2])
        if len(counts) > begun:
            self._follow(counts.astype(np.float64), begun, levels, slopes)
        return ahead(levels + lead * slopes, lead)

    def _follow(self, counts: Floats, begun: int, levels: Floats, slopes: Floats) -> None:
        """Filter stretch by stretch, each with the variances that its past makes most likely."""
        steps = self._steps(*UNKNOWN)
        state = opinion(counts, steps, self.trend)
        for begin, end in pairwise(_doubling(begun, len(counts))):
            if begin > begun:
                steps = self._estimate(counts[:begin])
            follow(counts[begin:end], steps, state, levels[begin:end], slopes[begin:end])

    def _steps(self, level: float, slope: float) -> Steps:
        """Return the variances, those that were given instead of the estimates."""
        given = slope if self.slope is None else self.slope
        return Steps(level if self.level is None else self.level, given if self.trend else 0.0)

    def _estimate(self, seen: Floats) -> Steps:
        """Return the variances under which the counts seen are most likely: the best of a grid, improved."""
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
    """Return where stretches begin, each but the first after as many slots as it has, and where the last one ends."""
    begins = [begun]
    estimate_at = FIRST
    while estimate_at < slots:
        begins.append(estimate_at)
        estimate_at *= 2
    return [*begins, slots]


@kernel
def opinion(counts: Floats, steps: Steps, trend: bool) -> Floats:
    """Return what one count, or two where there is a trend, say of the level and its slope.

    [5] level, slope, variance of the level, covariance, variance of the slope, in units of the noise's variance.
    """
    if trend:
        return np.array([counts[1], counts[1] - counts[0], 1.0, 1.0, 2.0 + steps.level + steps.slope])
    return np.array([counts[0], 0.0, 1.0, 0.0, 0.0])


@kernel
def follow(counts: Floats, steps: Steps, state: Floats, levels: Floats, slopes: Floats) -> tuple[float, float]:
    """Filter counts, changing the state, and write down level and slope after each.

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
    """Return the negative logarithm of the likelihood, twice, but for a constant; the noise's variance is its best."""
    begun = 2 if trend else 1
    state = opinion(seen, steps, trend)
    left = np.empty(len(seen))
    squares, logarithms = follow(seen[begun:], steps, state, left, left)
    number = len(seen) - begun
    return float(number * np.log(max(squares / number, 1e-300)) + logarithms)
