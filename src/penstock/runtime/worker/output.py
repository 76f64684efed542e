"""The sender's end of channels: out-queues, one a task and stream, whose tuples get a target when they are sent.

A *lane* is the sender's end of one channel. It may send as many tuples as its receiver has given credit for. Where the
grouping leaves the choice (shuffle, partial-key), tuples wait unbound in the queue until a lane can take them; where
the key, the sender or the task decides, they wait in their lane. Markers need no credit, and overtake nothing.

A *chooser* (`routing`) may bind unbound tuples in place of the grouping's own way, and a *gate* (`sending`) may hold
back what is bound for other machines. Neither holds a marker: what is before it is bound and leaves as credit allows.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from penstock.api.keys import key_group, owner, second_group
from penstock.model.errors import InvalidInput
from penstock.model.topology import Grouping
from penstock.runtime.protocol.frames import Credit, LaneState, Mark, Marker, QueueState, Waiting
from penstock.runtime.worker.lane import Batch, Lane, MarkerOf, Sampled, by_place, cut, shifted

FULL = 4096  # tuples in an out-queue at which its task stops
AHEAD = 2  # of what a lane may have in flight, as much may wait for it
SHORTEST = 16  # tuples that may wait in any case
OWNERS = 200_000  # keys whose owner a queue remembers


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

    def refuse(self, queue: "OutQueue", name: str, value: Any, mark: Mark | None, error: BaseException) -> None:
        """Take a tuple that cannot be bound or sent: skip it, or end the run, by its task's error policy."""
        ...


class Chooser(Protocol):
    """What binds the unbound tuples of an out-queue in place of its grouping's own way."""

    def choose(self) -> None:
        """Have `OutQueue.bind` called for the tuples that are to go now; the others wait until it does so again."""
        ...

    def choose_all(self) -> None:
        """Have `OutQueue.hold` called for as many tuples as it cares to choose for, whether or not lanes have room."""
        ...

    def heard(self, place: int, credit: Credit) -> None:
        """Take what the target of a lane has to say."""
        ...


class Gate(Protocol):
    """What holds back tuples that leave the machine until it is their queue's turn, by `OutQueue.release`."""

    def bars(self, lane: Lane) -> bool:
        """Say whether a lane leads to another machine."""
        ...

    def held(self, queue: "OutQueue") -> None:
        """Take note that tuples of a queue wait to be released."""
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
        turn: int = 0,
        key: Callable[[Any], Hashable] | None = None,
        output: str | None = None,
        timed: bool = False,
    ) -> None:
        self.stream = stream
        self.grouping = grouping
        self.source = source  # task
        self.lanes = list(lanes)
        self.output = output  # the named output that it takes, of several
        self.values: list[Any] = []  # not bound to a lane yet
        self.marks: list[Mark] = []
        self.turn = turn  # the lane that is next where any will do
        self.chooser: Chooser | None = None
        self.gate: Gate | None = None
        self._bound = 0  # tuples that wait in lanes
        self._timed = timed  # it is kept short where receivers are slow
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

        self.resize()

    def resize(self) -> None:
        """Let as many tuples wait as fits what receivers let lanes have in flight, which they bound by time.

        A policy decides by how many wait, so that its queues are not kept short.
        """
        most = FULL
        if self._timed and self.chooser is None and self.gate is None:
            most = max(SHORTEST, min(FULL, AHEAD * min(lane.window for lane in self.lanes)))
        self.lane_limit, self.limit = most, min(FULL, most * len(self.lanes))
        self._over = sum(lane.backlog >= most for lane in self.lanes)

    @property
    def full(self) -> bool:
        """Whether no more tuples should be put: there are too many in all, or for one lane."""
        return self._over > 0 or len(self.values) + self._bound >= self.limit

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
                self.marks.extend(shifted(marks, len(self.values)))
                self.values.extend(values)
            else:
                self._bind(values, marks)
        self.pump()

    def _marked(self, sampled: Sequence[Sampled]) -> list[Mark]:
        new_id = self._sender.new_id
        return [Mark(place, root, new_id(root), parent, emitted) for place, root, parent, emitted in sampled]

    def _hold(self, lane: Lane, batch: Batch) -> None:
        self._bound += len(batch.values)
        was_over = lane.backlog >= self.lane_limit
        lane.hold(batch)
        self._over += (lane.backlog >= self.lane_limit) - was_over

    def put_marker(self, marker: MarkerOf) -> None:
        """Send a marker on every lane, behind every tuple that came before it."""
        self._bind_the_rest()
        for lane in self.lanes:
            lane.hold_marker(marker)
        self.pump()

    def pump(self) -> None:
        """Send what credits, the chooser and the gate allow."""
        for lane in self.lanes:
            if lane.waiting:
                self._pump_lane(lane)
        if self.values:
            if self.chooser is not None:
                self.chooser.choose()
            elif self.grouping is Grouping.PARTIAL_KEY:
                self.bind_by(_load)
            else:
                self.deal()

    def _pump_lane(self, lane: Lane) -> None:
        """Send what waits in a lane: where it is barred, only up to its last marker."""
        barred = self.gate is not None and self.gate.bars(lane)
        while lane.waiting:
            if barred and not lane.markers:
                assert self.gate is not None
                self.gate.held(self)
                return
            if not self._send_head(lane, lane.credits):
                return

    def _send_head(self, lane: Lane, most: int) -> int:
        """Send the marker at the head of a lane, or at most so many of the tuples there; return how many went."""
        head = lane.waiting[0]
        if isinstance(head, MarkerOf):
            lane.waiting.popleft()
            lane.markers -= 1
            self._sender.send_marker(self, lane, head)
            return 1
        if most <= 0:
            return 0
        if len(head.values) <= most:
            lane.waiting.popleft()
            batch = head
        else:
            batch = cut(head.values, head.marks, most)
        count = len(batch.values)  # fewer may be sent
        self._over -= lane.backlog >= self.lane_limit > lane.backlog - count
        lane.backlog -= count
        self._bound -= count
        self._sender.send(self, lane, batch)
        return count

    def _dispatch(self, lane: Lane, batch: Batch) -> None:
        """Send tuples that a lane has room for, or let them wait for the gate."""
        if lane.waiting or (self.gate is not None and self.gate.bars(lane)):
            self._hold(lane, batch)
            self._pump_lane(lane)
        else:
            self._sender.send(self, lane, batch)

    def releasable(self) -> int:
        """Return how many tuples could leave the machine if the gate let them: those that there is credit for."""
        gate = self.gate
        return 0 if gate is None else sum(min(one.backlog, one.credits) for one in self.lanes if gate.bars(one))

    def release(self, count: int) -> None:
        """Send so many of the tuples that wait for the gate, lanes in turn."""
        gate = self.gate
        while gate is not None and count > 0:
            lanes = self.lanes[self._released :] + self.lanes[: self._released]
            able = [lane for lane in lanes if min(lane.backlog, lane.credits) > 0 and gate.bars(lane)]
            if not able:
                return
            share = max(1, count // len(able))
            for lane in able[:count]:
                count -= self._send_head(lane, min(share, lane.credits))
                self._released = (self.lanes.index(lane) + 1) % len(self.lanes)

    def bind(self, place: int, count: int) -> None:
        """Bind the first so many unbound tuples to a lane that has room for them."""
        self._dispatch(self.lanes[place], self._take_unbound(count))

    def hold(self, place: int, count: int) -> None:
        """Let the first so many unbound tuples wait in a lane, as something is to go behind them."""
        self._hold(self.lanes[place], self._take_unbound(count))

    def deal(self) -> None:
        """Give every lane with credit an equal share, beginning where the last turn ended."""
        while self.values:
            ready = [lane for lane in self._in_turn() if lane.credits > lane.backlog]
            if not ready:
                return
            for lane, share in self._shares(ready):
                self._dispatch(lane, self._take_unbound(min(share, lane.credits - lane.backlog)))

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

    def bind_by(self, load: Callable[[Lane], float], whatever_room: bool = False) -> None:
        """Bind each tuple to the less loaded of its key's two lanes, until neither has room; or all of them."""
        bound, marks = 0, by_place(self.marks)
        for value in self.values:
            try:
                ready: Sequence[Lane] = self._two(value)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # of an author's function, or type
                self._sender.refuse(self, "key", value, marks.get(bound), error)
                bound += 1
                continue
            if not whatever_room:
                ready = [lane for lane in ready if len(lane.fresh) < lane.credits - lane.backlog]
                if not ready:
                    break
            min(ready, key=load).collect(value, marks.get(bound))
            bound += 1
        cut(self.values, self.marks, bound)
        if whatever_room:
            self._hold_fresh()
        for lane in self.lanes:
            if lane.fresh:
                self._dispatch(lane, lane.take_fresh())

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
        return cut(self.values, self.marks, count)

    def _bind_the_rest(self) -> None:
        """Bind tuples that nobody had credit for, so that a marker can go behind them."""
        if self.values and self.chooser is not None:
            self.chooser.choose_all()
        if self.values and self.grouping is Grouping.PARTIAL_KEY:
            self.bind_by(_load, whatever_room=True)
        elif self.values:
            for lane, share in self._shares(self._in_turn()):
                self._hold(lane, self._take_unbound(share))

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
                        lane = self._own(name)
                except KeyboardInterrupt:
                    raise
                except BaseException as error:  # of an author's function, or type
                    self._sender.refuse(self, "key", value, None, error)
                    continue
                lane.fresh.append(value)
            if mark is not None:
                self._bind_sampled(values[mark.place], mark)
                end += 1
            start = end
        self._hold_fresh()

    def _bind_sampled(self, value: Any, mark: Mark) -> None:
        try:
            lane = self._own(value if self._key is None else self._key(value))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._sender.refuse(self, "key", value, mark, error)
        else:
            lane.collect(value, mark)

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
        at = by_place(marks)
        for place, pair in enumerate(values):
            try:
                lane, value = self._direct_lane(pair)
            except InvalidInput as error:
                self._sender.refuse(self, "direct", pair, at.get(place), error)
            else:
                lane.collect(value, at.get(place))
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

    def save(self, encode: Callable[["OutQueue", Batch], bytes]) -> QueueState:
        """Return all of it for another worker, whose copies of untyped tuples have no keys to take any more."""
        if self.grouping is Grouping.PARTIAL_KEY:
            self._bind_the_rest()
        lanes = tuple(
            LaneState(
                lane.target,
                lane.credits,
                lane.number,
                tuple(_saved(item, encode, self, lane) for item in lane.waiting),
                lane.window,
            )
            for lane in self.lanes
        )
        unbound = _saved(Batch(self.values, self.marks), encode, self, self.lanes[0])
        return QueueState(self.stream, self.turn, unbound, lanes)

    def load(self, state: QueueState, decode: Callable[["OutQueue", Waiting], Batch]) -> None:
        """Take over from another worker."""
        self.turn = state.turn
        self.values, self.marks = decode(self, state.unbound)
        for lane, saved in zip(self.lanes, state.lanes, strict=True):
            lane.credits, lane.number, lane.window = saved.credits, saved.number, saved.window
            for item in saved.waiting:
                if item.marker is None:
                    self._hold(lane, decode(self, item))
                else:
                    lane.hold_marker(MarkerOf(item.marker.kind, item.marker.value, item.marker.origin))
        self.resize()


def _load(lane: Lane) -> int:
    return lane.outstanding + len(lane.fresh)


def _saved(item: Batch | MarkerOf, encode: Callable[[OutQueue, Batch], bytes], queue: OutQueue, lane: Lane) -> Waiting:
    if isinstance(item, Batch):
        return Waiting(encode(queue, item), len(item.values), tuple(item.marks))
    marker = Marker(0, queue.stream, queue.source, lane.target, 0, item.kind, item.value, item.origin)
    return Waiting(marker=marker)
