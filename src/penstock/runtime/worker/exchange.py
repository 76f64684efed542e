"""The traffic of a worker, without I/O: what its tasks send, and what comes to them.

Tuples, markers and credits go from task to task, wherever each is: within the process they are handed over, else they
leave in frames. What comes is checked for order, put into inboxes, and acted on when its turn has come.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from penstock.api.keys import key_name
from penstock.model.errors import InvalidInput
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import codec as codecs
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.codec import Unreadable
from penstock.runtime.protocol.frames import (
    BARRIER,
    END,
    MOVE,
    PROGRESS,
    Credit,
    Data,
    Farewell,
    Frame,
    Mark,
    Marker,
    State,
    Waiting,
)
from penstock.runtime.protocol.wire import encode
from penstock.runtime.worker.checkpoint import Saving
from penstock.runtime.worker.execution.interface import Execution
from penstock.runtime.worker.input import Delivery, InChannel
from penstock.runtime.worker.lane import Batch, Lane, MarkerOf, by_place, cut, moved
from penstock.runtime.worker.logic import UserError, shown
from penstock.runtime.worker.migration import Local, Moves
from penstock.runtime.worker.output import OutQueue, Sender
from penstock.runtime.worker.task import Task
from penstock.runtime.worker.tracing import Tracker
from penstock.runtime.worker.tuple_policies import Ruling

Envelope = Data | Marker | State  # what is routed to a task's host
Made = TypeVar("Made")


class BrokenProtocol(RuntimeError):
    """Frames that cannot be: a defect, or a damaged connection."""


class Exchange(Sender):
    """The tasks of a worker, and what goes from and to them; `Worker` begins and ends its epochs.

    `where` is the worker of every task, as the last command said, `placement` its slot; a task that is here is in
    `tasks`.
    """

    layout: Layout
    out: dict[int, list[bytes]]  # frames for each worker
    told: list[worker_messages.WorkerMessage]
    epoch: int
    me: int  # number of this worker
    assigned: controller_messages.Assign
    where: list[int]
    placement: list[str]
    tasks: dict[int, Task]
    current: Task | None  # whose code runs
    ruling: Ruling | None  # None: no tuple policy is in force
    execution: Execution
    moves: Moves
    saving: Saving
    tracker: Tracker

    # What leaves

    def new_id(self, root: int) -> int:
        """Return an id for a sampled tuple that was made."""
        return self.tracker.made(root)

    def is_local(self, task: int) -> bool:
        """Say whether a task runs in this process."""
        return self.where[task] == self.me

    def send(self, queue: OutQueue, lane: Lane, batch: Batch) -> None:
        """Send tuples to a task, wherever it is."""
        codec, now = self.layout.streams[queue.stream].codec, self.execution.now()
        handed: list[Any] | None = None
        if self.where[lane.target] == self.me and self.execution.hands_over:
            handed = self._sendable(queue, batch, codec.hand_over)
        else:
            values = self.encoded(queue, batch)
        number, count = lane.number, len(batch.values)
        if not count:
            return
        if handed is None and count > 1 and len(values) > codecs.LARGEST_TUPLES:  # each alone fits
            for part in (cut(batch.values, batch.marks, count // 2), batch):
                self.send(queue, lane, part)
            return
        lane.number += count
        lane.credits -= count
        if handed is not None:
            self._hand_over(queue, lane.target, number, handed, batch.marks, now)
            return
        if self.ruling is not None:
            self.ruling.sent(count, len(values))
        marks = tuple(batch.marks)
        frame = Data(self.epoch, queue.stream, queue.source, lane.target, number, count, now, values, marks, self.me)
        self.execution.carry(frame, self.placement[queue.source], self.placement[lane.target], self.where[lane.target])

    def encoded(self, queue: OutQueue, batch: Batch) -> bytes:
        """Encode a batch, out of which those are taken that cannot travel."""
        return self._sendable(queue, batch, self.layout.streams[queue.stream].codec.encode)

    def _sendable(self, queue: OutQueue, batch: Batch, how: Callable[[list[Any]], Made]) -> Made:
        try:
            return how(batch.values)
        except InvalidInput:
            codec = self.layout.streams[queue.stream].codec
            self._keep(queue, batch, [codec.unsendable(value) for value in batch.values])
            return how(batch.values)

    def decoded(self, queue: OutQueue, waiting: Waiting) -> Batch:
        """Decode what waited in an out-queue elsewhere."""
        values = self.layout.streams[queue.stream].codec.decoded(waiting.values)
        batch = Batch(values, list(waiting.marks))
        if any(isinstance(value, Unreadable) for value in values):
            self._keep(queue, batch, [value.error if isinstance(value, Unreadable) else None for value in values])
        return batch

    def _keep(self, queue: OutQueue, batch: Batch, problems: Sequence[BaseException | None]) -> None:
        """Keep the tuples of a batch that nothing is the matter with, in place."""
        marks = by_place(batch.marks)
        left = [place for place, problem in enumerate(problems) if problem is None]
        for place, problem in enumerate(problems):
            if problem is not None:
                self.refuse(queue, "gives", batch.values[place], marks.get(place), problem)
        batch.values[:] = [batch.values[place] for place in left]
        batch.marks[:] = [moved(marks[place], new) for new, place in enumerate(left) if place in marks]

    def refuse(self, queue: OutQueue, name: str, value: Any, mark: Mark | None, error: BaseException) -> None:
        """Skip a tuple that a task gave and that cannot be sent, or end the run, as its error policy says."""
        task = self.tasks.get(queue.source) or self.current
        before, self.current = self.current, task
        where = ""
        if name == "key":
            stream = self.layout.streams[queue.stream]
            where = f"the key {', '.join(map(key_name, stream.outlet.keys))} of {stream.label}".replace("  ", " ")
        if task is None or task.guard is None:
            raise UserError(shown(value), where) from error
        task.guard.give_up(name, value, error, where)
        if mark is not None:
            self.tracker.ack(mark.root, mark.id, self.execution.now())
        self.current = before

    def send_marker(self, queue: OutQueue, lane: Lane, marker: MarkerOf) -> None:
        """Send a marker to a task, wherever it is; it has a number as a tuple has."""
        self.send_marker_to(queue, lane, marker, self.placement[lane.target], self.where[lane.target])
        lane.number += 1

    def send_marker_to(self, queue: OutQueue, lane: Lane, marker: MarkerOf, slot: str, worker: int) -> None:
        """Send a marker to a slot where its task is, or was."""
        kind, value, origin = marker
        frame = Marker(self.epoch, queue.stream, queue.source, lane.target, lane.number, kind, value, origin, self.me)
        self.execution.carry(frame, self.placement[queue.source], slot, worker)

    def _hand_over(
        self, queue: OutQueue, target: int, number: int, values: list[Any], marks: list[Mark], now: float
    ) -> None:
        task = self.tasks.get(target)
        if task is None:  # it is on its way here
            self.moves.keep(target, Local(queue.stream, queue.source, number, values, marks, now))
            return
        channel = task.inputs[queue.stream, queue.source]
        self.accept(task, channel, number, Delivery(channel, values, marks, now, now, 0, self.me))

    def post(self, worker: int, frame: Frame | Farewell) -> None:
        """Leave a frame for the shell to send."""
        self.out.setdefault(worker, []).append(encode(frame))

    def pump(self, task: Task) -> None:
        """Send what may be sent of a task's out-queues, and let it go on if it had to wait for that."""
        before, self.current = self.current, task
        for queue in task.queues:
            queue.pump()
        self.current = before
        self.execution.relieved(task)

    # What comes

    def deliver(self, frame: Envelope, size: int, now: float) -> None:
        """Take a frame that has reached this worker for good, or pass it on to where its task has gone."""
        if isinstance(frame, State):
            self.moves.arrive(frame)
            return
        task = self.tasks.get(frame.target)
        if task is None:
            self._deliver_elsewhere(frame)
            return
        channel = task.inputs[frame.stream, frame.source]
        if isinstance(frame, Marker):
            marker = MarkerOf(frame.kind, frame.value, frame.origin)
            self.accept(task, channel, frame.number, marker)
            return
        self.current = task
        values = self.layout.streams[frame.stream].codec.decoded(frame.values, strict=task.guard is None)
        delivery = Delivery(channel, values, frame.marks, frame.sent, now, size, frame.sender)
        self.accept(task, channel, frame.number, delivery)

    def _deliver_elsewhere(self, frame: Data | Marker) -> None:
        if self.moves.awaits(frame.target):
            self.moves.keep(frame.target, frame)
        else:
            worker = self.where[frame.target]
            self.execution.carry(frame, self.slot_here(), self.placement[frame.target], worker)

    def slot_here(self) -> str:
        """Return a slot of this worker."""
        return next(slot for slot, worker in self.assigned.slots.items() if worker == self.me)

    def accept(self, task: Task, channel: InChannel, number: int, item: Delivery | MarkerOf) -> None:
        """Put what came on a channel into the inbox, in the order of its numbers.

        The marker of a move comes over the old host, so that later tuples may have come before it.
        """
        overtaken = isinstance(item, MarkerOf) and item.kind == MOVE and number < channel.expected
        if number != channel.expected and not overtaken:
            if number < channel.expected:
                problem = f"expected tuple {channel.expected} of {channel.stream}/{channel.source}, got {number}"
                raise BrokenProtocol(f"{task.name}: {problem}")
            channel.held.setdefault(number, deque()).append(item)
            return
        self._enqueue(task, channel, item)
        while channel.held and channel.expected in channel.held:
            for held in channel.held.pop(channel.expected):
                self._enqueue(task, channel, held)

    def _enqueue(self, task: Task, channel: InChannel, item: Delivery | MarkerOf) -> None:
        if isinstance(item, Delivery):
            channel.expected += len(item.values)
            task.active += not channel.queued
            task.queued += len(item.values)
            channel.queued += len(item.values)
            (task.aside if channel.barred else task.inbox).append(item)
        elif item.kind == MOVE:
            self.moves.settle(task, channel, item)
        else:
            channel.expected += 1
            (task.aside if channel.barred else task.inbox).append((channel, item))
        self.execution.arrived(task)

    def credit(self, frame: Credit) -> None:
        """Add credit to a lane, wherever its task is."""
        task = self.tasks.get(frame.source)
        if task is None:
            if self.moves.awaits(frame.source):
                self.moves.keep(frame.source, frame)
            else:
                self.post(self.where[frame.source], frame)
            return
        before, self.current = self.current, task  # whose tuples it is that are sent now
        for queue in task.queues:
            if queue.stream == frame.stream:
                for place, lane in enumerate(queue.lanes):
                    if lane.target == frame.target:
                        lane.credits += frame.amount
                        lane.ahead = frame.price
                        if frame.wider:
                            lane.window += frame.wider
                            queue.resize()
                        if queue.chooser is not None:
                            queue.chooser.heard(place, frame)
                queue.pump()
        self.current = before
        self.execution.relieved(task)

    # What execution calls

    def processed(self, task: Task, channel: InChannel, count: int, arrived: float) -> None:
        """Count tuples that a task has processed, and give their sender credit once there are enough."""
        task.processed += count
        task.counted += count
        channel.consumed += count
        channel.queued -= count
        task.active -= not channel.queued
        task.pace.processed(count, arrived, self.execution.now())
        if self.ruling is not None:
            self.ruling.processed(task, channel)
        if channel.consumed >= max(1, channel.granted // 4):
            self.give_credit(task, channel)

    def give_credit(self, task: Task, channel: InChannel) -> None:
        """Let a channel's sender send more: as much as has been processed, or more or less where its window changes."""
        wider = max(self._wider(task, channel), -channel.consumed)
        amount, channel.consumed = channel.consumed + wider, 0
        channel.granted += wider
        if not amount and not wider and self.ruling is None:
            return
        seconds, price = (0.0, 0.0) if self.ruling is None else self.ruling.credited(task, channel)
        way = (channel.stream, channel.source, task.number)
        self.credit(Credit(self.epoch, *way, amount, task.queued, channel.expected, seconds, price, wider))

    def _wider(self, task: Task, channel: InChannel) -> int:
        """Return by how much a channel's window should change; small changes are not worth the trouble."""
        window = self.execution.window(task.pace.seconds, max(1, task.active + (not channel.queued)))
        change = window - channel.granted
        return change if window == self.assigned.window or 4 * abs(change) > channel.granted else 0

    def take_marker(self, task: Task, channel: InChannel, marker: MarkerOf) -> None:
        """Act on a marker that has come to the head of an inbox."""
        if marker.kind == END:
            if not channel.ended:
                channel.ended = True
                task.open_channels -= 1
            if task.open_channels == 0:
                self.end(task)
        elif marker.kind == BARRIER:
            self.saving.barrier(task, channel, marker.value)
        elif marker.kind == PROGRESS:
            self._progress(task, channel, marker)

    def end(self, task: Task) -> None:
        """Finish a task that gets nothing more, and tell those after it."""
        self.current = task
        made = task.finish()
        if made:
            task.put(made)
        task.end()
        task.ended = True
        if not task.publishes:  # else it is closed when what it wrote last has been published
            task.close()
        self.told.append(worker_messages.Ended(self.epoch, task.number, task.counted))

    def _progress(self, task: Task, channel: InChannel, marker: MarkerOf) -> None:
        """Pass a source's progress on when every way from it has come so far."""
        origin = marker.origin
        before = self._least_progress(task, origin)
        channel.progress[origin] = max(channel.progress.get(origin, 0), marker.value)
        now = self._least_progress(task, origin)
        if now <= before:
            return
        if task.queues:
            task.put_marker(MarkerOf(PROGRESS, now, origin))
        else:
            self.told.append(worker_messages.SinkProgress(self.epoch, task.number, origin, now))

    def _least_progress(self, task: Task, origin: int) -> int:
        channels = self.layout.progress_channels(task.number, origin)
        return min(task.inputs[channel].progress.get(origin, 0) for channel in channels)
