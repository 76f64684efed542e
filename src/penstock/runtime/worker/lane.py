"""Lanes, the senders' ends of channels, and what waits in them: tuples, the marks of those sampled, and markers."""

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from penstock.runtime.protocol.frames import Mark


class Batch(NamedTuple):
    """Tuples on their way, and those of them that are sampled."""

    values: list[Any]
    marks: list[Mark]  # in order of place


class Sampled(NamedTuple):
    """A sampled tuple that has just been made, before it has an id of its own."""

    place: int  # among those made with it
    root: int
    parent: int
    emitted: float


class MarkerOf(NamedTuple):
    """A marker before it is on a channel."""

    kind: int
    value: int
    origin: int


class Lane:
    """The sender's end of one channel.

    `number` is that of the next tuple or marker to be sent; `waiting` holds batches and markers in the order in which
    they leave; `fresh` is where a queue collects tuples while it binds a batch, and empty otherwise.
    """

    __slots__ = ("ahead", "backlog", "credits", "fresh", "marked", "markers", "number", "target", "waiting", "window")

    def __init__(self, target: int, window: int) -> None:
        self.target = target  # task
        self.window = window  # tuples that it may have in flight
        self.credits = window
        self.number = 0
        self.waiting: deque[Batch | MarkerOf] = deque()
        self.backlog = 0  # tuples in `waiting`
        self.markers = 0  # in `waiting`
        self.ahead = 0.0  # the price of what follows from a tuple at its target, as last heard
        self.fresh: list[Any] = []
        self.marked: list[Mark] = []

    @property
    def outstanding(self) -> int:
        """Tuples that its target has not processed yet, as far as is known here."""
        return self.window - self.credits + self.backlog

    @property
    def room(self) -> int:
        """Tuples that it may take beyond those that wait; none where there is no credit for these."""
        return max(0, self.credits - self.backlog)

    def hold(self, batch: Batch) -> None:
        """Let a batch wait, after all that waits already."""
        self.backlog += len(batch.values)
        last = self.waiting[-1] if self.waiting else None
        if isinstance(last, Batch):
            last.marks.extend(shifted(batch.marks, len(last.values)))
            last.values.extend(batch.values)
        else:
            self.waiting.append(batch)

    def collect(self, value: Any, mark: Mark | None) -> None:
        """Take a tuple that its queue binds to it, and its mark where it is sampled."""
        if mark is not None:
            self.marked.append(moved(mark, len(self.fresh)))
        self.fresh.append(value)

    def hold_marker(self, marker: MarkerOf) -> None:
        """Let a marker wait, after all that waits already."""
        self.markers += 1
        self.waiting.append(marker)

    def take_fresh(self) -> Batch:
        """Return what was collected."""
        batch = Batch(self.fresh, self.marked)
        self.fresh, self.marked = [], []
        return batch


def by_place(marks: Iterable[Mark]) -> dict[int, Mark]:
    """Return marks by where their tuples are."""
    return {mark.place: mark for mark in marks}


def cut(values: list[Any], marks: list[Mark], count: int) -> Batch:
    """Cut the first tuples off a list, in place."""
    taken = Batch(values[:count], [mark for mark in marks if mark.place < count])
    del values[:count]
    marks[:] = shifted([mark for mark in marks if mark.place >= count], -count)
    return taken


def shifted(marks: Iterable[Mark], by: int) -> list[Mark]:
    """Return marks of tuples that are so many places further on."""
    return [moved(mark, mark.place + by) for mark in marks]


def moved(mark: Mark, place: int) -> Mark:
    """Return the mark of a tuple that is at another place."""
    return Mark(place, mark.root, mark.id, mark.parent, mark.emitted)
