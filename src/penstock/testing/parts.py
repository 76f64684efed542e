"""The components of the small applications in simulated clusters: a source that rewinds, operators, a sink of parts.

The source emits a few tuples at a time and pauses in between. The sink writes parts to a disk in memory, under private
names until a checkpoint publishes them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from penstock.api.contracts import Operator, Sink, Source, TaskContext
from penstock.runtime.storage.disk import Disk

REST_S = 0.012  # between the tuples that a source emits together
MOST = 4  # emitted together
DELAY_S = 0.02
OUTPUT = "output"


class Place:
    """The current environment of an application: the disk of its sinks, and whether its sources may end."""

    disk: Disk
    may_end: bool = True


class Numbers(Source[tuple[str, int]]):
    """Pairs of a key and a number from `make`, `count` per task. The last one waits until the source may end."""

    rewinds = True

    def __init__(self, make: Callable[[int, int], tuple[str, int]], count: int, place: Place) -> None:
        self.make = make
        self.count = count
        self._place = place

    def open(self, context: TaskContext) -> None:
        """Start at the first."""
        self._task = context.task
        self._at = 0
        self._rests_until = 0.0

    def poll(self, now: float, limit: int) -> list[tuple[str, int]] | None:
        """Emit a few, or none during a pause."""
        if self._at >= self.count:
            return None
        if now < self._rests_until:
            return []
        self._rests_until = now + REST_S
        last = self.count if self._place.may_end else self.count - 1
        end = min(self._at + min(1 + (self._at + self._task) % MOST, limit), last)
        given = [self.make(self._task, number) for number in range(self._at, end)]
        self._at = end
        return given

    def next_due(self, now: float) -> float:
        """Return the end of the pause."""
        return self._rests_until

    def position(self) -> int:
        """Return the number of emitted tuples."""
        return self._at

    def seek(self, position: int) -> None:
        """Continue after a number of tuples."""
        self._at = position


class Parts(Sink[Any]):
    """Writes the tuples between two checkpoints to a file, which the checkpoint publishes."""

    exactly_once = True

    def __init__(self, place: Place) -> None:
        self._place = place

    def open(self, context: TaskContext) -> None:
        """Start the first part."""
        self._path = f"{context.folder}/{OUTPUT}/"
        self._name = f"part-{context.component}-{context.task}"
        self._epoch = context.epoch
        self._number = 0
        self._rows: list[Any] = []

    def write(self, values: Sequence[Any]) -> None:
        """Collect the rows of the part."""
        self._rows.extend(values)

    def prepare(self) -> Sequence[tuple[str, str]]:
        """Write the part under a name that no other epoch uses."""
        if not self._rows:
            return ()
        final = f"{self._name}-{self._number:04}"
        temporary = f"{self._path}_{final}.e{self._epoch}"
        self._place.disk.write(temporary, [msgspec.msgpack.encode(self._rows)])
        self._number += 1
        self._rows = []
        return ((temporary, self._path + final),)

    def snapshot(self) -> int:
        """Return the number of the next part."""
        return self._number

    def restore(self, state: int) -> None:
        """Continue with the part of a number."""
        self._number = state


class Count(Operator[tuple[str, int], tuple[str, int, int]]):
    """The number of occurrences of each key so far, with the number that came."""

    def open(self, context: TaskContext) -> None:
        """Start with no counts."""
        self.counts: dict[str, int] = {}

    def process(self, value: tuple[str, int]) -> Iterable[tuple[str, int, int]]:
        """Count a key."""
        key, number = value
        count = self.counts[key] = self.counts.get(key, 0) + 1
        return ((key, count, number),)

    def snapshot(self) -> dict[str, int]:
        """Return the counts."""
        return self.counts

    def restore(self, state: dict[str, int]) -> None:
        """Restore the counts."""
        self.counts = state


class CountOnly(Count):
    """The number of occurrences of each key so far, without the number, which depends on the order."""

    def process(self, value: tuple[str, int]) -> Iterable[tuple[str, int, int]]:
        """Count a key."""
        ((key, count, _),) = super().process(value)
        return ((key, count, 0),)


class Total(Operator[tuple[str, int], tuple[str, int, int]]):
    """The sum of the numbers of each key, at the end of the input."""

    def open(self, context: TaskContext) -> None:
        """Start with no sums."""
        self.totals: dict[str, list[int]] = {}

    def process(self, value: tuple[str, int]) -> None:
        """Add a number."""
        total = self.totals.setdefault(value[0], [0, 0])
        total[0] += 1
        total[1] += value[1]

    def finish(self) -> Iterable[tuple[str, int, int]]:
        """Emit the sums."""
        return [(key, count, total) for key, (count, total) in sorted(self.totals.items())]

    def snapshot(self) -> dict[str, list[int]]:
        """Return the sums so far."""
        return self.totals

    def restore(self, state: dict[str, list[int]]) -> None:
        """Restore the sums."""
        self.totals = state


class Meet(Operator[Any, tuple[str, int, int]]):
    """Counts the tuples of each key and side, and emits the type of the received value."""

    def open(self, context: TaskContext) -> None:
        """Start with no counts."""
        self.counts: dict[str, int] = {}

    def process(self, value: Any) -> Iterable[tuple[str, int, int]]:
        """Count a tuple of a side."""
        side = f"{value[0]}/{value[1]}/{type(value).__name__}"
        count = self.counts[side] = self.counts.get(side, 0) + 1
        return ((side, count, 0),)

    def snapshot(self) -> dict[str, int]:
        """Return the counts."""
        return self.counts

    def restore(self, state: dict[str, int]) -> None:
        """Restore the counts."""
        self.counts = state


class Tally(Operator[tuple[str, int], tuple[str, int, int]]):
    """Emits every tuple with the number of its task."""

    def open(self, context: TaskContext) -> None:
        """Note the task."""
        self._task = context.task
        self._seen = 0

    def process(self, value: tuple[str, int]) -> Iterable[tuple[str, int, int]]:
        """Emit the tuple."""
        self._seen += 1
        return ((f"{value[0]}@{self._task}", value[1], self._task),)

    def snapshot(self) -> int:
        """Return the number of processed tuples."""
        return self._seen

    def restore(self, state: int) -> None:
        """Restore the number of processed tuples."""
        self._seen = state


class Delay(Operator[tuple[str, int], tuple[str, int]]):
    """Emits tuples some time after their arrival, in the same order."""

    def open(self, context: TaskContext) -> None:
        """Start with no tuples."""
        self._context = context
        self._waiting: list[tuple[str, int]] = []

    def process(self, value: tuple[str, int]) -> None:
        """Keep a tuple until a timer is due."""
        if not self._waiting:
            self._context.at(self._context.now() + DELAY_S)
        self._waiting.append(value)

    def on_timer(self, when: float) -> Iterable[tuple[str, int]]:
        """Emit all waiting tuples."""
        return self.finish()

    def finish(self) -> Iterable[tuple[str, int]]:
        """Emit all waiting tuples."""
        given, self._waiting = self._waiting, []
        return given

    def snapshot(self) -> list[tuple[str, int]]:
        """Return the waiting tuples."""
        return self._waiting

    def restore(self, state: list[tuple[str, int]]) -> None:
        """Restore the waiting tuples."""
        self._waiting = state
