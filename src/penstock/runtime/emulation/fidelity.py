"""Whether an emulation is true: events handled much later than they were due are the host's doing, not the cluster's.

Lateness is counted in a bounded histogram on a logarithmic scale, so that it costs the same however many events there
are; its percentiles are right to within five per cent.
"""

import math
import os
from bisect import bisect_left

TOLERATED = 2e-3  # s; timers and processes on a busy host wake up this late
TOLERATED_SHARE = 0.1  # of the mean service time
PERCENTILE = 99
ENOUGH = 100  # events, fewer of which have no 99th percentile
SATURATED = 0.9  # of a core: the process itself is the limit, and more cores would not help

_FINEST, _PER_DOUBLING, _DOUBLINGS = 1e-6, 8, 30  # from a microsecond to some twenty minutes
_EDGES = [_FINEST * math.exp2(step / _PER_DOUBLING) for step in range(_PER_DOUBLING * _DOUBLINGS + 1)]
_HALF_STEP = math.exp2(-0.5 / _PER_DOUBLING)


class Truth:
    """How late the events of one emulated machine were, interval by interval, and what that means.

    host_cores: None for those of this host.
    mean_service: of the machine's tasks, in seconds; it may be set anew when tasks come and go.
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

    def late(self, seconds: float) -> None:
        """Count an event that was handled so long after it was due."""
        self._counts[bisect_left(_EDGES, seconds)] += 1
        if seconds > self._latest:
            self._latest = seconds

    def verdict(self, cpu_share: float = 0.0) -> str | None:
        """Close the interval; say why the emulation was not true in it, or None.

        cpu_share: of one core, that the machine's process used in the interval. One with too few events to judge
        goes on, and the next verdict is about both.
        """
        count = sum(self._counts)
        if count < ENOUGH:
            return None
        self.events, self.p99, self.worst = count, self._percentile(count), self._latest
        self._counts, self._latest = _empty(), 0.0
        if self.p99 <= max(TOLERATED, TOLERATED_SHARE * self.mean_service):
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
