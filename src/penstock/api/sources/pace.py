"""The pace of a source: when each of its tuples is due.

All tasks of a component share one sequence of tuples, numbered from 0; task k of n emits the numbers k, k + n, k + 2n,
… So the tuples of a task and their due times depend only on its number. Times are counted from the first poll.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from penstock.api.contracts import TaskContext
from penstock.model.errors import InvalidInput

FASTEST = 1e9  # tuples per second; beyond it, the clock's resolution is coarser than the time between tuples
BLOCK_TUPLES = 1000  # mean number of tuples of an arrival process per random draw
SHORTEST_BLOCK = 0.02  # s
DRAWN_FIRST = 1 << 14  # slots of an arrival process drawn at first; each further draw doubles the total


@runtime_checkable
class ArrivalProcess(Protocol):
    """An arrival process: the number of tuples that arrive in each of a number of equal slots.

    Tuples arrive at random times within their slot, unless an attribute `even` is true.
    """

    @property
    def rate(self) -> float | None:
        """The mean in tuples per second; None if only a recording determines it."""

    @property
    def slot(self) -> float:
        """The length of a slot in seconds."""

    def counts(self, slots: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the number of tuples that arrive in each of the first `slots` slots. [slots]"""


class Pace:
    """When tuples are due: evenly at a `rate`, by an arrival process, at recorded times, or always.

    rate: tuples per second of all tasks together.
    arrivals: any object with `counts`, `rate` and `slot`, such as those of `penstock.arrivals`.

    After `open`, `take` returns the times at which tuples were due, even if it is called late. `position` and `seek`
    move a pace: the time between the two does not count, so the pace continues where it was, and a tuple's delay is
    preserved. If the position is from another pace, with another rate or process, this one starts at its beginning with
    the next tuple, and delays are forgotten. If the context specifies when the first tuple was due (`origin`), all time
    counts.

    Equal seeds of the run and equal component names produce equal arrivals. The counts of a process come from one
    generator, `default_rng([seed, crc32(name)])`. They are drawn incrementally: the first 16,384 slots, then twice as
    many, of which the first half is discarded, and so on. A process that draws slot by slot (Poisson, a varying rate)
    produces the same counts as in one draw; the long-range dependence of self-similar arrivals does not extend across
    these few boundaries.
    """

    def __init__(self, rate: float | None = None, arrivals: ArrivalProcess | None = None) -> None:
        if rate is not None and arrivals is not None:
            raise InvalidInput("rate", f"expected rate or arrivals, got rate {rate!r} and {arrivals!r}; remove one")
        if rate is not None:
            check_number("rate", rate, FASTEST)
        if arrivals is not None:
            _check_arrivals(arrivals)
        self.rate = rate
        self.arrivals = arrivals
        self.count = 0  # number of tuples taken by this task
        self._before = 0  # number of them before this pace started
        self._start: float | None = None  # time of the first poll, real or virtual
        self._elapsed = 0.0  # elapsed time at the position sought
        self._latest = 0.0

    @property
    def rate_tps(self) -> float | None:
        """The tuples per second of all tasks together, if known."""
        return self.rate if self.arrivals is None else self.arrivals.rate

    @property
    def paces(self) -> bool:
        """Whether due times are limited by anything but the reader's speed."""
        return not isinstance(self._schedule, _Always)

    def open(self, context: TaskContext, recorded: Callable[[], list[float]] | None = None) -> None:
        """Initialise; `recorded` returns the next block of ascending times since the first poll, empty at the end."""
        self._context = context
        self._schedule = self._scheduled(context, recorded)

    def take(self, now: float, limit: int) -> list[float]:
        """Return the due times of the tuples that are due by now and not yet taken, at most `limit` of them."""
        if self._start is None:
            self._start = now - self._elapsed if self._context.origin is None else self._context.origin
        self._latest = now
        dues = self._schedule.take(self._start, now, limit)
        self.count += len(dues)
        return dues

    def next_due(self, now: float) -> float:
        """Return when the next tuple is due, or when to ask again."""
        return now if self._start is None else self._schedule.upcoming(self._start, now)

    def position(self) -> dict[str, Any]:
        """Return how far it has advanced."""
        if self._start is not None:
            self._elapsed = max(self._latest, self._context.now()) - self._start
        place = {"count": self.count, "elapsed": self._elapsed, "by": self._schedule.name, "others": self._before}
        return place | self._schedule.position()

    def seek(self, position: dict[str, Any]) -> None:
        """Continue after a position."""
        self.count, self._start = position["count"], None
        if position["by"] == self._schedule.name:
            self._elapsed, self._before = position["elapsed"], position["others"]
            self._schedule.seek(position | {"count": self.count - self._before})
        else:
            self._elapsed, self._before = 0.0, self.count

    def _scheduled(self, context: TaskContext, recorded: Callable[[], list[float]] | None) -> "_Schedule":
        if self.rate is not None:
            return _Even(self.rate, context)
        if self.arrivals is not None:
            return _Drawn(self.arrivals, context)
        return _Always() if recorded is None else _Recorded(recorded)


class _Schedule(Protocol):
    """When tuples are due, counted from `start`. Comparisons use exactly the sums that are returned."""

    name: str  # equal only for equal schedules, across processes

    def take(self, start: float, now: float, limit: int) -> list[float]: ...

    def upcoming(self, start: float, now: float) -> float: ...

    def position(self) -> dict[str, Any]: ...

    def seek(self, position: dict[str, Any]) -> None: ...


class _Always:
    """Every tuple is due immediately."""

    name = "always"

    def take(self, start: float, now: float, limit: int) -> list[float]:
        return [now] * limit

    def upcoming(self, start: float, now: float) -> float:
        return now

    def position(self) -> dict[str, Any]:
        return {}

    def seek(self, position: dict[str, Any]) -> None:
        """Do nothing: there is no state."""


class _Even:
    """Tuple number i is due at i / rate."""

    def __init__(self, rate: float, context: TaskContext) -> None:
        self.rate = rate
        self.name = f"rate {float(rate)!r}"
        self.first = context.task
        self.step = context.tasks
        self.number = self.first  # of the next tuple

    def take(self, start: float, now: float, limit: int) -> list[float]:
        rate, number, step = self.rate, self.number, self.step
        stop = int((now - start) * rate)  # rounding may be off by one
        while start + stop / rate <= now:
            stop += 1
        while stop > number and start + (stop - 1) / rate > now:
            stop -= 1
        dues = [start + i / rate for i in range(number, min(stop, number + limit * step), step)]
        self.number = number + len(dues) * step
        return dues

    def upcoming(self, start: float, now: float) -> float:
        return start + self.number / self.rate

    def position(self) -> dict[str, Any]:
        return {}

    def seek(self, position: dict[str, Any]) -> None:
        self.number = self.first + position["count"] * self.step


class _Blocks:
    """Times in blocks, loaded one after another."""

    name = "recorded"

    def __init__(self) -> None:
        self.times: list[float] = []  # those of the block
        self.at = 0  # number of them taken

    def load(self, start: float, now: float) -> bool:
        """Replace the block by the next one, if it is available now."""
        raise NotImplementedError

    def take(self, start: float, now: float, limit: int) -> list[float]:
        dues: list[float] = []
        while len(dues) < limit:
            if self.at == len(self.times):
                if not self.load(start, now):
                    break
                continue  # a block may be empty
            stop = bisect_right(self.times, now, lo=self.at, key=lambda time: start + time)
            if stop == self.at:
                break
            stop = min(stop, self.at + limit - len(dues))
            dues += [start + time for time in self.times[self.at : stop]]
            self.at = stop
        return dues


class _Recorded(_Blocks):
    """Times provided by the source."""

    def __init__(self, more: Callable[[], list[float]]) -> None:
        super().__init__()
        self.more = more

    def load(self, start: float, now: float) -> bool:
        self.times, self.at = self.more(), 0
        return bool(self.times)

    def upcoming(self, start: float, now: float) -> float:
        return start + self.times[self.at] if self.at < len(self.times) else now

    def position(self) -> dict[str, Any]:
        return {}

    def seek(self, position: dict[str, Any]) -> None:
        """Do nothing: the provider of the times seeks and continues from there."""


class _Drawn(_Blocks):
    """An arrival process, in blocks of several short slots or of a part of a long one.

    A block's tuples are drawn from a generator of its own, equally by all tasks, so that a block can be computed
    without its predecessors. Blocks are short, so that drawing one does not delay other tuples.
    """

    def __init__(self, process: ArrivalProcess, context: TaskContext) -> None:
        super().__init__()
        self.process = process
        self.name = _fingerprint(process)
        self.even = bool(getattr(process, "even", False))
        self.seed = (context.seed, crc32(context.component.encode()))
        self.task, self.tasks = context.task, context.tasks
        seconds = min(1.0, max(SHORTEST_BLOCK, BLOCK_TUPLES / (process.rate or math.inf)))
        self.slots = max(1, round(seconds / process.slot))  # per block
        self.parts = 1 if self.even else max(1, round(process.slot / seconds))  # blocks per slot
        self.length = process.slot / self.parts
        self.drawn = _Counts(process, self.seed, self.slots)
        self.split_slot = -1  # the slot whose tuples by part are in `split`
        self.split = np.empty(0, dtype=np.int64)
        self.block = -1  # number of the block in `times`
        self.before = 0  # tuples of all tasks before that block
        self.size = 0  # tuples of all tasks in it

    def load(self, start: float, now: float) -> bool:
        if start + self._end() > now:
            return False
        self._fill(self.block + 1, self.before + self.size)
        return True

    def upcoming(self, start: float, now: float) -> float:
        return start + (self.times[self.at] if self.at < len(self.times) else self._end())

    def position(self) -> dict[str, Any]:
        return {"block": self.block, "before": self.before}

    def seek(self, position: dict[str, Any]) -> None:
        if position["block"] >= 0:
            self._fill(position["block"], position["before"])
            self.at = position["count"] - len(range(self.task, self.before, self.tasks))

    def _end(self) -> float:
        return (self.block + 1) * self.slots * self.length

    def _fill(self, block: int, before: int) -> None:
        counts = self._counts(block)
        size = int(counts.sum())
        first = block * self.slots  # a block is one part of a slot, or `slots` whole slots
        if self.even:
            within = (np.arange(size) - np.repeat(np.cumsum(counts) - counts, counts)) / np.repeat(counts, counts)
        else:
            within = np.random.default_rng([*self.seed, 1, block]).random(size)
        times = np.sort((first + np.repeat(np.arange(len(counts)), counts) + within) * self.length)
        self.times, self.at = times[(self.task - before) % self.tasks :: self.tasks].tolist(), 0
        self.block, self.before, self.size = block, before, size

    def _counts(self, block: int) -> NDArray[np.int64]:
        """Return the tuples of each slot of a block, or of the part of a slot that it covers."""
        first = block * self.slots // self.parts
        counts = self.drawn.between(first, first + self.slots)
        if self.parts == 1:
            return counts
        if first != self.split_slot:
            generator = np.random.default_rng([*self.seed, 2, first])
            self.split_slot = first
            self.split = generator.multinomial(counts[0], [1 / self.parts] * self.parts)
        part = block % self.parts
        return self.split[part : part + 1]


class _Counts:
    """The counts of a process by slot; when they are exhausted, twice the number of slots is drawn.

    Each draw starts at the first slot, because the process depends on the time of day, or on a position in a trace.
    """

    def __init__(self, process: ArrivalProcess, seed: tuple[int, int], block: int) -> None:
        self.process = process
        self.seed = seed
        self.first = math.ceil(DRAWN_FIRST / block) * block  # no block spans two draws
        self.begin = self.end = 0  # the range of slots held
        self.counts = np.empty(0, dtype=np.int64)

    def between(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the counts of the slots from `begin` to before `end`; both are in one block."""
        if not self.begin <= begin < self.end:
            self._draw(begin)
        return self.counts[begin - self.begin : end - self.begin]

    def _draw(self, slot: int) -> None:
        self.begin, self.end = 0, self.first
        while self.end <= slot:
            self.begin, self.end = self.end, 2 * self.end
        self.counts = self.process.counts(self.end, np.random.default_rng(self.seed))[self.begin :].copy()


def _fingerprint(process: ArrivalProcess) -> str:
    """Return a short name that differs between processes with different reprs, ignoring memory addresses."""
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(process))
    return f"arrivals {crc32(f'{text} {process.rate} {process.slot}'.encode()):08x}"


def check_number(path: str, value: object, most: float = math.inf) -> None:
    """Raise `InvalidInput` for anything but a number above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < float(value) < math.inf:
        raise InvalidInput(path, f"expected a number > 0, got {value!r}")
    if float(value) > most:
        raise InvalidInput(path, f"expected a number ≤ {most:g}, got {value!r}")


def _check_arrivals(arrivals: object) -> None:
    if not callable(getattr(arrivals, "counts", None)) or not hasattr(arrivals, "rate"):
        problem = f"expected an arrival process, with counts(slots, rng), rate and slot, got {arrivals!r}"
        raise InvalidInput("arrivals", f"{problem}; see penstock.arrivals")
    check_number("arrivals.slot", getattr(arrivals, "slot", None))
