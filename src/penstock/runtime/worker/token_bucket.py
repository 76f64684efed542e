"""A token bucket: how many tuples a source task may give now, so that it keeps to a rate over time.

A token comes every `1 / rate` seconds; as many as come in `BURST_S`, and always one, wait for a source that has nothing
to give. It begins empty, here and wherever its task goes: however often a source is moved or begins anew, it never
gives more than the rate times the time since then. Times are of whatever clock the caller has.
"""

import math

BURST_S = 0.05
SLACK = 1e-6  # of a token that may be missing: sums of times are rounded; what is given too early is waited for later
LONGEST = 1e6  # tokens after which the count begins anew, so that it stays exact


class Bucket:
    """The tokens of one source task; `rate` tokens a second, 0: none, ever."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._most = max(1.0, rate * BURST_S)
        self._at = now
        self._level = 0.0  # tokens at that time; below 0 for those taken since

    def change(self, rate: float, now: float) -> None:
        """Have tokens come at another rate from now on; those that wait stay, as many as the new rate lets wait."""
        level = self._level_at(now)
        self.rate, self._most = rate, max(1.0, rate * BURST_S)
        self._at, self._level = now, min(level, self._most) if rate > 0.0 else 0.0

    def whole(self, now: float) -> int:
        """Return how many tuples may be given now."""
        return int(self._level_at(now) + self._slack(now)) if self.rate > 0.0 else 0

    @property
    def ready(self) -> float:
        """When the next token is there, or has been since."""
        return self._time(1) if self.rate > 0.0 else math.inf

    def take(self, count: int, now: float) -> list[float]:
        """Take tokens; return when each of them had come, none later than now.

        More may be taken than there are: a source that was asked for less than it can give at a time is in debt.
        """
        times = [min(self._time(number), now) for number in range(1, count + 1)]
        if self._level + (now - self._at) * self.rate > self._most or self._level < -LONGEST:
            self._level, self._at = self._level_at(now), now
        self._level -= count
        return times

    def _level_at(self, now: float) -> float:
        return min(self._most, self._level + max(0.0, now - self._at) * self.rate)

    def _time(self, number: int) -> float:
        return self._at + max(0.0, number - self._level) / self.rate

    def _slack(self, now: float) -> float:
        return SLACK + 4.0 * self.rate * math.ulp(now)
