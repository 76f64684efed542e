"""The offset of a worker's clock from the controller's, measured by pings over the network.

A ping is answered between its sending and its return, so the error of the midpoint is at most half the round trip; the
shortest round trips are the most accurate. Drift is the slope over those. An offset smaller than its possible error
counts as zero: processes of one host share a clock.
"""

from collections import deque
from typing import NamedTuple

KEPT = 64  # readings
QUICK = 2.0  # round trips of up to this multiple of the shortest are used


class ClockReading(NamedTuple):
    """One ping."""

    at: float  # the worker's clock
    offset: float  # s ahead of the controller's
    error: float  # s, maximum


class ClockEstimate(NamedTuple):
    """controller's time = t - (offset + drift · (t - at)), for a time t of the worker."""

    at: float
    offset: float
    drift: float
    error: float

    def controller_time(self, time: float) -> float:
        """Return the time of the controller's clock."""
        return time - (self.offset + self.drift * (time - self.at))


SAME = ClockEstimate(0.0, 0.0, 0.0, 0.0)


class WorkerClock:
    """The clock of one worker in one incarnation."""

    def __init__(self) -> None:
        self._readings: deque[ClockReading] = deque(maxlen=KEPT)

    def add(self, sent: float, received: float, at: float) -> None:
        """Add a reading: when the ping was sent and answered by the controller's clock, and the worker's clock."""
        self._readings.append(ClockReading(at, at - (sent + received) / 2, (received - sent) / 2))

    @property
    def estimate(self) -> ClockEstimate:
        """The current estimate."""
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
        if spread == 0 or abs(slope) * (quick[-1].at - quick[0].at) <= 2 * least:  # within the noise of the readings
            slope = 0.0
        return ClockEstimate(latest, mean + slope * (latest - mean_at), slope, worst)
