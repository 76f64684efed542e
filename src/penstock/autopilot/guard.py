"""The guard: what the control loop may do, and when it has to roll back.

The latency bound is fixed before a change, from earlier readings, so an erratic placement cannot widen it. It exceeds
the previous latency by the measurement noise or the tolerance, whichever is larger, and never exceeds twice that
latency. A change is in force unjudged for at most one measuring interval, `measuring_s`: it is rolled back as soon as
two consecutive readings exceed the bound, or at the end if their mean does. Changes that are kept although they are
worse, within noise, do not accumulate: the bound of the first is an `Anchor` for those that follow, until latency is
back at its value before the first. The bound of a change that was rolled back is an anchor, too, because the queues
that it left would widen the next bound.
"""

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from penstock.autopilot.control_target import Reading
from penstock.model.entity import Count, Entity, NonNegative, Positive

MOST_NOISE = 1.0  # of the previous latency; larger variation says nothing about noise
MOST_DOUBLINGS = 5  # of the cool-down, after rollbacks
ATTEMPTS = 3  # measurements of a change, if the target fails during each


class Anchor(NamedTuple):
    """Latency bound for changes that follow a harmful one."""

    base_s: float  # latency before it
    bound_s: float  # its bound

    def tightened(self, base_s: float, bound_s: float) -> "Anchor":
        """Return the stricter of this anchor and another."""
        return Anchor(base_s, bound_s) if bound_s < self.bound_s else self


class Guard(Entity, frozen=True):
    """Limits of a control loop."""

    threshold: NonNegative = 0.05  # minimum relative predicted gain
    max_moves: Count = 10  # per change
    cool_down_s: NonNegative = 30.0  # between an outcome and the next decision; doubled by every rollback
    interval_s: Positive = 3.0  # of a reading
    readings: Count = 5  # per measurement
    settling: Count = 5  # maximum number of readings to wait until latency is stable
    tolerance: NonNegative = 0.05  # relative increase of latency that is allowed if noise is less
    noise: NonNegative = 2.0  # standard deviations of readings that count as noise
    move_s: NonNegative = 0.1  # assumed duration of a move until one was measured

    @property
    def measuring_s(self) -> float:
        """The measuring interval: the maximum time that a change is in force before it is judged."""
        return (self.settling + self.readings) * self.interval_s

    @property
    def deadline_s(self) -> float:
        """The maximum time that a change is in force unjudged if the target fails, including the wait for recovery."""
        return ATTEMPTS * self.measuring_s

    def bound_s(self, before: Sequence[Reading], anchor_s: float | None = None) -> float:
        """Return the latency above which a change is rolled back.

        `anchor_s` is the bound of an earlier change that was kept although it was worse, or rolled back. If latency is
        already above that because the load has risen, a change has to improve by more than noise. Otherwise changes
        without effect would be kept if they happened to be measured in a favourable moment, again and again.
        """
        means = mean_latencies(before)
        usual = fmean(means)
        spread = stdev(means) if len(means) > 1 else 0.0
        slack = max(self.tolerance * usual, min(self.noise * spread, MOST_NOISE * usual))
        return usual + slack if anchor_s is None else max(min(usual + slack, anchor_s), usual - slack)

    def cost_s(self, weights: Iterable[float], held_s: float) -> float:
        """Return the cost of moves, as latency of a source tuple until the next decision.

        A move delays the tuples of its task by up to `held_s`, by half of that on average. `weights` are the tuples of
        each moved task per source tuple; those of one tree wait together.
        """
        horizon = max(self.cool_down_s, self.measuring_s)
        return sum(min(weight, 1.0) for weight in weights) * held_s**2 / 2 / horizon

    def refusal(self, gain: float, moves: int, before_s: float, cost_s: float) -> str:
        """Return why a change is not made; empty if it may be made."""
        if not moves:
            return "all tasks are already in place"
        if gain < self.threshold:
            return f"predicted gain {gain:.1%} is below the threshold of {self.threshold:.1%}"
        if moves > self.max_moves:
            return f"{moves} moves exceed the maximum of {self.max_moves}"
        if gain * before_s <= cost_s:
            return f"moves cost {1e3 * cost_s:.3g} ms per tuple, more than the predicted {1e3 * gain * before_s:.3g} ms"
        return ""

    def pause_s(self, setbacks: int) -> float:
        """Return the cool-down after a number of consecutive rollbacks."""
        return float(self.cool_down_s * 2 ** min(setbacks, MOST_DOUBLINGS))


def mean_latencies(readings: Iterable[Reading]) -> list[float]:
    """Return the mean latencies of readings that have one."""
    return [reading.mean_s for reading in readings if reading.mean_s is not None]
