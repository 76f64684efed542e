"""The sender's ends of channels: out-queues, one per task and stream, whose tuples are bound to a channel late.

A *lane* is the sender's end of one channel. Its receiver's credit limits the number of tuples that it may send. If the
grouping leaves a choice (shuffle, partial-key), tuples wait unbound in the queue until a lane has room. If the key, the
sender or the task determines the lane, they wait in it. Markers need no credit, and overtake nothing.

A *chooser* (a routing policy) may bind unbound tuples instead of the grouping, and a *gate* (a sending policy) may hold
back tuples bound for other machines. Neither holds back a marker: the tuples before it are bound, and leave as credit
allows.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from penstock.api.keys import key_group, owner, second_group
from penstock.model.errors import InvalidInput
from penstock.model.topology import Grouping
from penstock.runtime.protocol.frames import Credit, LaneState, Mark, Marker, MarkerBody, QueueState, Waiting

FULL = 4096  # tuples in an out-queue at which its task is blocked
WINDOWS = 2  # maximum queue of a lane, as a multiple of its channel's window
SHORTEST = 16  # minimum of this limit, in tuples
CACHED_KEYS = 200_000  # keys whose lanes a queue caches


class Batch(NamedTuple):
    """Tuples to be sent, and the marks of those that are sampled."""

    values: list[Any]
    marks: list[Mark]  # in order of place


class SampledTuple(NamedTuple):
    """A sampled tuple that has just been emitted and has no id yet."""

    place: int  # position among the tuples emitted with it
    root: int
    parent: int
    emitted: float


class Lane:
    """The sender's end of one channel.

    `number` is that of the next tuple or marker; `waiting` holds batches and markers in the order in which they leave;
    `collected` is where a queue gathers tuples while it binds a batch, and empty otherwise.
    """

    __slots__ = (
        "backlog",
        "collected",
        "collected_marks",
        "credits",
        "downstream_price",
        "markers",
        "number",
        "target",
        "waiting",
        "window",
    )

    def __init__(self, target: int, window: int) -> None:
        self.target = target  # task
        self.window = window  # maximum tuples in flight
        self.credits = window
        self.number = 0
        self.waiting: deque[Batch | MarkerBody] = deque()
        self.backlog = 0  # tuples in `waiting`
        self.markers = 0  # in `waiting`
        self.downstream_price = 0.0  # of all results of a tuple at the target, as last reported
        self.collected: list[Any] = []
        self.collected_marks: list[Mark] = []

    @property
    def outstanding(self) -> int:
        """Tuples of the lane without returned credit: as far as known here, its target has not processed them."""
        return self.window - self.credits + self.backlog

    @property
    def room(self) -> int:
        """Number of tuples that it accepts beyond the waiting ones; 0 if credit does not cover these."""
        return max(0, self.credits - self.backlog)

    def collect(self, value: Any, mark: Mark | None) -> None:
        """Add a tuple that the queue binds to the lane, with its mark if it is sampled."""
        if mark is not None:
            self.collected_marks.append(move_mark(mark, len(self.collected)))
        self.collected.append(value)

    def take_collected(self) -> Batch:
        """Return the collected tuples."""
        batch = Batch(self.collected, self.collected_marks)
        self.collected, self.collected_marks = [], []
        return batch

    def append(self, batch: Batch) -> None:
        """Append a batch to the waiting items."""
        self.backlog += len(batch.values)
        last = self.waiting[-1] if self.waiting else None
        if isinstance(last, Batch):
            last.marks.extend(shift_marks(batch.marks, len(last.values)))
            last.values.extend(batch.values)
        else:
            self.waiting.append(batch)

    def append_marker(self, marker: MarkerBody) -> None:
        """Append a marker to the waiting items."""
        self.markers += 1
        self.waiting.append(marker)

    def take_marker(self) -> MarkerBody:
        """Remove the marker at the head."""
        marker = self.waiting.popleft()
        assert isinstance(marker, MarkerBody)
        self.markers -= 1
        return marker

    def take_batch(self, most: int) -> Batch:
        """Remove at most `most` tuples of the batch at the head."""
        batch = self.waiting[0]
        assert isinstance(batch, Batch)
        if len(batch.values) <= most:
            self.waiting.popleft()
        else:
            batch = cut_batch(batch.values, batch.marks, most)
        self.backlog -= len(batch.values)
        return batch

    def spend(self, count: int) -> int:
        """Use credit and numbers for tuples that are sent; return the number of the first."""
        number = self.number
        self.number += count
        self.credits -= count
        return number

    def spend_marker(self) -> int:
        """Use a number for a marker that is sent, which needs no credit."""
        self.number += 1
        return self.number - 1

    def add_credit(self, credit: Credit) -> None:
        """Add the credit that the receiver gives, which may change the window."""
        self.credits += credit.amount
        self.window += credit.wider
        self.downstream_price = credit.price

    def save(self, encode: Callable[[Batch], bytes], stream: int, source: int) -> LaneState:
        """Return its state, including all waiting items."""
        waiting = tuple(
            _encoded(item, encode)
            if isinstance(item, Batch)
            else Waiting(marker=Marker(0, stream, source, self.target, 0, *item))
            for item in self.waiting
        )
        return LaneState(self.target, self.credits, self.number, waiting, self.window)

    def load(self, state: LaneState, decode: Callable[[Waiting], Batch]) -> None:
        """Restore its state."""
        self.credits, self.number, self.window = state.credits, state.number, state.window
        for item in state.waiting:
            if item.marker is None:
                self.append(decode(item))
            else:
                self.append_marker(MarkerBody(item.marker.kind, item.marker.value, item.marker.origin))


class Sender(Protocol):
    """The interface through which an out-queue sends."""

    def send(self, queue: "OutQueue", lane: Lane, batch: Batch) -> None:
        """Send tuples for which the lane has credit."""

    def send_marker(self, queue: "OutQueue", lane: Lane, marker: MarkerBody) -> None:
        """Send a marker."""

    def is_local(self, task: int) -> bool:
        """Return whether a task runs in this process."""

    def new_id(self, root: int) -> int:
        """Return an id of 63 random bits for a sampled tuple, and note that it belongs to the tree of `root`."""

    def refuse(self, queue: "OutQueue", name: str, value: Any, mark: Mark | None, error: BaseException) -> None:
        """Skip a tuple that cannot be bound or sent, or end the run, according to its task's error policy."""


class Chooser(Protocol):
    """Binds the unbound tuples of an out-queue instead of its grouping."""

    def choose(self) -> None:
        """Call `OutQueue.bind` for the tuples that leave now; the others wait for a later call."""

    def choose_all(self) -> None:
        """Call `OutQueue.queue` for all tuples with a choice of lane, whether or not their lanes have room."""

    def observe(self, place: int, credit: Credit) -> None:
        """Process the load that the target of a lane reports."""


class Gate(Protocol):
    """Holds back tuples for other machines until it calls `OutQueue.release` in their queue's turn."""

    def holds(self, lane: Lane) -> bool:
        """Return whether a lane leads to another machine."""

    def request(self, queue: "OutQueue") -> None:
        """Note that tuples of a queue wait to be released."""


class OutQueue:
    """The emitted but unsent tuples of one task on one stream."""

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
        timed: bool = False,
    ) -> None:
        self.stream = stream
        self.grouping = grouping
        self.source = source  # task
        self.lanes = list(lanes)
        self.output = output  # the named output that it carries, if there are several
        self.values: list[Any] = []  # unbound
        self.marks: list[Mark] = []
        self.turn = 0  # the next lane, in turn
        self.chooser: Chooser | None = None
        self.gate: Gate | None = None
        self._bound = 0  # tuples that wait in lanes
        self._timed = timed  # the windows bound its length, and follow the receivers' speed
        self._released = 0  # the lane that the gate serves next
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
        self._set_limits()

    def set_policies(self, chooser: Chooser | None, gate: Gate | None) -> None:
        """Bind and send by these policies from now on; None: by the grouping, and as credit allows."""
        self.chooser, self.gate = chooser, gate
        self._set_limits()

    def _set_limits(self) -> None:
        """Set the maximum number of waiting tuples, from the windows of the lanes.

        A policy decides from the number of waiting tuples, so its queues are not kept short.
        """
        most = FULL
        if self._timed and self.chooser is None and self.gate is None:
            most = max(SHORTEST, min(FULL, WINDOWS * min(lane.window for lane in self.lanes)))
        self._lane_limit, self.limit = most, min(FULL, most * len(self.lanes))
        self._over = sum(lane.backlog >= most for lane in self.lanes)

    @property
    def full(self) -> bool:
        """Whether it blocks its task: too many tuples wait in total, or for one lane."""
        return self._over > 0 or len(self.values) + self._bound >= self.limit

    @property
    def backlog(self) -> int:
        """The number of waiting tuples."""
        return len(self.values) + self._bound

    def put(self, values: list[Any], sampled: Sequence[SampledTuple] = ()) -> None:
        """Accept tuples, and send those that can be sent."""
        if not values:  # none of them is for this output
            return
        if self.grouping is Grouping.ALL:
            for lane in self.lanes:  # each copy of a sampled tuple has its own id
                self._append(lane, Batch(list(values), self._marked(sampled)))
        else:
            marks = self._marked(sampled)
            if self._bind is None:
                self.marks.extend(shift_marks(marks, len(self.values)))
                self.values.extend(values)
            else:
                self._bind(values, marks)
        self.pump()

    def put_marker(self, marker: MarkerBody) -> None:
        """Send a marker on every lane, behind all earlier tuples."""
        self._bind_all()
        for lane in self.lanes:
            lane.append_marker(marker)
        self.pump()

    def add_credit(self, credit: Credit) -> None:
        """Add credit from a receiver, and send the tuples that it allows."""
        for place, lane in enumerate(self.lanes):
            if lane.target == credit.target:
                lane.add_credit(credit)
                if credit.wider:
                    self._set_limits()
                if self.chooser is not None:
                    self.chooser.observe(place, credit)
        self.pump()

    def pump(self) -> None:
        """Send the tuples that credits, the chooser and the gate allow."""
        for lane in self.lanes:
            if lane.waiting:
                self._pump_lane(lane)
        if self.values:
            if self.chooser is not None:
                self.chooser.choose()
            elif self.grouping is Grouping.PARTIAL_KEY:
                self.bind_by_load(_load)
            else:
                self.bind_in_turn()

    def _marked(self, sampled: Sequence[SampledTuple]) -> list[Mark]:
        new_id = self._sender.new_id
        return [Mark(place, root, new_id(root), parent, emitted) for place, root, parent, emitted in sampled]

    def _append(self, lane: Lane, batch: Batch) -> None:
        self._bound += len(batch.values)
        was_over = lane.backlog >= self._lane_limit
        lane.append(batch)
        self._over += (lane.backlog >= self._lane_limit) - was_over

    def _append_collected(self) -> None:
        for lane in self.lanes:
            if lane.collected:
                self._append(lane, lane.take_collected())

    # Sending bound tuples

    def _pump_lane(self, lane: Lane) -> None:
        """Send the waiting items of a lane: with a gate, only up to its last marker."""
        held = self.gate is not None and self.gate.holds(lane)
        while lane.waiting:
            if held and not lane.markers:
                assert self.gate is not None
                self.gate.request(self)
                return
            if not self._send_head(lane, lane.credits):
                return

    def _send_head(self, lane: Lane, most: int) -> int:
        """Send the marker at the head of a lane, or at most `most` tuples from there; return the number sent."""
        if isinstance(lane.waiting[0], MarkerBody):
            self._sender.send_marker(self, lane, lane.take_marker())
            return 1
        if most <= 0:
            return 0
        was_over = lane.backlog >= self._lane_limit
        batch = lane.take_batch(most)
        count = len(batch.values)  # fewer may be sent
        self._over -= was_over and lane.backlog < self._lane_limit
        self._bound -= count
        self._sender.send(self, lane, batch)
        return count

    def _send_or_append(self, lane: Lane, batch: Batch) -> None:
        """Send tuples for which a lane has room, or let them wait for the gate."""
        if lane.waiting or (self.gate is not None and self.gate.holds(lane)):
            self._append(lane, batch)
            self._pump_lane(lane)
        else:
            self._sender.send(self, lane, batch)

    def releasable(self) -> int:
        """Return how many waiting tuples for other machines have credit: those that the gate may release."""
        gate = self.gate
        lanes = [] if gate is None else [lane for lane in self.lanes if gate.holds(lane)]
        return sum(max(0, min(lane.backlog, lane.credits)) for lane in lanes)

    def release(self, count: int) -> None:
        """Send `count` of the tuples that wait for the gate, from the lanes in turn."""
        gate = self.gate
        while gate is not None and count > 0:
            lanes = self.lanes[self._released :] + self.lanes[: self._released]
            able = [lane for lane in lanes if min(lane.backlog, lane.credits) > 0 and gate.holds(lane)]
            if not able:
                return
            share = max(1, count // len(able))
            for lane in able[:count]:
                count -= self._send_head(lane, min(share, lane.credits))
                self._released = (self.lanes.index(lane) + 1) % len(self.lanes)

    # Binding when a lane has credit

    def bind(self, place: int, count: int) -> None:
        """Bind the first `count` unbound tuples to a lane with room for them."""
        self._send_or_append(self.lanes[place], self._take_unbound(count))

    def queue(self, place: int, count: int) -> None:
        """Bind the first `count` unbound tuples to a lane, where they wait: a marker will follow them."""
        self._append(self.lanes[place], self._take_unbound(count))

    def bind_in_turn(self) -> None:
        """Bind an equal share to every lane with credit, starting with the next lane in turn."""
        while self.values:
            ready = [lane for lane in self._in_turn() if lane.credits > lane.backlog]
            if not ready:
                return
            for lane, share in self._shares(ready):
                self._send_or_append(lane, self._take_unbound(min(share, lane.credits - lane.backlog)))

    def _shares(self, lanes: list[Lane]) -> list[tuple[Lane, int]]:
        """Split the unbound tuples as if dealt one by one; the turn advances past the lanes that get one more."""
        share, extra = divmod(len(self.values), len(lanes))
        if extra:
            self.turn = (self.lanes.index(lanes[extra - 1]) + 1) % len(self.lanes)
        counts = [share + (place < extra) for place in range(len(lanes))]
        return [(lane, count) for lane, count in zip(lanes, counts, strict=True) if count]

    def _in_turn(self) -> list[Lane]:
        lanes = self.lanes[self.turn :] + self.lanes[: self.turn]
        if self.grouping is Grouping.LOCAL_OR_SHUFFLE:
            local = [lane for lane in lanes if self._sender.is_local(lane.target)]
            return local or lanes
        return lanes

    def bind_by_load(self, load: Callable[[Lane], float], ignore_credit: bool = False) -> None:
        """Bind each tuple to the less loaded of its key's two lanes, until neither has room; or bind all tuples."""
        bound, marks = 0, index_by_place(self.marks)
        for value in self.values:
            try:
                ready: Sequence[Lane] = self._two_lanes(value)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # of an author's function, or type
                self._sender.refuse(self, "key", value, marks.get(bound), error)
                bound += 1
                continue
            if not ignore_credit:
                ready = [lane for lane in ready if len(lane.collected) < lane.credits - lane.backlog]
                if not ready:
                    break
            min(ready, key=load).collect(value, marks.get(bound))
            bound += 1
        cut_batch(self.values, self.marks, bound)
        if ignore_credit:
            self._append_collected()
        for lane in self.lanes:
            if lane.collected:
                self._send_or_append(lane, lane.take_collected())

    def _two_lanes(self, value: Any) -> tuple[Lane, Lane]:
        key = value if self._key is None else self._key(value)
        found = self._choices.get(key)
        if found is None:
            count = len(self.lanes)
            first, second = owner(key_group(key), count), owner(second_group(key), count)
            if first == second:
                second = (second + 1) % count
            if len(self._choices) >= CACHED_KEYS:
                self._choices.clear()
            found = self._choices[key] = (self.lanes[first], self.lanes[second])
        return found

    def _take_unbound(self, count: int) -> Batch:
        if count >= len(self.values):
            batch = Batch(self.values, self.marks)
            self.values, self.marks = [], []
            return batch
        return cut_batch(self.values, self.marks, count)

    def _bind_all(self) -> None:
        """Bind the unbound tuples regardless of credit, so that a marker can follow them."""
        if self.values and self.chooser is not None:
            self.chooser.choose_all()
        if self.values and self.grouping is Grouping.PARTIAL_KEY:
            self.bind_by_load(_load, ignore_credit=True)
        elif self.values:
            for lane, share in self._shares(self._in_turn()):
                self._append(lane, self._take_unbound(share))

    # Binding at once

    def _bind_fields(self, values: list[Any], marks: list[Mark]) -> None:
        owners, key, start = self._owners, self._key, 0
        for mark in [*marks, None]:
            end = len(values) if mark is None else mark.place
            part = values if start == 0 and end == len(values) else values[start:end]
            for value in part:
                try:
                    name = value if key is None else key(value)
                    lane = owners.get(name)
                    if lane is None:
                        lane = self._owner(name)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # of an author's function, or type
                    self._sender.refuse(self, "key", value, None, error)
                    continue
                lane.collected.append(value)
            if mark is not None:
                self._bind_sampled(values[mark.place], mark)
                end += 1
            start = end
        self._append_collected()

    def _bind_sampled(self, value: Any, mark: Mark) -> None:
        try:
            lane = self._owner(value if self._key is None else self._key(value))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._sender.refuse(self, "key", value, mark, error)
        else:
            lane.collect(value, mark)

    def _owner(self, key: Hashable) -> Lane:
        if len(self._owners) >= CACHED_KEYS:
            self._owners.clear()
        lane = self._owners[key] = self.lanes[owner(key_group(key), len(self.lanes))]
        return lane

    def _bind_first(self, values: list[Any], marks: list[Mark]) -> None:
        self._append(self.lanes[0], Batch(list(values), marks))

    def _bind_direct(self, values: list[Any], marks: list[Mark]) -> None:
        at = index_by_place(marks)
        for place, pair in enumerate(values):
            try:
                lane, value = self._direct_lane(pair)
            except InvalidInput as error:
                self._sender.refuse(self, "direct", pair, at.get(place), error)
            else:
                lane.collect(value, at.get(place))
        self._append_collected()

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

    # State

    def save(self, encode: Callable[["OutQueue", Batch], bytes]) -> QueueState:
        """Return its state. Partial-key tuples are bound first: an untyped copy on another worker may have no key."""
        if self.grouping is Grouping.PARTIAL_KEY:
            self._bind_all()

        def encoded(batch: Batch) -> bytes:
            return encode(self, batch)

        lanes = tuple(lane.save(encoded, self.stream, self.source) for lane in self.lanes)
        return QueueState(self.stream, self.turn, _encoded(Batch(self.values, self.marks), encoded), lanes)

    def load(self, state: QueueState, decode: Callable[["OutQueue", Waiting], Batch]) -> None:
        """Restore its state."""
        self.turn = state.turn
        self.values, self.marks = decode(self, state.unbound)
        for lane, saved in zip(self.lanes, state.lanes, strict=True):
            lane.load(saved, lambda waiting: decode(self, waiting))
        self._bound = sum(lane.backlog for lane in self.lanes)
        self._set_limits()


def _load(lane: Lane) -> int:
    return lane.outstanding + len(lane.collected)


def _encoded(batch: Batch, encode: Callable[[Batch], bytes]) -> Waiting:
    return Waiting(encode(batch), len(batch.values), tuple(batch.marks))


def index_by_place(marks: Iterable[Mark]) -> dict[int, Mark]:
    """Return marks by the positions of their tuples."""
    return {mark.place: mark for mark in marks}


def cut_batch(values: list[Any], marks: list[Mark], count: int) -> Batch:
    """Cut the first tuples off a list, in place."""
    taken = Batch(values[:count], [mark for mark in marks if mark.place < count])
    del values[:count]
    marks[:] = shift_marks([mark for mark in marks if mark.place >= count], -count)
    return taken


def shift_marks(marks: Iterable[Mark], by: int) -> list[Mark]:
    """Return marks with shifted positions."""
    return [move_mark(mark, mark.place + by) for mark in marks]


def move_mark(mark: Mark, place: int) -> Mark:
    """Return a mark with another position."""
    return Mark(place, mark.root, mark.id, mark.parent, mark.emitted)
