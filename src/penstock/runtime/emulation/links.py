"""A virtual link: it transmits frames one after another, each followed by the link's latency."""

import math

MEGABIT = 1e6
MILLISECOND = 1e-3
BITS = 8.0  # a byte


class VirtualLink:
    """A link that serves frames first come, first served: in the order of calls, which must be that of `at`.

    bandwidth_mbps: None: unlimited.
    """

    def __init__(self, bandwidth_mbps: float | None, latency_ms: float) -> None:
        self._byte_s = 0.0 if bandwidth_mbps is None else BITS / (bandwidth_mbps * MEGABIT)
        self._latency = latency_ms * MILLISECOND
        self._free = -math.inf  # when the last frame has left
        self._taken = 0.0  # seconds of transmission of all frames so far

    def transmit(self, size_bytes: float, at: float) -> float:
        """Return when a frame that is ready at `at` arrives at the other end."""
        duration = size_bytes * self._byte_s
        self._taken += duration
        self._free = max(at, self._free) + duration
        return self._free + self._latency

    def leeway(self, now: float, seconds: float) -> tuple[float, float]:
        """Return how many more bytes it could send within some seconds, and when half of that will be free again."""
        if self._byte_s == 0.0:
            return math.inf, now
        return (seconds - max(0.0, self._free - now)) / self._byte_s, max(now, self._free - seconds / 2)

    def used(self, now: float) -> float:
        """Return for how many seconds up to `now` it has transmitted, if no frame waits for its time."""
        return max(0.0, self._taken - max(0.0, self._free - now))
