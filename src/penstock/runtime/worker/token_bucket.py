"""A token bucket: it limits the tuples that a source task may emit, so that their long-term rate is bounded.

A token arrives every `1 / rate` seconds. Unused tokens are kept up to `BURST_S` worth of them, and always one. A bucket
starts empty, also when its task restarts or moves: however often that happens, a source never emits more than the rate
times the elapsed time. Times are on any clock that the caller chooses.
"""

import math

BURST_S = 0.05
SLACK = 1e-6  # part of a token that may be missing, as sums of times are rounded; the debt is paid by the next one
MAX_DEBT = 1e6  # tokens after which the reference time is reset, so that the arithmetic stays exact


class TokenBucket:
    """The tokens of one source task; `rate` is in tokens per second, 0 blocks the source."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._capacity = max(1.0, rate * BURST_S)
        self._at = now
        self._level = 0.0  # tokens at that time; negative for those taken since

    def set_rate(self, rate: float, now: float) -> None:
        """Change the rate; keep the available tokens, up to the new capacity."""
        level = self._level_at(now)
        self.rate, self._capacity = rate, max(1.0, rate * BURST_S)
        self._at, self._level = now, min(level, self._capacity) if rate > 0.0 else 0.0

    def available(self, now: float) -> int:
        """Return how many tuples may be emitted now."""
        return int(self._level_at(now) + self._slack(now)) if self.rate > 0.0 else 0

    @property
    def next_token(self) -> float:
        """The time of the next token; it may be in the past."""
        return self._time(1) if self.rate > 0.0 else math.inf

    def take(self, count: int, now: float) -> list[float]:
        """Take tokens; return the time at which each of them had arrived, none later than now.

        More tokens may be taken than are available: a source that returned more tuples than requested goes into debt.
        """
        times = [min(self._time(number), now) for number in range(1, count + 1)]
        if self._level + (now - self._at) * self.rate > self._capacity or self._level < -MAX_DEBT:
            self._level, self._at = self._level_at(now), now
        self._level -= count
        return times

    def _level_at(self, now: float) -> float:
        return min(self._capacity, self._level + max(0.0, now - self._at) * self.rate)

    def _time(self, number: int) -> float:
        return self._at + max(0.0, number - self._level) / self.rate

    def _slack(self, now: float) -> float:
        return SLACK + 4.0 * self.rate * math.ulp(now)
