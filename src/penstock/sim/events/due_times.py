"""The due times of source tuples: arrival processes, drawn block by block, dealt to the tasks of each source in turn.

A block is drawn from a generator of its own, so arrivals depend only on the seed, and not on how far a run advances at
a time; equal seeds give equal arrivals for every placement.
"""

from collections.abc import Callable, Mapping
from zlib import crc32

import msgspec
import numpy as np

from penstock.api.sources.pace import ArrivalProcess
from penstock.model.errors import InvalidInput
from penstock.model.instance import Instance
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Bools, Floats
from penstock.sim.events.state import Dues
from penstock.workloads.arrivals import Counts

BLOCK_S = 1.0
ENDLESS_S = 1e9  # waiting time of the tuples of an unlimited supply
DRAWN_FIRST = 1 << 10  # slots of a process drawn at first; each further draw doubles the total


class SourceArrivals:
    """The arrivals of one source component."""

    def __init__(self, process: ArrivalProcess, seed: tuple[int, int]) -> None:
        self._process = process
        self._seed = seed
        self._even = bool(getattr(process, "even", False))
        self._slots = max(1, round(BLOCK_S / process.slot))  # per block
        self._counts: Counts = np.empty(0, dtype=np.int64)
        self._factor = 1.0
        self._block = 0  # the next block to draw
        self._drawn = np.empty(0)  # times not yet taken
        self._taken = 0.0  # end of the times taken

    def scale(self, factor: float) -> None:
        """Multiply the initial rate by a factor from now on."""
        self._factor = factor
        self._counts = np.empty(0, dtype=np.int64)
        self._block = int(self._taken / self._length)
        self._drawn = np.empty(0)

    def take(self, until: float) -> Floats:
        """Return the times up to `until` that were not taken before."""
        parts = [self._drawn]
        while self._block * self._length < until:
            parts.append(self._next_block())
        times = np.concatenate(parts)
        cut = int(np.searchsorted(times, until))
        self._drawn, self._taken = times[cut:], until
        return times[:cut]

    @property
    def _length(self) -> float:
        return self._slots * self._process.slot

    def _next_block(self) -> Floats:
        first = self._block * self._slots
        counts = self._between(first, first + self._slots)
        size, begins = int(counts.sum()), np.repeat(np.arange(first, first + self._slots), counts)
        if self._even:
            within = (np.arange(size) - np.repeat(np.cumsum(counts) - counts, counts)) / np.repeat(counts, counts)
        else:
            within = np.random.default_rng([*self._seed, 1, self._block]).random(size)
        self._block += 1
        times: Floats = np.sort((begins + within) * self._process.slot)
        return times[np.searchsorted(times, self._taken) :]  # a block drawn again after a change starts in the past

    def _between(self, first: int, last: int) -> Counts:
        """Return the counts of some slots; a process always draws from its start, as it may depend on the time."""
        if last > len(self._counts):
            size = max(DRAWN_FIRST, 2 * last)
            self._counts = _scaled(self._process, self._factor, size, np.random.default_rng(self._seed))
        return self._counts[first:last]


def _scaled(process: ArrivalProcess, factor: float, slots: int, rng: np.random.Generator) -> Counts:
    """Draw the counts of a process at a multiple of its rate."""
    if factor == 0.0:
        return np.zeros(slots, dtype=np.int64)
    if factor != 1.0 and isinstance(process, msgspec.Struct) and process.rate is not None:
        scaled: ArrivalProcess = msgspec.structs.replace(process, rate=process.rate * factor)
        return scaled.counts(slots, rng)
    total = np.cumsum(process.counts(slots, rng)) * factor
    whole: Counts = np.diff(np.floor(total + 0.5), prepend=0.0).astype(np.int64)
    return whole


class Sources:
    """The arrivals of an application: those of all its source components, by task."""

    def __init__(self, instance: Instance, processes: Mapping[str, ArrivalProcess], seed: int, follow: float) -> None:
        tasks = instance.tasks
        names = [instance.topology.components[position].name for position in tasks.position]
        self._tasks = [tasks.of(number) for number, name in enumerate(names) if name in processes]
        self._feeds = [
            SourceArrivals(processes[name], (seed, crc32(name.encode()))) for name in names if name in processes
        ]
        self._given = [0] * len(self._feeds)  # tuples dealt so far
        self._follow = follow
        self._rng = np.random.default_rng([seed, 2])

    def scale(self, factor: float) -> None:
        """Multiply the initial rates by a factor from now on."""
        if not 0 <= factor < np.inf:
            raise InvalidInput("factor", f"expected a number ≥ 0, got {factor}")
        for feed in self._feeds:
            feed.scale(factor)

    def take(self, start: float, until: float) -> Dues:
        """Return the tuples due between the end of the last call and `until`."""
        times, tasks = [np.empty(0)], [np.empty(0, dtype=np.int32)]
        for number, feed in enumerate(self._feeds):
            mine, found = self._tasks[number], feed.take(until)
            turn = (self._given[number] + np.arange(len(found))) % len(mine)
            self._given[number] += len(found)
            times.append(found)
            tasks.append((mine.start + turn).astype(np.int32))
        all_times, all_tasks = np.concatenate(times), np.concatenate(tasks)
        order = np.argsort(all_times, kind="stable")
        task = all_tasks[order]
        return Dues(all_times[order], task, self._picked(task, until - start).astype(np.int32), 0.0)

    def _picked(self, task: np.ndarray, seconds: float) -> Bools:
        """Choose the traced tuples: a mean number per second of each task, independently at random."""
        if self._follow == 0.0 or not len(task):
            return np.zeros(len(task), dtype=np.bool_)
        if self._follow < 0.0:
            return np.ones(len(task), dtype=np.bool_)
        share = self._follow * seconds / np.bincount(task)[task]
        return np.asarray(self._rng.random(len(task)) < share)


class Saturation:
    """An unlimited supply of source tuples, of which every task takes its share; none gets ahead of the others.

    The due tuples follow the task that lags most, which therefore always has tuples waiting, while the others have as
    many as it has taken. An unlimited backlog is older than any other tuple, so a slot prefers its sources to its other
    tasks until they are blocked.
    """

    def __init__(self, share: Floats, ahead: float, taken: Callable[[], Longs]) -> None:
        """Start with `ahead` tuples; `share`: each task's fraction; `taken`: the tuples taken by each task. [T]"""
        self._share, self._ahead, self._taken = share, ahead, taken
        self._mine = np.flatnonzero(share > 0)
        self._released = 0.0

    @property
    def held_up(self) -> bool:
        """Whether the task that lags most is prevented from taking its due tuples."""
        return self._released - self.reached >= self._ahead / 2

    @property
    def reached(self) -> float:
        """Source tuples of all tasks together if every one has taken its share up to the one that lags most."""
        return float((self._taken()[self._mine] / self._share[self._mine]).min())

    def take(self, start: float, until: float) -> Dues:
        """Return the tuples due between the end of the last call and `until`, evenly spaced."""
        if not self.held_up:  # it can take more
            self._ahead *= 2
        share = self._share[self._mine]
        before, self._released = self._released, max(self._released, self.reached + self._ahead)
        counts = (np.floor(self._released * share) - np.floor(before * share)).astype(np.int64)
        times = np.concatenate([start + (until - start) * (np.arange(n) + 0.5) / n for n in counts.tolist()])
        task = np.repeat(self._mine, counts).astype(np.int32)
        order = np.argsort(times, kind="stable")
        return Dues(times[order], task[order], np.zeros(len(times), dtype=np.int32), ENDLESS_S)
