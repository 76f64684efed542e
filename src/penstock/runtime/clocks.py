"""How far a worker's clock is from the controller's, from questions and answers over the network.

An answer lies between the question and its return, so the middle is wrong by half the round trip at most; the quickest
round trips say most. Drift is the slope over those. An offset that is smaller than its possible error is taken as none:
processes of one host share a clock.
"""

from collections import deque
from typing import NamedTuple

KEPT = 64  # readings
QUICK = 2.0  # round trips up to so many times the quickest count


class Reading(NamedTuple):
    """One question and answer."""

    at: float  # the worker's clock
    offset: float  # s ahead of the controller's
    error: float  # s that it may be wrong, at most


class ClockEstimate(NamedTuple):
    """controller's time = t - (offset + drift · (t - at)), for a time t of the worker."""

    at: float
    offset: float
    drift: float
    error: float

    def controller_time(self, time: float) -> float:
        """Return what the controller's clock showed."""
        return time - (self.offset + self.drift * (time - self.at))


SAME = ClockEstimate(0.0, 0.0, 0.0, 0.0)


class WorkerClock:
    """The clock of one worker in one incarnation."""

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque(maxlen=KEPT)

    def add(self, asked: float, answered: float, at: float) -> None:
        """Take an answer: when it was asked and came by the controller's clock, and what the worker's clock said."""
        self._readings.append(Reading(at, at - (asked + answered) / 2, (answered - asked) / 2))

    @property
    def estimate(self) -> ClockEstimate:
        """The best guess so far."""
        if not self._readings:
            return SAME
        least = min(reading.error for reading in self._readings)
        quick = [reading for reading in self._readings if reading.error <= QUICK * least]
        latest, worst = quick[-1].at, max(reading.error for reading in quick)
        if all(abs(reading.offset) <= reading.error for reading in quick):
            return ClockEstimate(latest, 0.0, 0.0, worst)
        mean_at = sum(reading.at for reading in quick) / len(quick)
        mean = sum(reading.offset for reading in quick) / len(quick)
        spread = sum((reading.at - mean_at) ** 2 for reading in quick)
        slope = sum((r.at - mean_at) * (r.offset - mean) for r in quick) / spread if spread > 0 else 0.0
        if spread == 0 or abs(slope) * (quick[-1].at - quick[0].at) <= 2 * least:  # not more than the readings' noise
            slope = 0.0
        return ClockEstimate(latest, mean + slope * (latest - mean_at), slope, worst)
