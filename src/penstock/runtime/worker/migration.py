"""Moves a task from one worker to another while tuples flow, without losing one and in order.

Every worker is told of a move. Those that send to the task put a marker on the old channel and switch to the new host.
The old host sends the task's state, then whatever has come for it, and goes on forwarding what still comes; numbers put
everything into order at the new host. The move is over when every channel's marker has come there.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.frames import MOVE, Credit, Data, Frame, Mark, Marker, State
from penstock.runtime.worker import task_opening as opening
from penstock.runtime.worker.input import Delivery, InChannel
from penstock.runtime.worker.lane import MarkerOf
from penstock.runtime.worker.task import Task

if TYPE_CHECKING:
    from penstock.runtime.worker.state_machine import Worker


class Local(NamedTuple):
    """Tuples handed over within the process to a task that is on its way here."""

    stream: int
    source: int
    number: int
    values: list[Any]
    marks: list[Mark]
    sent: float


class CannotLeave(RuntimeError):
    """A task whose state cannot travel, or whose files the disk does not take."""


class Moves:
    """A worker's part in moves, in one epoch.

    `early` holds what has come for tasks that are on their way here; `ahead` a task that came before the command which
    says so; `moved` is the number of the last move that was commanded.
    """

    def __init__(self, worker: "Worker") -> None:
        self.worker = worker
        self.moved = 0
        self.ahead: State | None = None
        self.early: dict[int, list[Frame | Local]] = {}

    def awaits(self, task: int) -> bool:
        """Say whether a task that is not here is on its way."""
        return self.worker.where[task] == self.worker.me or (self.ahead is not None and self.ahead.task == task)

    def keep(self, task: int, early: "Frame | Local") -> None:
        """Keep something for a task that is on its way."""
        self.early.setdefault(task, []).append(early)

    def begin(self, move: controller_messages.Move) -> None:
        """Do this worker's part of a move: switch channels to the task, let it go, or await it."""
        worker = self.worker
        old_slot, old = worker.placement[move.task], worker.where[move.task]
        new = worker.assigned.slots[move.slot]
        worker.placement[move.task], worker.where[move.task] = move.slot, new
        self.moved = move.move
        task = worker.tasks.get(move.task)
        if old == new:
            if task is not None:
                task.release()
                worker.execution.reslot(task, move.slot)
                worker.told.append(worker_messages.Moved(worker.epoch, move.move, now := worker.execution.now(), now))
            return
        if task is not None:
            task.leaving = move.move
            if task.preparing < 0:
                task.stood = worker.execution.now()
        for upstream in worker.tasks.values():
            for queue in upstream.queues:
                for lane in queue.lanes:
                    if lane.target == move.task:
                        worker.send_marker_to(queue, lane, MarkerOf(MOVE, move.move, 0), old_slot, old)
        if worker.ruling is not None:
            worker.ruling.moved(move.task)
        if task is not None and worker.execution.idle(task):
            self.depart(task)
        if self.ahead is not None:
            state, self.ahead = self.ahead, None
            self.arrive(state)

    def depart(self, task: Task) -> None:
        """Send a task to where it goes, and after it all that has come for it."""
        worker = self.worker
        worker.current = task
        if task.preparing < 0:
            problem = task.save()
            if problem:  # it has grown beyond what was thought, or the disk is full; it stays, in a new epoch
                raise CannotLeave(f"task {task.name}: {problem}")
        now, new_slot = worker.execution.now(), worker.placement[task.number]
        host, old_slot = worker.where[task.number], task.slot
        state = State(
            worker.epoch,
            task.leaving,
            task.number,
            new_slot,
            task.stood,
            task.saved,
            tuple(when - now for when in task.context.timers),
            task.ended,
            task.counted,
            task.progressed,
            task.input_state(),
            tuple(queue.save(worker.encoded) for queue in task.queues),
            tuple(pair for _, pair in task.pending),
            b"" if task.guard is None else task.guard.save(),
        )
        del worker.tasks[task.number]
        task.let_go()
        worker.execution.removed(task)
        worker.execution.carry(state, old_slot, new_slot, host)
        for frame in self._left_behind(task, state):
            worker.execution.carry(frame, old_slot, new_slot, host)
        task.leave()
        worker.departed.append(worker.task_report(task, worker.clock()))

    def _left_behind(self, task: Task, state: State) -> list[Data | Marker]:
        """Return what had come for a task that leaves: its inbox, batches held for their turn, markers of the move."""
        numbers = {(one.stream, one.source): one.expected for one in state.inputs}
        frames: list[Data | Marker] = []

        def add(channel: InChannel, number: int, item: Delivery | MarkerOf) -> int:
            way = (channel.stream, channel.source, task.number, number)
            if isinstance(item, MarkerOf):
                frames.append(Marker(self.worker.epoch, *way, item.kind, item.value, item.origin, self.worker.me))
                return int(item.kind != MOVE)
            item.cut()
            values = self.worker.layout.streams[channel.stream].codec.encode(item.values)
            count = len(item.values)
            frames.append(Data(self.worker.epoch, *way, count, item.sent, values, tuple(item.marks), item.sender))
            return count

        for item in task.inbox:
            channel, content = (item.channel, item) if isinstance(item, Delivery) else item
            key = (channel.stream, channel.source)
            numbers[key] += add(channel, numbers[key], content)
        for channel, marker in task.passing:
            add(channel, channel.expected, marker)
        for channel in task.inputs.values():
            for number, held in sorted(channel.held.items()):
                for content in held:
                    number += add(channel, number, content)
        return frames

    def arrive(self, state: State) -> None:
        """Go on with a task that was elsewhere."""
        worker = self.worker
        if state.move > self.moved:
            self.ahead = state
            return
        if worker.where[state.task] != worker.me:  # a machine on its way did not know better
            worker.execution.carry(state, worker.slot_here(), worker.placement[state.task], worker.where[state.task])
            return
        task = opening.open_task(worker, state.task, state.slot, ended=state.ended)
        if task.movable is not None:
            task.movable.load(state.logic)
        if task.guard is not None:
            task.guard.load(state.letters)
        task.pending = [(0, (name, final)) for name, final in state.pending]
        now = worker.execution.now()
        task.context.timers = [now + after for after in state.timers]
        task.counted, task.progressed = state.counted, state.progressed
        task.finishing = worker.draining and task.is_source
        task.size = len(state.logic)
        task.load_inputs(state.inputs)
        for queue, saved in zip(task.queues, state.outputs, strict=True):
            queue.load(saved, worker.decoded)
        task.arriving, task.unsettled, task.left = state.move, len(task.inputs), state.left
        task.since = worker.clock()
        worker.add_task(task)
        self._settled(task)
        for early in self.early.pop(task.number, []):
            self._deliver_early(task, early)
        for queue in task.queues:
            queue.pump()

    def _deliver_early(self, task: Task, early: "Frame | Local") -> None:
        worker = self.worker
        if isinstance(early, Credit):
            worker.credit(early)
        elif isinstance(early, Local):
            channel = task.inputs[early.stream, early.source]
            delivery = Delivery(channel, early.values, early.marks, early.sent, worker.execution.now(), 0, worker.me)
            worker.accept(task, channel, early.number, delivery)
        else:
            worker.deliver(early, 0, worker.execution.now())

    def settle(self, task: Task, channel: InChannel, marker: MarkerOf) -> None:
        """Note that all that a channel had sent to a task's old host has come."""
        if task.arriving != marker.value:
            task.passing.append((channel, marker))  # this is the old host
            return
        task.unsettled -= 1
        self._settled(task)

    def _settled(self, task: Task) -> None:
        worker = self.worker
        if task.unsettled == 0 and task.arriving >= 0:
            worker.told.append(worker_messages.Moved(worker.epoch, task.arriving, task.left, worker.execution.now()))
            task.arriving = -1
