"""A measurement: readings after a change, until it can be judged.

It is a state machine that takes readings and returns its stage. First latency has to settle: two consecutive readings
are close. Then it takes the readings of a measurement. It ends early if two consecutive readings exceed the bound, and
is void if the target fails or somebody else moves tasks.
"""

from collections.abc import Mapping
from enum import StrEnum
from statistics import fmean

from penstock.autopilot.control_target import Reading
from penstock.autopilot.guard import Guard, mean_latencies

NEAR = 0.2  # maximum relative difference of two close readings
BEYOND = 2  # consecutive readings


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
