"""The guard: what the control loop may do, and when it has to roll back.

The latency bound is fixed before a change, from earlier readings, so an erratic placement cannot widen it. It exceeds
the previous latency by the measurement noise or the tolerance, whichever is larger, and never exceeds twice that
latency. A change is in force unjudged for at most one measuring interval, `measuring_s`: it is rolled back as soon as
two consecutive readings exceed the bound, or at the end if their mean does. Changes that are kept although they are
worse, within noise, do not accumulate: the bound of the first is an `Anchor` for those that follow, until latency is
back at its value before the first. The bound of a change that was rolled back is an anchor, too, because the queues
that it left would widen the next bound.

A `Measurement` takes the readings after a change and returns its stage. First latency has to settle: two consecutive
readings are close. Then it takes the readings that count. It is void if the target fails or somebody else moves tasks.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import fmean, stdev
from typing import NamedTuple

from penstock.autopilot.control_target import Reading
from penstock.model.entity import Count, Entity, NonNegative, Positive

MOST_NOISE = 1.0  # of the previous latency; larger variation says nothing about noise
MOST_DOUBLINGS = 5  # of the cool-down, after rollbacks
ATTEMPTS = 3  # measurements of a change, if the target fails during each
NEAR = 0.2  # maximum relative difference of two close readings
BEYOND = 2  # consecutive readings


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


class Stage(StrEnum):
    """Stage of a measurement."""

    SETTLING = "settling"
    MEASURING = "measuring"
    COMPLETE = "complete"
    EXCEEDED = "exceeded"  # two consecutive readings beyond the bound
    VOID = "void"  # the target failed or recovered
    INTERFERED = "interfered"  # somebody else has moved tasks


class Measurement:
    """The readings after one change."""

    def __init__(self, guard: Guard, bound_s: float, epoch: int, placement: Mapping[str, str]) -> None:
        self.stage = Stage.SETTLING
        self.readings: list[Reading] = []  # those that count
        self._guard = guard
        self._bound_s = bound_s
        self._epoch = epoch
        self._placement = placement
        self._passed: list[Reading] = []  # while it settled
        self._beyond = 0  # consecutive readings

    @property
    def mean_s(self) -> float | None:
        """The mean of the readings that count; of those while it settled if there are no others."""
        means = mean_latencies(self.readings) or mean_latencies(self._passed[-BEYOND:])
        return fmean(means) if means else None

    def take(self, reading: Reading, placement: Mapping[str, str]) -> Stage:
        """Take the next reading, with the placement at its end."""
        if reading.epoch != self._epoch or not reading.steady:
            self.stage = Stage.VOID
        elif placement != self._placement:
            self.stage = Stage.INTERFERED
        elif self._exceeds(reading):
            self.stage = Stage.EXCEEDED
        elif self.stage is Stage.SETTLING:
            self._settle(reading)
        else:
            self.readings.append(reading)
            if len(self.readings) == self._guard.readings:
                self.stage = Stage.COMPLETE
        return self.stage

    def verdict(self) -> tuple[str, str]:
        """Return the verdict on the change and its reason."""
        if self.stage is Stage.INTERFERED:
            return "void", "tasks were moved during the measurement, by somebody else or by a recovery"
        if self.stage is Stage.VOID:
            return "void", f"the run failed or recovered in every measurement, or for {self._guard.deadline_s:g} s"
        realised, bound = self.mean_s, self._bound_s
        if realised is None:
            return "rolled back", "no tuple completed any more"
        if self.stage is Stage.EXCEEDED or realised > bound:
            return "rolled back", f"latency {1e3 * realised:.3g} ms exceeds the bound of {1e3 * bound:.3g} ms"
        return "kept", ""

    def _exceeds(self, reading: Reading) -> bool:
        """Whether this and the previous readings exceed the bound; the first still contains earlier tuples."""
        if not self._passed:
            return False
        beyond = reading.mean_s is None or reading.mean_s > self._bound_s  # None: no tuple completes any more
        self._beyond = self._beyond + 1 if beyond else 0
        if self._beyond >= BEYOND:
            (self.readings if self.stage is Stage.MEASURING else self._passed).append(reading)
        return self._beyond >= BEYOND

    def _settle(self, reading: Reading) -> None:
        before = self._passed[-1].mean_s if len(self._passed) > 1 else None
        self._passed.append(reading)
        near = before is not None and reading.mean_s is not None and abs(reading.mean_s - before) <= NEAR * before
        if near or len(self._passed) >= self._guard.settling:
            self.stage = Stage.MEASURING
