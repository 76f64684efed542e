"""The fidelity of an emulation: events that are handled late show the host's limits, not the cluster's.

Lags are counted in a histogram of fixed size on a logarithmic scale; its percentiles are exact to within 5 %.
"""

import math
import os
from bisect import bisect_left

TOLERANCE_S = 2e-3  # timers and processes on a busy host wake up this late
TOLERANCE_SHARE = 0.1  # of the mean service time
PERCENTILE = 99
MIN_EVENTS = 100  # fewer have no 99th percentile
SATURATED = 0.9  # of a core: the process itself is the limit, and more cores would not help

_FINEST, _PER_DOUBLING, _DOUBLINGS = 1e-6, 8, 30  # from a microsecond to about twenty minutes
_EDGES = [_FINEST * math.exp2(step / _PER_DOUBLING) for step in range(_PER_DOUBLING * _DOUBLINGS + 1)]
_HALF_STEP = math.exp2(-0.5 / _PER_DOUBLING)


class Fidelity:
    """The lag of the events of one emulated machine, by interval, and its interpretation.

    host_cores: None: those of this host.
    mean_service: of the machine's tasks, in seconds; it may change when tasks come and go.
    `events`, `p99` and `worst` (s) are those of the last interval that `verdict` closed.
    """

    def __init__(self, machine: str, host_cores: int | None = None, mean_service: float = 0.0) -> None:
        self.machine = machine
        self.host_cores = host_cores or os.cpu_count() or 1
        self.mean_service = mean_service
        self.events = 0
        self.p99 = 0.0
        self.worst = 0.0
        self._counts = _empty()  # at position p: events later than edge p - 1, not later than edge p
        self._latest = 0.0

    def record_lag(self, seconds: float) -> None:
        """Record the lag of an event: the time from when it was due until it was handled."""
        self._counts[bisect_left(_EDGES, seconds)] += 1
        if seconds > self._latest:
            self._latest = seconds

    def verdict(self, cpu_share: float = 0.0) -> str | None:
        """Close the interval; return why the emulation was not accurate in it, or None.

        cpu_share: the share of one core that the machine's process used in the interval. An interval with too few
        events continues until the next call.
        """
        count = sum(self._counts)
        if count < MIN_EVENTS:
            return None
        self.events, self.p99, self.worst = count, self._percentile(count), self._latest
        self._counts, self._latest = _empty(), 0.0
        if self.p99 <= max(TOLERANCE_S, TOLERANCE_SHARE * self.mean_service):
            return None
        return f"emulation: events were {_time(self.p99)} late (p99) on machine {self.machine!r}; " + (
            f"its process is busy all the time ({cpu_share:.0%} of a core): a lower rate or longer service times"
            if cpu_share >= SATURATED
            else f"the host's {_cores(self.host_cores)} too few: fewer machines, a lower rate or longer service times"
        )

    def _percentile(self, count: int) -> float:
        below = 0
        for position, number in enumerate(self._counts[:-1]):
            below += number
            if 100 * below >= PERCENTILE * count:
                return min(_EDGES[position] * _HALF_STEP, self._latest)
        return self._latest


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _empty() -> list[int]:
    return [0] * (len(_EDGES) + 1)


def _cores(number: int) -> str:
    return "1 core is" if number == 1 else f"{number} cores are"
