"""The sender's end of channels: out-queues, one a task and stream, whose tuples get a target when they are sent.

A *lane* is the sender's end of one channel. It may send as many tuples as its receiver has given credit for. Where the
grouping leaves the choice (shuffle, partial-key), tuples wait unbound in the queue until a lane can take them; where
the key, the sender or the task decides, they wait in their lane. Markers need no credit, and overtake nothing.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.api.keys import key_group, owner, second_group
from penstock.model.errors import InvalidInput
from penstock.model.topology import Grouping
from penstock.runtime.messages import LaneState, Mark, Marker, QueueState, Waiting

OWNERS = 200_000  # keys whose owner a queue remembers


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

    __slots__ = ("backlog", "credits", "fresh", "marked", "number", "target", "waiting", "window")

    def __init__(self, target: int, window: int) -> None:
        self.target = target  # task
        self.window = window
        self.credits = window
        self.number = 0
        self.waiting: deque[Batch | MarkerOf] = deque()
        self.backlog = 0  # tuples in `waiting`
        self.fresh: list[Any] = []
        self.marked: list[Mark] = []

    @property
    def outstanding(self) -> int:
        """Tuples that its target has not processed yet, as far as is known here."""
        return self.window - self.credits + self.backlog

    def hold(self, batch: Batch) -> None:
        """Let a batch wait, after all that waits already."""
        self.backlog += len(batch.values)
        last = self.waiting[-1] if self.waiting else None
        if isinstance(last, Batch):
            last.marks.extend(_shifted(batch.marks, len(last.values)))
            last.values.extend(batch.values)
        else:
            self.waiting.append(batch)

    def collect(self, value: Any, mark: Mark | None) -> None:
        """Take a tuple that its queue binds to it, and its mark where it is sampled."""
        if mark is not None:
            self.marked.append(_moved(mark, len(self.fresh)))
        self.fresh.append(value)

    def take_fresh(self) -> Batch:
        """Return what was collected."""
        batch = Batch(self.fresh, self.marked)
        self.fresh, self.marked = [], []
        return batch


class Sender(Protocol):
    """What an out-queue sends by: the worker that it belongs to."""

    def send(self, queue: "OutQueue", lane: Lane, batch: Batch) -> None:
        """Send tuples; the lane has credit for them."""
        ...

    def send_marker(self, queue: "OutQueue", lane: Lane, marker: MarkerOf) -> None:
        """Send a marker."""
        ...

    def is_local(self, task: int) -> bool:
        """Say whether a task runs in this process."""
        ...

    def new_id(self, root: int) -> int:
        """Return an id for a sampled tuple that was made, 63 random bits, and note that it belongs to a tree."""
        ...


class OutQueue:
    """The tuples of one task for one stream that have not been sent."""

    def __init__(
        self,
        stream: int,
        grouping: Grouping,
        source: int,
        lanes: Sequence[Lane],
        sender: Sender,
        *,
        key: Callable[[Any], Hashable] | None = None,
        output: str | None = None,
    ) -> None:
        self.stream = stream
        self.grouping = grouping
        self.source = source  # task
        self.lanes = list(lanes)
        self.output = output  # the named output that it takes, of several
        self.values: list[Any] = []  # not bound to a lane yet
        self.marks: list[Mark] = []
        self.turn = 0  # the lane that is next where any will do
        self._bound = 0  # tuples that wait in lanes
        self._key = key
        self._sender = sender
        self._owners: dict[Hashable, Lane] = {}
        self._choices: dict[Hashable, tuple[Lane, Lane]] = {}
        self._bind = {
            Grouping.FIELDS: self._bind_fields,
            Grouping.GLOBAL: self._bind_first,
            Grouping.FORWARD: self._bind_first,  # its only lane
            Grouping.DIRECT: self._bind_direct,
        }.get(grouping)

    @property
    def backlog(self) -> int:
        """How many tuples wait."""
        return len(self.values) + self._bound

    def put(self, values: list[Any], sampled: Sequence[Sampled] = ()) -> None:
        """Take tuples and send what can be sent."""
        if not values:  # none of them is for this output
            return
        if self.grouping is Grouping.ALL:
            for lane in self.lanes:  # each copy of a sampled tuple has an id of its own
                self._hold(lane, Batch(list(values), self._marked(sampled)))
        else:
            marks = self._marked(sampled)
            if self._bind is None:
                self.marks.extend(_shifted(marks, len(self.values)))
                self.values.extend(values)
            else:
                self._bind(values, marks)
        self.pump()

    def _marked(self, sampled: Sequence[Sampled]) -> list[Mark]:
        new_id = self._sender.new_id
        return [Mark(place, root, new_id(root), parent, emitted) for place, root, parent, emitted in sampled]

    def _hold(self, lane: Lane, batch: Batch) -> None:
        self._bound += len(batch.values)
        lane.hold(batch)

    def put_marker(self, marker: MarkerOf) -> None:
        """Send a marker on every lane, behind every tuple that came before it."""
        self._bind_the_rest()
        for lane in self.lanes:
            lane.waiting.append(marker)
        self.pump()

    def pump(self) -> None:
        """Send what credits allow."""
        for lane in self.lanes:
            if lane.waiting:
                self._pump_lane(lane)
        if self.values:
            if self.grouping is Grouping.PARTIAL_KEY:
                self._pump_partial()
            else:
                self._pump_shuffle()

    def _pump_lane(self, lane: Lane) -> None:
        while lane.waiting:
            head = lane.waiting[0]
            if isinstance(head, MarkerOf):
                lane.waiting.popleft()
                self._sender.send_marker(self, lane, head)
                continue
            if lane.credits <= 0:
                return
            if len(head.values) <= lane.credits:
                lane.waiting.popleft()
                batch = head
            else:
                batch = _take(head.values, head.marks, lane.credits)
            lane.backlog -= len(batch.values)
            self._bound -= len(batch.values)
            self._sender.send(self, lane, batch)

    def _pump_shuffle(self) -> None:
        """Give every lane with credit an equal share, beginning where the last turn ended."""
        while self.values:
            ready = [lane for lane in self._in_turn() if lane.credits > 0 and not lane.waiting]
            if not ready:
                return
            for lane, share in self._shares(ready):
                self._sender.send(self, lane, self._take_unbound(min(share, lane.credits)))

    def _shares(self, lanes: list[Lane]) -> list[tuple[Lane, int]]:
        """Share the unbound tuples out as one by one in turn would; the turn goes on behind those that get one more."""
        share, extra = divmod(len(self.values), len(lanes))
        if extra:
            self.turn = (self.lanes.index(lanes[extra - 1]) + 1) % len(self.lanes)
        counts = [share + (place < extra) for place in range(len(lanes))]
        return [(lane, count) for lane, count in zip(lanes, counts, strict=True) if count]

    def _in_turn(self) -> list[Lane]:
        lanes = self.lanes[self.turn :] + self.lanes[: self.turn]
        if self.grouping is Grouping.LOCAL_OR_SHUFFLE:
            near = [lane for lane in lanes if self._sender.is_local(lane.target)]
            return near or lanes
        return lanes

    def _pump_partial(self) -> None:
        """Bind each tuple to the less loaded of its key's two lanes, until neither has credit."""
        bound, marks = 0, _by_place(self.marks)
        for value in self.values:
            ready = [lane for lane in self._two(value) if len(lane.fresh) < lane.credits and not lane.waiting]
            if not ready:
                break
            min(ready, key=_load).collect(value, marks.get(bound))
            bound += 1
        _take(self.values, self.marks, bound)
        for lane in self.lanes:
            if lane.fresh:
                self._sender.send(self, lane, lane.take_fresh())

    def _two(self, value: Any) -> tuple[Lane, Lane]:
        key = value if self._key is None else self._key(value)
        found = self._choices.get(key)
        if found is None:
            count = len(self.lanes)
            first, second = owner(key_group(key), count), owner(second_group(key), count)
            if first == second:
                second = (second + 1) % count
            if len(self._choices) >= OWNERS:
                self._choices.clear()
            found = self._choices[key] = (self.lanes[first], self.lanes[second])
        return found

    def _take_unbound(self, count: int) -> Batch:
        if count >= len(self.values):
            batch = Batch(self.values, self.marks)
            self.values, self.marks = [], []
            return batch
        return _take(self.values, self.marks, count)

    def _bind_the_rest(self) -> None:
        """Bind tuples that nobody had credit for, so that a marker can go behind them."""
        if self.values and self.grouping is Grouping.PARTIAL_KEY:
            marks = _by_place(self.marks)
            for place, value in enumerate(self.values):
                min(self._two(value), key=_load).collect(value, marks.get(place))
            self.values, self.marks = [], []
            self._hold_fresh()
        elif self.values:
            for lane, share in self._shares(self._in_turn()):
                self._hold(lane, self._take_unbound(share))

    def _bind_fields(self, values: list[Any], marks: list[Mark]) -> None:
        owners, key, start = self._owners, self._key, 0
        for mark in [*marks, None]:
            end = len(values) if mark is None else mark.place
            part = values if start == 0 and end == len(values) else values[start:end]
            for value in part:
                name = value if key is None else key(value)
                lane = owners.get(name)
                if lane is None:
                    lane = self._own(name)
                lane.fresh.append(value)
            if mark is not None:
                value = values[mark.place]
                self._own(value if key is None else key(value)).collect(value, mark)
                end += 1
            start = end
        self._hold_fresh()

    def _own(self, key: Hashable) -> Lane:
        if len(self._owners) >= OWNERS:
            self._owners.clear()
        lane = self._owners[key] = self.lanes[owner(key_group(key), len(self.lanes))]
        return lane

    def _hold_fresh(self) -> None:
        for lane in self.lanes:
            if lane.fresh:
                self._hold(lane, lane.take_fresh())

    def _bind_first(self, values: list[Any], marks: list[Mark]) -> None:
        self._hold(self.lanes[0], Batch(list(values), marks))

    def _bind_direct(self, values: list[Any], marks: list[Mark]) -> None:
        by_place = _by_place(marks)
        for place, pair in enumerate(values):
            lane, value = self._direct_lane(pair)
            lane.collect(value, by_place.get(place))
        self._hold_fresh()

    def _direct_lane(self, pair: Any) -> tuple[Lane, Any]:
        try:
            task, value = pair
            if task < 0:
                raise IndexError
            return self.lanes[task], value
        except (TypeError, ValueError):
            raise InvalidInput("direct", f"expected a pair (task, value) on a direct stream, got {pair!r}") from None
        except IndexError:
            problem = f"there is no task {task!r} to send to; there are 0 to {len(self.lanes) - 1}"
            raise InvalidInput("direct", problem) from None

    def save(self, encode: Callable[[list[Any]], bytes]) -> QueueState:
        """Return all of it for another worker, whose copies of untyped tuples have no keys to take any more."""
        if self.grouping is Grouping.PARTIAL_KEY:
            self._bind_the_rest()
        lanes = tuple(
            LaneState(
                lane.target, lane.credits, lane.number, tuple(_saved(item, encode, self, lane) for item in lane.waiting)
            )
            for lane in self.lanes
        )
        unbound = Waiting(encode(self.values), len(self.values), tuple(self.marks))
        return QueueState(self.stream, self.turn, unbound, lanes)

    def load(self, state: QueueState, decode: Callable[[bytes], list[Any]]) -> None:
        """Take over from another worker."""
        self.turn = state.turn
        self.values, self.marks = decode(state.unbound.values), list(state.unbound.marks)
        for lane, saved in zip(self.lanes, state.lanes, strict=True):
            lane.credits, lane.number = saved.credits, saved.number
            for item in saved.waiting:
                if item.marker is None:
                    self._hold(lane, Batch(decode(item.values), list(item.marks)))
                else:
                    lane.waiting.append(MarkerOf(item.marker.kind, item.marker.value, item.marker.origin))


def _load(lane: Lane) -> int:
    return lane.outstanding + len(lane.fresh)


def _saved(item: Batch | MarkerOf, encode: Callable[[list[Any]], bytes], queue: OutQueue, lane: Lane) -> Waiting:
    if isinstance(item, Batch):
        return Waiting(encode(item.values), len(item.values), tuple(item.marks))
    marker = Marker(0, queue.stream, queue.source, lane.target, 0, item.kind, item.value, item.origin)
    return Waiting(marker=marker)


def _by_place(marks: Iterable[Mark]) -> dict[int, Mark]:
    return {mark.place: mark for mark in marks}


def _take(values: list[Any], marks: list[Mark], count: int) -> Batch:
    """Cut the first tuples off a list, in place."""
    taken = Batch(values[:count], [mark for mark in marks if mark.place < count])
    del values[:count]
    marks[:] = _shifted([mark for mark in marks if mark.place >= count], -count)
    return taken


def _shifted(marks: Iterable[Mark], by: int) -> list[Mark]:
    return [_moved(mark, mark.place + by) for mark in marks]


def _moved(mark: Mark, place: int) -> Mark:
    return Mark(place, mark.root, mark.id, mark.parent, mark.emitted)
