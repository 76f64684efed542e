"""What comes to a task: the receiver's ends of its channels, and the batches that wait in its inbox."""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.runtime.protocol.frames import Mark


class InChannel:
    """The receiver's end of one channel.

    `expected` is the number of the next tuple that is to be accepted; a batch with a later number, sent by a new host
    that overtook the old one, is held until those before it have come.
    """

    __slots__ = (
        "barred",
        "consumed",
        "credited",
        "ended",
        "expected",
        "granted",
        "held",
        "progress",
        "promised",
        "queued",
        "source",
        "stream",
    )

    def __init__(self, stream: int, source: int, window: int) -> None:
        self.stream = stream
        self.source = source
        self.expected = 0
        self.granted = window  # tuples that its sender may have in flight, as of the credit given so far
        self.queued = 0  # tuples in the inbox, and aside
        self.consumed = 0  # tuples processed that no credit has been given for
        self.credited = -math.inf  # when credit was given last, where senders want it soon
        self.promised = False  # credit is going to be given before long, where they do
        self.ended = False
        self.barred = False  # its barrier has come, and what comes after it must wait
        self.held: dict[int, deque[Any]] = {}  # by number
        self.progress: dict[int, int] = {}  # source task -> its tuples that have passed here


class Delivery:
    """A batch in an inbox."""

    __slots__ = ("arrived", "channel", "marks", "passed", "sender", "sent", "size", "taken", "values")

    def __init__(
        self,
        channel: InChannel,
        values: list[Any],
        marks: Sequence[Mark],
        sent: float,
        arrived: float,
        size: int,
        sender: int,
    ) -> None:
        self.channel = channel
        self.values = values
        self.marks = marks
        self.taken = 0  # tuples that have been processed, where they are one by one
        self.passed = 0  # marks of those
        self.sent = sent
        self.arrived = arrived
        self.size = size  # bytes on the wire; 0 within a process
        self.sender = sender  # worker

    def __len__(self) -> int:
        return len(self.values) - self.taken

    def take(self) -> tuple[Any, Mark | None]:
        """Take the next tuple, and its mark where it is sampled."""
        place = self.taken
        self.taken += 1
        if self.passed < len(self.marks) and self.marks[self.passed].place == place:
            self.passed += 1
            return self.values[place], self.marks[self.passed - 1]
        return self.values[place], None

    def next(self, most: int) -> tuple[list[Any], Mark | None]:
        """Return the next tuples, at most so many, without taking them: a sampled one, or some that are not."""
        start = self.taken
        end = min(start + most, len(self.values))
        if self.passed < len(self.marks):
            mark = self.marks[self.passed]
            if mark.place == start:
                return self.values[start : start + 1], mark
            end = min(end, mark.place)
        return (self.values if end - start == len(self.values) else self.values[start:end]), None

    def cut(self) -> None:
        """Forget the tuples that were taken."""
        if self.taken:
            self.values = self.values[self.taken :]
            left = self.marks[self.passed :]
            self.marks = [Mark(m.place - self.taken, m.root, m.id, m.parent, m.emitted) for m in left]
            self.taken = self.passed = 0
