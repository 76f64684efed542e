"""A virtual processor: the cores of one emulated machine, shared evenly by its busy slots; and the work of tuples.

All jobs proceed at the same rate, so one counter is enough: the service that a job present throughout would have
attained. A job is complete when the counter has grown by its work. Completions come from a heap, exactly, without time
steps.
"""

import math
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Generic, TypeVar

import numpy as np

from penstock.model.taskgraph import Floats
from penstock.model.topology import Distribution, ServiceTime

Token = TypeVar("Token")
BLOCK = 1024  # draws at a time; single draws by numpy would take longer than the rest of the work per tuple


class VirtualCpu(Generic[Token]):
    """Cores of one speed, shared by slots that serve one job at a time.

    With b busy slots each proceeds at `speed · min(1, cores / b)`. Time never goes back: an action earlier than
    the last event happens at the last event, so callers take completions and submit jobs in the order of time.
    """

    def __init__(self, cores: int, speed: float, slots: int) -> None:
        self.cores = cores
        self.speed = speed
        self.slots = slots
        self._serving: set[int] = set()  # slots whose jobs `complete` has not returned yet
        self._now = -math.inf
        self._attained = 0.0  # work done for a job present since the processor was last idle
        self._running: list[tuple[float, int, Token]] = []  # heap: attained service at completion, slot, token
        self._done: deque[tuple[float, int, Token]] = deque()  # complete before `_now`, not returned yet
        self._used = 0.0  # core-seconds up to `_now`

    def submit(self, slot: int, work: float, at: float, token: Token) -> None:
        """Start a job of `work` core-seconds (of a core of speed 1) on an idle slot."""
        if slot in self._serving:
            raise ValueError(f"slot {slot} is busy")
        if not 0.0 <= work < math.inf:
            raise ValueError(f"expected work of 0 or more core-seconds, got {work}")
        self._advance(at)
        if not self._running:
            self._attained = 0.0  # reset if possible, so that it stays small and exact over days
        self._serving.add(slot)
        heappush(self._running, (self._attained + work, slot, token))

    def next_completion(self) -> float:
        """Return when the next job will be complete if none is added; infinite if none is running."""
        if self._done:
            return self._done[0][0]
        return self._first_end() if self._running else math.inf

    def complete(self) -> tuple[float, int, Token]:
        """Advance to the earliest completion; return its time, its slot, which is idle now, and the job's token.

        Of jobs complete at the same time, the one in the lowest slot comes first.
        """
        if not self._done:
            if not self._running:
                raise ValueError("no job is left to complete")
            self._finish_first()
        done = self._done.popleft()
        self._serving.remove(done[1])
        return done

    def complete_by(self, until: float) -> tuple[float, int, Token] | None:
        """Advance to the earliest completion; None if it is later or no job is running."""
        return self.complete() if self.next_completion() <= until else None

    def used(self, now: float) -> float:
        """Return the core-seconds used up to `now`; of the cores' own seconds, whatever their speed."""
        used, time, attained, busy = self._used, self._now, self._attained, len(self._running)
        for end, _, _ in sorted(self._running, key=lambda job: job[0]):
            until = min(now, time + (end - attained) / self._rate(busy))
            used += max(0.0, until - time) * min(busy, self.cores)
            time, attained, busy = max(time, until), end, busy - 1
        return used

    @property
    def now(self) -> float:
        """The time of the last event, before which nothing can start; minus infinity if there was none."""
        return self._now

    @property
    def busy(self) -> int:
        """The number of busy slots."""
        return len(self._serving)

    def _rate(self, busy: int) -> float:
        return self.speed * min(1.0, self.cores / busy)

    def _first_end(self) -> float:
        """Return when the first of the running jobs will be complete, never before now."""
        left = self._running[0][0] - self._attained
        return self._now + left / self._rate(len(self._running))

    def _finish_first(self) -> None:
        end = self._first_end()
        self._used += (end - self._now) * min(len(self._running), self.cores)
        self._now = end
        self._attained, slot, token = heappop(self._running)  # set, not added to: errors do not accumulate
        self._done.append((end, slot, token))

    def _advance(self, at: float) -> None:
        """Advance to a time; `complete` returns the jobs that are complete by then."""
        while self._running and self._first_end() < at:
            self._finish_first()
        if at <= self._now:
            return
        if self._running:
            busy = len(self._running)
            grown = self._attained + (at - self._now) * self._rate(busy)
            self._attained = min(grown, self._running[0][0])  # rounding must not carry it past a completion
            self._used += (at - self._now) * min(busy, self.cores)
        self._now = at


class ServiceTimes:
    """The work of each tuple of a task, in core-seconds of a core of speed 1, `cpu` on average."""

    def __init__(self, cpu: float, service: ServiceTime, seed: int | Sequence[int]) -> None:
        self.mean = cpu
        self._service = service
        self._rng = np.random.default_rng(seed)
        self._samples: list[float] = []

    def draw(self) -> float:
        """Return the work of the next tuple."""
        if not self._samples:
            self._samples = self._block().tolist()
        return self._samples.pop()

    def _block(self) -> Floats:
        """Draw the work of many tuples. [BLOCK]"""
        rng, mean, variance = self._rng, self.mean, self._service.cv**2  # variance relative to the mean's square
        match self._service.distribution:
            case Distribution.CONSTANT:
                return np.full(BLOCK, mean)
            case Distribution.EXPONENTIAL:
                return rng.exponential(mean, BLOCK)
            case Distribution.GAMMA:
                return rng.gamma(1.0 / variance, mean * variance, BLOCK)
            case Distribution.LOGNORMAL:
                spread = math.log1p(variance)
                return mean * rng.lognormal(-spread / 2.0, math.sqrt(spread), BLOCK)
