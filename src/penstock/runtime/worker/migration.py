"""Moves tasks between workers while tuples flow, without losing a tuple, and in order.

Every worker receives the command. Those that send to the task put a marker on the old channel and switch to the new
worker. The old worker sends the task's state, then its unprocessed input, and forwards later input; numbers restore the
order at the new worker. The move is complete when every channel's marker has arrived there.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.frames import Envelope, MarkerBody, MovingTask
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.routing import Early, Exchange, TaskDirectory
from penstock.runtime.worker.task import Task

Report = Callable[[worker_messages.WorkerMessage], None]


class CannotLeave(RuntimeError):
    """A task whose state cannot be moved, or whose files cannot be written to the disk."""


class _Unsettled(NamedTuple):
    """A task that has arrived before all input that was in flight to it."""

    move: int
    left: float  # start of its suspension; clock of the worker that it left
    channels: int  # channels whose marker has not arrived


class ArrivingTasks:
    """The tasks that move here in one epoch: input that arrives before them, and channels that are not settled."""

    def __init__(self, epoch: int, directory: TaskDirectory, now: Callable[[], float], report: Report) -> None:
        self._epoch = epoch
        self._directory = directory
        self._now = now
        self._report = report
        self._early: dict[int, list[Early]] = {}
        self._unsettled: dict[int, _Unsettled] = {}
        self._passed: dict[int, list[tuple[InChannel, MarkerBody]]] = {}  # markers that must follow their task
        self.deferred: MovingTask | None = None  # of a task that arrived before the command to move it

    def awaits(self, task: int) -> bool:
        """Return whether a task that is not here is moving here."""
        return self._directory.is_local(task) or (self.deferred is not None and self.deferred.task == task)

    def keep(self, task: int, item: Early) -> None:
        """Keep an item until its task has arrived."""
        self._early.setdefault(task, []).append(item)

    def defer(self, state: MovingTask) -> None:
        """Keep a task until the command to move it has arrived."""
        self.deferred = state

    def take_deferred(self) -> MovingTask | None:
        """Return the task that waits for the command."""
        state, self.deferred = self.deferred, None
        return state

    def take_early(self, task: int) -> list[Early]:
        """Return the input that arrived before its task."""
        return self._early.pop(task, [])

    def take_passed(self, task: int) -> list[tuple[InChannel, MarkerBody]]:
        """Return the markers of a move that have passed a departing task."""
        return self._passed.pop(task, [])

    def arrived(self, task: Task, state: MovingTask) -> None:
        """Note that a task has arrived; the input that was in flight to it follows."""
        self._unsettled[task.number] = _Unsettled(state.move, state.left, len(task.inbox.channels))
        self._report_if_settled(task)

    def settle(self, task: Task, channel: InChannel, marker: MarkerBody) -> None:
        """Note that all input that a channel had sent to a task's old worker has arrived."""
        unsettled = self._unsettled.get(task.number)
        if unsettled is None or unsettled.move != marker.value:  # this is the old worker
            self._passed.setdefault(task.number, []).append((channel, marker))
            return
        self._unsettled[task.number] = unsettled._replace(channels=unsettled.channels - 1)
        self._report_if_settled(task)

    def _report_if_settled(self, task: Task) -> None:
        move, left, channels = self._unsettled[task.number]
        if channels == 0:
            del self._unsettled[task.number]
            self._report(worker_messages.Moved(self._epoch, move, left, self._now()))


class _Host(Protocol):
    """The part of `Worker` that runs its tasks."""

    def open_task(self, task: int, slot: str, ended: bool) -> Task: ...
    def add_task(self, task: Task) -> None: ...
    def remove_task(self, task: Task) -> None: ...
    def receive_early(self, task: Task, item: Early) -> None: ...


class _Slots(Protocol):
    """The part of `TaskExecution` that runs tasks in slots, and carries frames between them."""

    def now(self) -> float: ...
    def is_idle(self, task: Task) -> bool: ...
    def change_slot(self, task: Task, slot: str) -> None: ...
    def carry(self, frame: Envelope, source_slot: str, target_slot: str, worker: int) -> None: ...


class Migration:
    """A worker's part in moves, in one epoch."""

    def __init__(
        self,
        directory: TaskDirectory,
        exchange: Exchange,
        arrivals: ArrivingTasks,
        slots: _Slots,
        host: _Host,
        report: Report,
    ) -> None:
        self._directory = directory
        self._exchange = exchange
        self._epoch = exchange.epoch
        self._arrivals = arrivals
        self._slots = slots
        self._host = host
        self._report = report
        self._last = 0  # number of the last commanded move

    def redirect(self, move: controller_messages.PerformMove) -> bool:
        """Switch the channels to a moving task, and suspend it if it is local; return whether it changes workers."""
        directory, task = self._directory, self._directory.here.get(move.task)
        slot, host = directory.relocate(move.task, move.slot)
        self._last = move.move
        if host != directory.hosts[move.task]:
            if task is not None:
                task.leave(move.move, self._slots.now())
            self._exchange.redirect(move.task, move.move, slot, host)
            return True
        if task is not None:  # to another slot of this worker
            task.release()
            self._slots.change_slot(task, move.slot)
            self._report(worker_messages.Moved(self._epoch, move.move, now := self._slots.now(), now))
        return False

    def proceed(self, task: Task | None) -> None:
        """Send off a departing task, and admit one that arrived before the command."""
        if task is not None and task.leaving >= 0 and self._slots.is_idle(task):
            self.depart(task)
        state = self._arrivals.take_deferred()
        if state is not None:
            self.arrive(state)

    def depart(self, task: Task) -> None:
        """Send a task to its new worker, followed by its unprocessed input."""
        problem = task.save_for_move()
        if problem:  # its state has grown unexpectedly, or the disk is full; it stays, in a new epoch
            raise CannotLeave(f"task {task.name}: {problem}")
        directory, old_slot = self._directory, task.slot
        slot, host = directory.placement[task.number], directory.hosts[task.number]
        state = task.departing_state(self._epoch, slot, self._slots.now(), self._exchange.encode)
        contents = task.inbox.contents(self._arrivals.take_passed(task.number))
        left_behind = [self._exchange.frame_of(task, *content) for content in contents]
        task.clear()
        self._host.remove_task(task)
        for frame in (state, *left_behind):
            self._slots.carry(frame, old_slot, slot, host)

    def arrive(self, state: MovingTask) -> None:
        """Run a task that arrives from another worker."""
        if state.move > self._last:
            self._arrivals.defer(state)
            return
        directory, number = self._directory, state.task
        if not directory.is_local(number):  # a machine on its path had an older placement
            self._slots.carry(state, directory.own_slot, directory.placement[number], directory.hosts[number])
            return
        task = self._host.open_task(number, state.slot, state.ended)
        task.load(state, self._slots.now(), self._exchange.decode)
        self._host.add_task(task)
        self._arrivals.arrived(task, state)
        for item in self._arrivals.take_early(number):
            self._host.receive_early(task, item)
        task.pump()
