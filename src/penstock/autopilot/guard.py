"""The guard: what the control loop may do, and when it has to take it back.

The bound is fixed before anything is changed, from readings of the time before, so that a placement cannot widen it by
being erratic. It lies above the latency before by noise or by the tolerance, whichever is more, and never above twice
that latency. A change is in force unjudged for at most one measuring interval, `measuring_s`: it is taken back as soon
as two readings in a row are beyond the bound, and at the end where their mean is. Changes that are kept though they are
worse, within noise, do not add up: the bound of the first of them is an `Anchor` of those that follow, until latency is
back where it was before that first one; and so is the bound of a change that was taken back, as queues that it left
would widen the next.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from penstock.autopilot.control_target import Reading
from penstock.model.entity import Count, Entity, NonNegative, Positive

MOST_NOISE = 1.0  # of the latency before: what varies more than that is no measure of noise
MOST_DOUBLINGS = 5  # of the time to rest, after changes that were for the worse
ATTEMPTS = 3  # measurements of a change, where the plant fails during each


class Anchor(NamedTuple):
    """What changes that follow one for the worse are held to."""

    base_s: float  # latency before it
    bound_s: float  # its bound

    def tightened(self, base_s: float, bound_s: float) -> "Anchor":
        """Return the stricter of this one and another."""
        return Anchor(base_s, bound_s) if bound_s < self.bound_s else self


class Guard(Entity, frozen=True):
    """Limits of a control loop."""

    threshold: NonNegative = 0.05  # predicted gain, relative, from which on it acts
    max_moves: Count = 10  # in one change
    cool_down_s: NonNegative = 30.0  # between an outcome and the next decision; doubles with every change taken back
    interval_s: Positive = 3.0  # of a reading
    readings: Count = 5  # that make a measurement
    settling: Count = 5  # readings, at most, that are let pass until it is stable
    tolerance: NonNegative = 0.05  # by which latency may be above that before, where noise is less
    noise: NonNegative = 2.0  # standard deviations of readings that count as noise
    move_s: NonNegative = 0.1  # that a move holds its task up, as long as none has been seen

    @property
    def measuring_s(self) -> float:
        """The measuring interval: the longest that a change is in force before it is judged."""
        return (self.settling + self.readings) * self.interval_s

    @property
    def deadline_s(self) -> float:
        """The longest that a change is in force unjudged where the plant fails meanwhile, waiting for it included."""
        return ATTEMPTS * self.measuring_s

    def bound_s(self, before: Sequence[Reading], anchor_s: float | None = None) -> float:
        """Return the latency above which a change is taken back.

        `anchor_s` is the bound of an earlier change that was kept though it was worse, or taken back. Where latency is
        above that already, as the load has risen, a change has to be better by more than noise: of changes that do
        nothing, those would be kept else that were measured in a lucky moment, again and again.
        """
        means = latencies(before)
        usual = fmean(means)
        spread = stdev(means) if len(means) > 1 else 0.0
        slack = max(self.tolerance * usual, min(self.noise * spread, MOST_NOISE * usual))
        return usual + slack if anchor_s is None else max(min(usual + slack, anchor_s), usual - slack)

    def cost_s(self, weights: Iterable[float], held_s: float) -> float:
        """Return what moves cost, as latency of a source tuple until the next decision.

        A move holds up for `held_s` what comes to its task, each for half of that on average. `weights` are the tuples
        of each task that is moved, for a source tuple; those of one tree wait together.
        """
        horizon = max(self.cool_down_s, self.measuring_s)
        return sum(min(weight, 1.0) for weight in weights) * held_s**2 / 2 / horizon

    def refusal(self, gain: float, moves: int, before_s: float, cost_s: float) -> str:
        """Say why a change is not made; nothing where it may be."""
        if not moves:
            return "all tasks are where they should be"
        if gain < self.threshold:
            return f"a gain of {gain:.1%} is predicted, below the threshold of {self.threshold:.1%}"
        if moves > self.max_moves:
            return f"{moves} moves are more than {self.max_moves}"
        if gain * before_s <= cost_s:
            return f"moves cost {1e3 * cost_s:.3g} ms a tuple, more than the predicted {1e3 * gain * before_s:.3g} ms"
        return ""

    def rest_s(self, setbacks: int) -> float:
        """Return how long to rest after so many changes in a row that were taken back."""
        return float(self.cool_down_s * 2 ** min(setbacks, MOST_DOUBLINGS))


def latencies(readings: Iterable[Reading]) -> list[float]:
    """Return the mean latencies of readings that have one."""
    return [reading.mean_s for reading in readings if reading.mean_s is not None]
