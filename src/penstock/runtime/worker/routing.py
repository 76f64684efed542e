"""Routes tuples and markers to local and remote tasks: passes them within the process, or sends them in frames."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from penstock.api.keys import key_name
from penstock.model.errors import InvalidInput, shown
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import codec as codecs
from penstock.runtime.protocol.codec import UnreadableTuple
from penstock.runtime.protocol.controller_messages import Peer
from penstock.runtime.protocol.frames import MOVE, Credit, Data, Envelope, Mark, Marker, MarkerBody, Waiting
from penstock.runtime.worker.input import Delivery, InChannel
from penstock.runtime.worker.logic import UserError
from penstock.runtime.worker.output import Batch, Lane, OutQueue, Sender, cut_batch, index_by_place, move_mark
from penstock.runtime.worker.running_task import RunningTask
from penstock.runtime.worker.task import Task
from penstock.runtime.worker.tracing import Tracer

Payload = TypeVar("Payload")


class TaskDirectory:
    """The workers, the location of every task according to the last command, and the tasks of this worker."""

    def __init__(self, me: int, peers: Sequence[Peer], slots: Mapping[str, int], placement: Sequence[str]) -> None:
        self.me = me  # number of this worker
        self.update_workers(peers, slots)
        self.placement = list(placement)  # slot of each task
        self.hosts = [slots[slot] for slot in placement]  # worker of each task
        self.here: dict[int, Task] = {}  # in topological order

    @property
    def own_slot(self) -> str:
        """A slot of this worker."""
        return next(slot for slot, worker in self.slots.items() if worker == self.me)

    def is_local(self, task: int) -> bool:
        """Return whether a task belongs to this worker; it may not have arrived yet."""
        return self.hosts[task] == self.me

    def worker_named(self, name: str) -> int:
        """Return the number of a worker."""
        return self._numbers[name]

    def update_workers(self, peers: Sequence[Peer], slots: Mapping[str, int]) -> None:
        """Set the workers and the worker of each slot; workers may have joined."""
        self.peers = peers  # by number
        self.slots = slots  # slot -> worker
        self._numbers = {peer.name: number for number, peer in enumerate(peers)}

    def relocate(self, task: int, slot: str) -> tuple[str, int]:
        """Set the slot of a task; return its previous slot and worker."""
        before = self.placement[task], self.hosts[task]
        self.placement[task], self.hosts[task] = slot, self.slots[slot]
        return before

    def add(self, task: Task) -> None:
        """Add a task that runs in this worker."""
        self.here[task.number] = task
        ordered = sorted(self.here.items())
        self.here.clear()
        self.here.update(ordered)

    def remove(self, task: Task) -> None:
        """Remove a task that has moved to another worker."""
        del self.here[task.number]


class LocalBatch(NamedTuple):
    """Tuples passed within the process to a task that has not arrived yet."""

    stream: int
    source: int
    number: int
    values: list[Any]
    marks: list[Mark]
    sent: float


Early = Data | Marker | Credit | LocalBatch  # input that arrives before its task


class _Carrier(Protocol):
    """The part of `TaskExecution` that carries frames to the worker of a task, and wakes a task that has input."""

    hands_over: bool

    def now(self) -> float: ...
    def carry(self, frame: Envelope, source_slot: str, target_slot: str, worker: int) -> None: ...
    def wake(self, task: Task) -> None: ...


class EarlyArrivals(Protocol):
    """The part of `ArrivingTasks` that keeps input for tasks that move here."""

    def awaits(self, task: int) -> bool:
        """Return whether a task that is not here is moving here."""

    def keep(self, task: int, item: Early) -> None:
        """Keep an item until its task has arrived."""

    def settle(self, task: Task, channel: InChannel, marker: MarkerBody) -> None:
        """Note that all input that a channel had sent to a task's old worker has arrived."""


class Exchange(Sender):
    """Sends the output of the tasks of a worker, and delivers their input."""

    def __init__(
        self,
        epoch: int,
        layout: Layout,
        directory: TaskDirectory,
        carrier: _Carrier,
        arrivals: EarlyArrivals,
        tracer: Tracer,
        running: RunningTask,
    ) -> None:
        self.epoch = epoch
        self.directory = directory
        self._layout = layout
        self._codecs = [stream.codec for stream in layout.streams]
        self._carrier = carrier
        self._now = carrier.now
        self._arrivals = arrivals
        self._tracer = tracer
        self._running = running
        self._count_sent: Callable[[int, int], None] | None = None

    def count_sent(self, count: Callable[[int, int], None] | None) -> None:
        """Call a function with the tuples and bytes of every frame that is sent."""
        self._count_sent = count

    # Sending

    def new_id(self, root: int) -> int:
        """Return an id for a sampled tuple."""
        return self._tracer.new_id(root)

    def is_local(self, task: int) -> bool:
        """Return whether a task runs in this process."""
        return self.directory.is_local(task)

    def pump(self, task: Task) -> None:
        """Send all sendable tuples of a task's out-queues, and resume the task if it was blocked."""
        before = self._running.task
        self._running.set(task)
        task.pump()
        self._running.set(before)
        self._carrier.wake(task)

    def send(self, queue: OutQueue, lane: Lane, batch: Batch) -> None:
        """Send tuples to a local or remote task."""
        codec, target, now = self._codecs[queue.stream], lane.target, self._now()
        host = self.directory.hosts[target]
        if host == self.directory.me and self._carrier.hands_over:
            values = self._sendable(queue, batch, codec.hand_over)
            if values:
                self._hand_over(queue, target, lane.spend(len(values)), values, batch.marks, now)
            return
        encoded = self._sendable(queue, batch, codec.encode)
        count = len(batch.values)
        if not count:
            return
        if count > 1 and len(encoded) > codecs.LARGEST_TUPLES:  # each fits alone
            for part in (cut_batch(batch.values, batch.marks, count // 2), batch):
                self.send(queue, lane, part)
            return
        if self._count_sent is not None:
            self._count_sent(count, len(encoded))
        number, source, me = lane.spend(count), queue.source, self.directory.me
        frame = Data(self.epoch, queue.stream, source, target, number, count, now, encoded, tuple(batch.marks), me)
        placement = self.directory.placement
        self._carrier.carry(frame, placement[source], placement[target], host)

    def _hand_over(
        self, queue: OutQueue, target: int, number: int, values: list[Any], marks: list[Mark], now: float
    ) -> None:
        task = self.directory.here.get(target)
        if task is None:
            self._arrivals.keep(target, LocalBatch(queue.stream, queue.source, number, values, marks, now))
            return
        channel = task.inbox.channels[queue.stream, queue.source]
        self._accept(task, channel, number, Delivery(channel, values, marks, now, now, 0, self.directory.me))

    def send_marker(self, queue: OutQueue, lane: Lane, marker: MarkerBody) -> None:
        """Send a marker to a local or remote task; it has a number, like a tuple."""
        slot, host = self.directory.placement[lane.target], self.directory.hosts[lane.target]
        self._carry_marker(queue, lane.target, lane.spend_marker(), marker, slot, host)

    def redirect(self, target: int, move: int, slot: str, host: int) -> None:
        """Put a marker on every channel to a moving task, behind the last item for its old slot and worker."""
        for task in self.directory.here.values():
            for queue in task.queues:
                for lane in queue.lanes:
                    if lane.target == target:
                        self._carry_marker(queue, target, lane.number, MarkerBody(MOVE, move), slot, host)

    def frame_of(self, task: Task, channel: InChannel, number: int, item: Delivery | MarkerBody) -> Data | Marker:
        """Return a frame with an unprocessed item of a task's input."""
        path, me = (channel.stream, channel.source, task.number, number), self.directory.me
        if isinstance(item, MarkerBody):
            return Marker(self.epoch, *path, *item, me)
        item.cut()
        encoded = self._codecs[channel.stream].encode(item.values)
        return Data(self.epoch, *path, len(item.values), item.sent, encoded, tuple(item.marks), item.sender)

    def _carry_marker(
        self, queue: OutQueue, target: int, number: int, marker: MarkerBody, slot: str, host: int
    ) -> None:
        frame = Marker(self.epoch, queue.stream, queue.source, target, number, *marker, self.directory.me)
        self._carrier.carry(frame, self.directory.placement[queue.source], slot, host)

    # Receiving

    def deliver(self, frame: Data | Marker, size: int, at: float) -> None:
        """Deliver a frame that has reached this worker, or forward it to the new worker of its task."""
        task = self.directory.here.get(frame.target)
        if task is None:
            self._forward(frame)
            return
        channel = task.inbox.channels[frame.stream, frame.source]
        if isinstance(frame, Marker):
            self._accept(task, channel, frame.number, MarkerBody(frame.kind, frame.value, frame.origin))
            return
        self._running.set(task)
        values = self._codecs[frame.stream].decode(frame.values, strict=task.guard is None)
        delivery = Delivery(channel, values, frame.marks, frame.sent, at, size, frame.sender)
        self._accept(task, channel, frame.number, delivery)

    def deliver_early(self, task: Task, item: Data | Marker | LocalBatch) -> None:
        """Deliver an item to a task that arrived after it."""
        if not isinstance(item, LocalBatch):
            self.deliver(item, 0, self._now())
            return
        channel = task.inbox.channels[item.stream, item.source]
        delivery = Delivery(channel, item.values, item.marks, item.sent, self._now(), 0, self.directory.me)
        self._accept(task, channel, item.number, delivery)

    def _accept(self, task: Task, channel: InChannel, number: int, item: Delivery | MarkerBody) -> None:
        for marker in task.inbox.accept(channel, number, item):
            self._arrivals.settle(task, channel, marker)
        self._carrier.wake(task)

    def _forward(self, frame: Data | Marker) -> None:
        target, directory = frame.target, self.directory
        if self._arrivals.awaits(target):
            self._arrivals.keep(target, frame)
        else:
            self._carrier.carry(frame, directory.own_slot, directory.placement[target], directory.hosts[target])

    # Tuples that cannot be sent

    def encode(self, queue: OutQueue, batch: Batch) -> bytes:
        """Encode a batch, without the tuples that cannot be sent."""
        return self._sendable(queue, batch, self._codecs[queue.stream].encode)

    def decode(self, queue: OutQueue, waiting: Waiting) -> Batch:
        """Decode tuples that waited in an out-queue on another worker."""
        values = self._codecs[queue.stream].decode(waiting.values, strict=False)
        batch = Batch(values, list(waiting.marks))
        if any(isinstance(value, UnreadableTuple) for value in values):
            self._keep(queue, batch, [value.error if isinstance(value, UnreadableTuple) else None for value in values])
        return batch

    def _sendable(self, queue: OutQueue, batch: Batch, encode: Callable[[list[Any]], Payload]) -> Payload:
        try:
            return encode(batch.values)
        except InvalidInput:
            codec = self._codecs[queue.stream]
            self._keep(queue, batch, [codec.unsendable(value) for value in batch.values])
            return encode(batch.values)

    def _keep(self, queue: OutQueue, batch: Batch, problems: Sequence[BaseException | None]) -> None:
        """Remove the tuples with problems from a batch, in place."""
        marks = index_by_place(batch.marks)
        left = [place for place, problem in enumerate(problems) if problem is None]
        for place, problem in enumerate(problems):
            if problem is not None:
                self.refuse(queue, "emits", batch.values[place], marks.get(place), problem)
        batch.values[:] = [batch.values[place] for place in left]
        batch.marks[:] = [move_mark(marks[place], new) for new, place in enumerate(left) if place in marks]

    def refuse(self, queue: OutQueue, name: str, value: Any, mark: Mark | None, error: BaseException) -> None:
        """Skip an emitted tuple that cannot be sent, or end the run, according to its task's error policy."""
        before = self._running.task
        task = self.directory.here.get(queue.source) or before
        self._running.set(task)
        where = ""
        if name == "key":
            stream = self._layout.streams[queue.stream]
            where = f"the key {', '.join(map(key_name, stream.outlet.keys))} of {stream.label}".replace("  ", " ")
        if task is None or task.guard is None:
            raise UserError(shown(value), where) from error
        task.guard.give_up(name, value, error, where)
        if mark is not None:
            self._tracer.ack(mark.root, mark.id, self._now())
        self._running.set(before)
