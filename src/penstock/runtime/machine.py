"""A worker without I/O: frames and commands in, frames and reports out.

A shell hands it what comes over the network (`frame`, `command`), gives it time (`turn`) and carries away what it
leaves in `out`, `told` and the tracker's records. Several of them, a controller and a clock in one process make a whole
cluster that a test can replay. Tasks are run to completion, in topological order, so that a tuple passes through all
tasks of a slot in one turn.
"""

import math
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow
from penstock.model.errors import FileProblem, PenstockError
from penstock.model.telemetry import RecordKind
from penstock.runtime import opening
from penstock.runtime.channels import OutQueue, Sender
from penstock.runtime.emulated import Emulated
from penstock.runtime.execution import Direct, Execution
from penstock.runtime.lanes import Batch, Lane, MarkerOf
from penstock.runtime.layout import Layout
from penstock.runtime.logic import UserError, call
from penstock.runtime.messages import commands, tellings
from penstock.runtime.messages.frames import (
    BARRIER,
    END,
    MOVE,
    PROGRESS,
    Credit,
    Data,
    Frame,
    Mark,
    Marker,
    State,
    decode_frame,
)
from penstock.runtime.messages.wire import encode
from penstock.runtime.moving import Local, Moves
from penstock.runtime.ruling import Ruling, ruling_of
from penstock.runtime.saving import Saving
from penstock.runtime.storage import Job
from penstock.runtime.tasks import Delivery, InChannel, Task
from penstock.runtime.tracking import Sampler, Tracker

REPORT_S = 0.25
FLUSH_S = 1.0

Envelope = Data | Marker | State  # what is routed to a task's host


class BrokenProtocol(RuntimeError):
    """Frames that cannot be: a defect, or a damaged connection."""


class Worker(Sender):
    """One worker process.

    `phase` goes from `new` over `restoring` and `assigned` to `running`, and through these again in every epoch; it
    ends in `stopped`, or in `failed` until the next epoch. `where` is the worker of every task, as the last command
    said; a task that is here is in `tasks`.
    """

    def __init__(
        self,
        flow: Dataflow,
        run: str,
        clock: Callable[[], float],
        *,
        cpu_seconds: Callable[[], float] = lambda: 0.0,
        memory_mb: Callable[[], float | None] = lambda: None,
        capacity: tuple[float, float] | None = None,
        wake: Callable[[], None] = lambda: None,
        unsent: Callable[[], int] = lambda: 0,
        layout: Layout | None = None,
    ) -> None:
        self.layout = layout or Layout(flow)  # one that is there already saves making it again
        self.run = run
        self.clock = clock
        self.phase = "new"
        self.out: dict[int, list[bytes]] = {}  # frames for each worker
        self.told: list[tellings.Telling] = []
        self.storing: list[Job] = []  # for the shell to do, in order
        self.lease = math.inf  # when it stops, unless it is heard that the controller still counts on it
        self.epoch = 0
        self.assigned: commands.Assign
        self.limits: dict[str, float] = {}  # source component -> tuples a second of all its tasks
        self.tasks: dict[int, Task] = {}
        self.current: Task | None = None  # whose code runs
        self.turns = 0
        self._cpu_seconds = cpu_seconds
        self._process_mb = memory_mb  # that the process uses, where it is a real one
        self._host = capacity  # cores and memory, which other workers there have too
        self.wake = wake
        self._unsent = unsent  # bytes that the shell has not sent yet to the worker that it has most for
        self.ruling: Ruling | None = None  # None: no tuple policy is in force
        self._let_go: Callable[[], None] = lambda: None  # what the execution has beyond this process
        self._last_report = self._last_cpu = 0.0
        self._next_report = self._next_flush = math.inf

    def command(self, message: commands.Command) -> None:
        """Do what the controller says."""
        match message:
            case commands.Pulse():
                self.lease = message.at + self.assigned.lease_s
            case commands.Ping():
                self.told.append(tellings.Pong(message.number, self.clock()))
            case commands.Assign():
                self.guarded(lambda: self._assign(message))
            case commands.Limit():  # also while states are being read, of which nobody tells the controller
                if message.epoch == self.epoch:
                    self.limits = message.limits
            case commands.Stop():
                self._close("stopped")
            case _ if self.phase not in ("assigned", "running") or message.epoch != self.epoch:
                return
            case commands.Go():
                self._go()
            case commands.Peers() | commands.Drain() | commands.Progressed():
                self._note(message)
            case _:
                self.execution.begin()
                self.guarded(lambda: self._operate(message))

    def _note(self, message: commands.Peers | commands.Drain | commands.Progressed) -> None:
        """Take note of something that the next turn goes by."""
        match message:
            case commands.Peers():
                self.assigned = msgspec.structs.replace(self.assigned, peers=message.peers, slots=message.slots)
            case commands.Drain():
                self.draining = True
                for task in self.tasks.values():
                    task.finishing = task.is_source
            case commands.Progressed():
                if message.task in self.tasks:
                    task = self.tasks[message.task]
                    task.progressed = max(task.progressed, message.value)

    def frame(self, data: bytes) -> None:
        """Take a frame from another worker."""
        frame = decode_frame(data)
        if self.phase not in ("assigned", "running") or frame.epoch != self.epoch:
            return
        self.execution.begin()
        if isinstance(frame, Credit):
            self.guarded(lambda: self.credit(frame))
        else:
            self.guarded(lambda: self.execution.receive(frame, len(data)))

    def turn(self) -> bool:
        """Work for a bounded while; return whether there is more to do at once."""
        self.turns += 1
        if self.clock() > self.lease:
            self._close("stopped")
        if self.phase != "running":
            return False
        try:
            busy = self.execution.turn(self.clock())
            if self.saving.busy:
                self.saving.turn()
                busy = True
        except Exception as error:
            self._fail(error)
            return False
        now = self.clock()
        if now >= self._next_report:
            self._report(now)
        if now >= self._next_flush:
            self._next_flush = now + FLUSH_S
            self.guarded(lambda: self._flush(now))
        return busy and self.phase == "running"

    def wakeup(self) -> float:
        """Return when the next turn is due at the latest."""
        if self.phase != "running":
            return math.inf
        return min(self._next_report, self.execution.wakeup())

    # Beginning and end

    def _assign(self, assign: commands.Assign) -> None:
        self._discard()
        self.out, self.phase = {}, "restoring"
        self.epoch, self.me = assign.epoch, assign.worker
        self.assigned, self.limits = assign, assign.limits
        self.placement = list(assign.placement)
        self.where = [assign.slots[slot] for slot in self.placement]
        self.tracker = Tracker(
            self.run,
            assign.peers[assign.worker].name,
            assign.incarnation,
            seed=assign.seed,
            epoch=assign.epoch,
            keep=bool(assign.telemetry),
            emulated=assign.emulated is not None,
        )
        self.draining = False
        self.moves = Moves(self)
        self.saving = Saving(self)
        self.departed: list[tellings.TaskReport] = []  # of tasks that have left since the last report
        self.samplers: dict[int, Sampler] = {}
        self.execution: Execution = Direct(self) if assign.emulated is None else Emulated(self)
        self._let_go = self.execution.close
        self.ruling = ruling_of(self, assign.rules)
        opening.begin(self, assign)

    def add_task(self, task: Task) -> None:
        """Begin to run a task that is open."""
        self.tasks[task.number] = task
        self.tasks = dict(sorted(self.tasks.items()))
        self.samplers.setdefault(task.number, Sampler(self.assigned.sample_tps))
        self.execution.added(task)
        if self.ruling is not None:
            self.ruling.added(task)

    def _go(self) -> None:
        self.phase = "running"
        now = self.clock()
        self._last_report, self._last_cpu = now, self._cpu_seconds()
        self._next_report, self._next_flush = now + REPORT_S, now + FLUSH_S

    def _operate(self, message: commands.Command) -> None:
        """Do this worker's part of an operation."""
        match message:
            case commands.Checkpoint():
                self.saving.begin(message.number)
            case commands.Abort():
                self.saving.abort(message.number)
            case commands.Completed():
                self.saving.complete(message.number)
            case commands.Routes():
                self.execution.reroute(message.routes)
            case commands.Switch():
                self._switch(message.rules)
            case commands.Move():
                self.moves.begin(message)
            case commands.Prepare():
                task = self.current = self.tasks.get(message.task)
                problem = "it is not here" if task is None else task.prepare(message.move, self.execution.now())
                self.told.append(tellings.Prepared(self.epoch, message.move, problem))
            case commands.Release():
                task = self.tasks.get(message.task)
                if task is not None and task.preparing == message.move:
                    task.release()
                    self.execution.relieved(task)

    def _switch(self, rules: commands.Rules) -> None:
        """Route and send by other policies: what waits unbound, or for the gate, is decided by these."""
        self.assigned = msgspec.structs.replace(self.assigned, rules=rules)
        if self.ruling is not None and self.ruling.weighed(rules):
            return
        self.ruling = ruling_of(self, rules)
        for task in self.tasks.values():
            for queue in task.queues:
                queue.chooser = queue.gate = None
            if self.ruling is not None:
                self.ruling.added(task)
        for task in list(self.tasks.values()):
            if self.tasks.get(task.number) is task:  # what is sent may let one leave, or end
                self.pump(task)

    def pump(self, task: Task) -> None:
        """Send what may be sent of a task's out-queues, and let it go on if it had to wait for that."""
        before, self.current = self.current, task
        for queue in task.queues:
            queue.pump()
        self.current = before
        self.execution.relieved(task)

    def _flush(self, now: float) -> None:
        for task in self.tasks.values():
            if isinstance(task.logic, Sink) and not task.ended and not task.stands:
                self.current = task
                call(task.logic.flush, now)
            if task.guard is not None and not task.stands:
                self.current = task
                task.guard.flush(now)

    def _close(self, phase: str) -> None:
        if self.phase == "stopped":
            return
        if self.phase == "running":
            self._report(self.clock())
        self._discard()
        self.phase = phase

    def _discard(self) -> None:
        """Close what is open; an author's `close` may fail in its own way, which is no reason to stay."""
        for task in self.tasks.values():
            try:
                task.let_go()
            except UserError as error:
                self.told.append(self._failure(task, error))
        self.tasks = {}
        self._let_go()

    def guarded(self, step: Callable[[], None]) -> None:
        """Do something; whatever it raises is told, and ends the epoch or the run."""
        try:
            step()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.told.append(self._failure(self.current, error))
        self._discard()
        self.phase = "failed"

    def _failure(self, task: Task | None, error: Exception) -> tellings.Failure:
        cause = error.__cause__ if isinstance(error, UserError) and error.__cause__ is not None else error
        text = str(cause) if isinstance(cause, PenstockError) else f"{type(cause).__name__}: {cause}"
        return tellings.Failure(
            self.epoch,
            task.component.name if task else "",
            task.context.task if task else -1,
            error.value if isinstance(error, UserError) else "",
            text,
            "".join(traceback.format_exception(cause)),
            self._is_users(error, cause),
        )

    def _is_users(self, error: Exception, cause: BaseException) -> bool:
        """Say whether an error would come again: not one of a disk that keeps tasks from being opened once more."""
        if self.phase == "restoring" and self.epoch > 1 and isinstance(cause, FileProblem | OSError):
            return False
        return isinstance(error, UserError | PenstockError)

    # Sending

    def new_id(self, root: int) -> int:
        """Return an id for a sampled tuple that was made."""
        return self.tracker.made(root)

    def is_local(self, task: int) -> bool:
        """Say whether a task runs in this process."""
        return self.where[task] == self.me

    def send(self, queue: OutQueue, lane: Lane, batch: Batch) -> None:
        """Send tuples to a task, wherever it is."""
        number, count = lane.number, len(batch.values)
        lane.number += count
        lane.credits -= count
        codec, now = self.layout.streams[queue.stream].codec, self.execution.now()
        if self.where[lane.target] == self.me and self.execution.hands_over:
            self._hand_over(queue, lane.target, number, codec.hand_over(batch.values), batch.marks, now)
            return
        values = codec.encode(batch.values)
        if self.ruling is not None:
            self.ruling.sent(count, len(values))
        marks = tuple(batch.marks)
        frame = Data(self.epoch, queue.stream, queue.source, lane.target, number, count, now, values, marks, self.me)
        self.execution.carry(frame, self.placement[queue.source], self.placement[lane.target], self.where[lane.target])

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

    def unsent(self) -> int:
        """Return how many bytes wait to be sent to other workers, by the shell or for it."""
        return self._unsent() + sum(len(frame) for frames in self.out.values() for frame in frames)

    def post(self, worker: int, frame: Frame) -> None:
        """Leave a frame for the shell to send."""
        self.out.setdefault(worker, []).append(encode(frame))

    # Receiving

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
        values = self.layout.streams[frame.stream].codec.decode(frame.values)
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
            task.queued += len(item.values)
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
        if self.ruling is not None:
            self.ruling.processed(task, channel, count, arrived)
        if channel.consumed >= max(1, self.assigned.window // 4):
            self.give_credit(task, channel)

    def give_credit(self, task: Task, channel: InChannel) -> None:
        """Let a channel's sender send more: as much as has been processed."""
        amount, channel.consumed = channel.consumed, 0
        seconds, price = (0.0, 0.0) if self.ruling is None else self.ruling.credited(task, channel)
        way = (channel.stream, channel.source, task.number)
        self.credit(Credit(self.epoch, *way, amount, task.queued, channel.expected, seconds, price))

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
        self.told.append(tellings.Ended(self.epoch, task.number, task.counted))

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
            self.told.append(tellings.Passed(self.epoch, task.number, origin, now))

    def _least_progress(self, task: Task, origin: int) -> int:
        channels = self.layout.progress_channels(task.number, origin)
        return min(task.inputs[channel].progress.get(origin, 0) for channel in channels)

    # Reporting

    def _report(self, now: float) -> None:
        interval = max(now - self._last_report, 1e-9)
        tasks = [*self.departed, *(self.task_report(task, now) for task in self.tasks.values())]
        self.departed = []
        roots, acks = self.tracker.take()
        cpu_now = self._cpu_seconds()
        cpu, lag, warning = self.execution.load(now, interval, (cpu_now - self._last_cpu) / interval)
        self.tracker.record(
            RecordKind.MACHINE,
            now,
            interval=interval,
            busy=cpu,
            lag=lag,
            memory_mb=self._memory_mb(),
            **self._capacity(),
        )
        self.told.append(tellings.Report(self.epoch, now, interval, tuple(tasks), roots, acks, cpu, lag, warning))
        self._last_report, self._last_cpu = now, cpu_now
        self._next_report = now + REPORT_S

    def _memory_mb(self) -> float | None:
        """Return the memory in use: the process's, or what the tasks of an emulated machine declare."""
        if self.assigned.emulated is None:
            return self._process_mb()
        return sum(task.component.memory_mb for task in self.tasks.values())

    def _capacity(self) -> dict[str, float]:
        """Return what the machine has: the host, or the emulated machine; nothing where neither is known."""
        found = self.execution.capacity() or self._host
        return {} if found is None else {"capacity_cpu": found[0], "capacity_mb": found[1]}

    def task_report(self, task: Task, now: float) -> tellings.TaskReport:
        """Return what a task did since the last report, and begin to count anew."""
        report = task.report(now)
        self.tracker.record(
            RecordKind.TASK,
            now,
            task=task.name,
            interval=max(now - self._last_report, 1e-9),
            processed=report.processed,
            given=report.given,
            queue=report.queue,
            waiting_out=report.waiting_out,
            busy=report.busy,
            blocked=report.blocked,
        )
        return report
