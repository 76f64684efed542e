"""The input of a task: its inbox, and the receiver's ends of the channels into it.

Tuples and markers of a channel are numbered. They enter the inbox in this order, whatever their order of arrival.
During a checkpoint, input behind the barrier of a channel is buffered until the barriers of all channels have arrived.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from penstock.runtime.protocol.frames import MOVE, InState, Mark, MarkerBody

Path = tuple[int, int]  # stream, source task: identifies a channel of a task
NO_MARKERS: tuple[MarkerBody, ...] = ()


class BrokenProtocol(RuntimeError):
    """Frames that violate the protocol: a defect, or a damaged connection."""


class InChannel:
    """The receiver's end of one channel.

    `expected` is the number of the next tuple or marker. An item with a later number is held until those before it have
    arrived: a new host may have sent it faster than the old host forwards the earlier ones.
    """

    __slots__ = (
        "aligned",
        "consumed",
        "ended",
        "expected",
        "granted",
        "held",
        "progress",
        "queued",
        "source",
        "stream",
    )

    def __init__(self, stream: int, source: int, window: int) -> None:
        self.stream = stream
        self.source = source
        self.expected = 0
        self.granted = window  # tuples that the sender may have in flight, according to the credit given so far
        self.queued = 0  # tuples in the inbox
        self.consumed = 0  # processed tuples without credit
        self.ended = False
        self.aligned = False  # the barrier of the checkpoint has arrived
        self.held: dict[int, deque[Delivery | MarkerBody]] = {}  # by number
        self.progress: dict[int, int] = {}  # source task -> number of its tuples that have passed

    def grant(self, wider: int) -> int:
        """Return the credit for processed tuples, including a change of the window."""
        amount, self.consumed = self.consumed + wider, 0
        self.granted += wider
        return amount


class Delivery:
    """A batch in an inbox; `taken` of its tuples have been processed."""

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
        self.taken = 0
        self.passed = 0  # marks of the tuples that have been processed
        self.sent = sent
        self.arrived = arrived
        self.size = size  # bytes on the wire; 0 within a process
        self.sender = sender  # worker

    def __len__(self) -> int:
        return len(self.values) - self.taken

    def peek(self, most: int) -> tuple[list[Any], Mark | None]:
        """Return at most `most` of the next tuples: one sampled tuple with its mark, or only unsampled ones."""
        start = self.taken
        end = min(start + most, len(self.values))
        if self.passed < len(self.marks):
            mark = self.marks[self.passed]
            if mark.place == start:
                return self.values[start : start + 1], mark
            end = min(end, mark.place)
        return (self.values if end - start == len(self.values) else self.values[start:end]), None

    def advance(self, count: int, sampled: bool) -> None:
        """Take tuples that `peek` returned."""
        self.taken += count
        self.passed += sampled

    def cut(self) -> None:
        """Remove the tuples that were taken."""
        if self.taken:
            self.values = self.values[self.taken :]
            left = self.marks[self.passed :]
            self.marks = [Mark(m.place - self.taken, m.root, m.id, m.parent, m.emitted) for m in left]
            self.taken = self.passed = 0


Item = Delivery | tuple[InChannel, MarkerBody]  # in an inbox


class Inbox:
    """The batches and markers that wait for one task, in processing order.

    `queued` is the number of waiting tuples, `active` the number of channels with waiting tuples, `open` the number of
    channels that have not ended.
    """

    __slots__ = ("_buffered", "_task", "active", "channels", "open", "queued", "waiting")

    def __init__(self, task: str, channels: Iterable[InChannel]) -> None:
        self._task = task
        self.channels: dict[Path, InChannel] = {(channel.stream, channel.source): channel for channel in channels}
        self.waiting: deque[Item] = deque()
        self._buffered: deque[Item] = deque()  # behind the barriers of a checkpoint
        self.queued = 0
        self.active = 0
        self.open = len(self.channels)

    def accept(self, channel: InChannel, number: int, item: Delivery | MarkerBody) -> Sequence[MarkerBody]:
        """Put an item of a channel into the inbox, in the order of numbers; return the enqueued markers of moves.

        The marker of a move arrives over the old host, so later tuples may have arrived before it.
        """
        overtaken = isinstance(item, MarkerBody) and item.kind == MOVE and number < channel.expected
        if number != channel.expected and not overtaken:
            if number < channel.expected:
                problem = f"expected tuple {channel.expected} of {channel.stream}/{channel.source}, got {number}"
                raise BrokenProtocol(f"{self._task}: {problem}")
            channel.held.setdefault(number, deque()).append(item)
            return NO_MARKERS
        moves = self._enqueue(channel, item)
        while channel.held and channel.expected in channel.held:
            for held in channel.held.pop(channel.expected):
                moves = (*moves, *self._enqueue(channel, held))
        return moves

    def _enqueue(self, channel: InChannel, item: Delivery | MarkerBody) -> Sequence[MarkerBody]:
        if isinstance(item, Delivery):
            count = len(item.values)
            channel.expected += count
            self.active += not channel.queued
            self.queued += count
            channel.queued += count
            (self._buffered if channel.aligned else self.waiting).append(item)
        elif item.kind == MOVE:
            return (item,)
        else:
            channel.expected += 1
            (self._buffered if channel.aligned else self.waiting).append((channel, item))
        return NO_MARKERS

    def drop_taken(self, count: int) -> None:
        """Remove `count` tuples that were taken from the first batch."""
        self.queued -= count
        first = self.waiting[0]
        if isinstance(first, Delivery) and first.taken == len(first.values):
            self.waiting.popleft()

    def consume(self, channel: InChannel, count: int) -> None:
        """Count processed tuples."""
        channel.consumed += count
        channel.queued -= count
        self.active -= not channel.queued

    def end(self, channel: InChannel) -> bool:
        """Note the end of a channel; return whether all channels have ended."""
        if not channel.ended:
            channel.ended = True
            self.open -= 1
        return self.open == 0

    def align(self, channel: InChannel) -> bool:
        """Buffer further input of a channel whose barrier has arrived; return whether those of all channels have."""
        channel.aligned = True
        kept: list[Item] = []
        for item in self.waiting:
            of = item.channel if isinstance(item, Delivery) else item[0]
            (self._buffered if of is channel else kept).append(item)
        self.waiting = deque(kept)
        return all(each.aligned for each in self.channels.values())

    @property
    def aligning(self) -> bool:
        """Whether a barrier has arrived, so that input may be buffered."""
        return bool(self._buffered) or any(channel.aligned for channel in self.channels.values())

    def unblock(self) -> None:
        """Move the input that was buffered behind barriers to the inbox."""
        for channel in self.channels.values():
            channel.aligned = False
        self.waiting.extendleft(reversed(self._buffered))
        self._buffered.clear()

    def advance_progress(self, channel: InChannel, origin: int, value: int, paths: Sequence[Path]) -> int | None:
        """Set the progress of a source on a channel; return the minimum over all paths from it, if it has increased."""
        before = min(self.channels[path].progress.get(origin, 0) for path in paths)
        channel.progress[origin] = max(channel.progress.get(origin, 0), value)
        now = min(self.channels[path].progress.get(origin, 0) for path in paths)
        return now if now > before else None

    def clear(self) -> None:
        """Remove everything: the task has moved, with its input."""
        self.waiting.clear()
        self.queued = 0

    # State

    def ended_channels(self) -> tuple[Path, ...]:
        """Return the channels that have ended."""
        return tuple(path for path, channel in self.channels.items() if channel.ended)

    def end_channels(self, paths: Iterable[Path]) -> None:
        """Restore which channels have ended."""
        for path in paths:
            self.channels[path].ended = True
        self.open = sum(not channel.ended for channel in self.channels.values())

    def save(self) -> tuple[InState, ...]:
        """Return the state of the channels as of the processed tuples; `contents` continues from it."""
        waiting = dict.fromkeys(self.channels, 0)
        for item in self.waiting:
            channel, count = (item.channel, len(item)) if isinstance(item, Delivery) else (item[0], 1)
            waiting[channel.stream, channel.source] += count
        return tuple(
            InState(
                channel.stream,
                channel.source,
                channel.expected - waiting[path],
                channel.consumed,
                channel.ended,
                tuple(channel.progress.items()),
                channel.granted,
            )
            for path, channel in self.channels.items()
        )

    def load(self, states: Iterable[InState]) -> None:
        """Restore the state of the channels."""
        for state in states:
            channel = self.channels[state.stream, state.source]
            channel.expected, channel.consumed, channel.ended = state.expected, state.consumed, state.ended
            channel.progress, channel.granted = dict(state.progress), state.granted
        self.end_channels(())

    def contents(
        self, moves: Iterable[tuple[InChannel, MarkerBody]]
    ) -> Iterator[tuple[InChannel, int, Delivery | MarkerBody]]:
        """Yield all unprocessed input, with its channel and number.

        moves: markers of moves that have passed this inbox.
        """
        numbers = {(state.stream, state.source): state.expected for state in self.save()}
        for item in self.waiting:
            channel, content = (item.channel, item) if isinstance(item, Delivery) else item
            path = (channel.stream, channel.source)
            yield channel, numbers[path], content
            numbers[path] += _length(content)
        for channel, marker in moves:
            yield channel, channel.expected, marker
        for channel in self.channels.values():
            for number, held in sorted(channel.held.items()):
                for content in held:
                    yield channel, number, content
                    number += _length(content)


def _length(item: Delivery | MarkerBody) -> int:
    """Return how many numbers an item occupies on its channel."""
    if isinstance(item, Delivery):
        return len(item)
    return int(item.kind != MOVE)
