"""Opens the tasks of a worker: at the beginning of an epoch, with the states of a checkpoint, and after a move."""

from functools import partial
from typing import TYPE_CHECKING

from penstock.api.contracts import TaskContext
from penstock.model.errors import PenstockError
from penstock.runtime.layout import StreamFacts
from penstock.runtime.protocol import worker_messages
from penstock.runtime.protocol.controller_messages import Assign, StateLocation
from penstock.runtime.storage.checkpoints import TaskState, folder_of, read, unpack
from penstock.runtime.storage.disk import Disk, Job, below
from penstock.runtime.worker.error_policy import Guard
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.lane import Lane
from penstock.runtime.worker.logic import UserError
from penstock.runtime.worker.output import OutQueue
from penstock.runtime.worker.task import Task

if TYPE_CHECKING:
    from penstock.runtime.worker.state_machine import Worker

States = dict[int, tuple[TaskState, bytes]]  # task -> the runtime's own part of its state, and its logic's


def read_states(disk: Disk, folder: str, kept: tuple[StateLocation, ...]) -> States:
    """Read the states of tasks, refusing what is damaged."""
    found = {}
    for one in kept:
        path = below(folder, one.file)
        found[one.task] = unpack(read(disk, path, one.offset, one.size, one.checksum), path)
    return found


def begin(worker: "Worker", assign: Assign) -> None:
    """Open the tasks that a worker is assigned, once their states have been read where there are any."""
    if not assign.kept:
        _open_all(worker, {})
        return

    def then(states: States, problem: str, _: float) -> None:
        if worker.assigned is not assign or worker.phase != "restoring":  # another epoch has begun meanwhile
            return
        if problem:
            worker.told.append(worker_messages.CheckpointUnreadable(assign.epoch, assign.checkpoint, problem))
        else:
            worker.execution.begin()
            worker.guarded(lambda: _open_all(worker, states))

    do = partial(read_states, folder=folder_of(assign.checkpoints, assign.checkpoint), kept=assign.kept)
    worker.storing.append(Job(f"states of checkpoint {assign.checkpoint}", do, then))


def _open_all(worker: "Worker", states: States) -> None:
    for number, host in enumerate(worker.where):
        if host != worker.me:
            continue
        state, logic = states.get(number, (None, b""))
        task = open_task(worker, number, worker.placement[number], ended=state is not None and state.ended)
        if state is not None:
            task.restore(state, logic)
        worker.add_task(task)
        if task.ended:
            worker.told.append(worker_messages.Ended(worker.epoch, task.number, task.counted))
    worker.phase = "assigned"
    worker.told.append(worker_messages.Ready(worker.epoch))


def open_queue(worker: "Worker", stream: StreamFacts, number: int) -> OutQueue:
    """Make an out-queue of a task: senders that act in step do not all begin with the same receiver."""
    layout = worker.layout
    targets = layout.targets(stream, number)
    return OutQueue(
        stream.number,
        stream.outlet.grouping,
        number,
        [Lane(target, worker.execution.window(None, 1)) for target in targets],
        worker,
        turn=layout.numbers[number] % len(targets),
        key=layout.keys[stream.number],
        output=stream.outlet.output,
        timed=worker.execution.timed,
    )


def open_task(worker: "Worker", number: int, slot: str, *, ended: bool) -> Task:
    """Make a task; the logic of one that has ended elsewhere stays closed."""
    layout, component, assigned = worker.layout, worker.layout.components[number], worker.assigned
    context = TaskContext(
        component.name,
        layout.numbers[number],
        component.parallelism,
        folder=assigned.folder,
        run=worker.run,
        epoch=worker.epoch,
        seed=assigned.seed,
        clock=worker.clock,
        wake=worker.wake,
    )
    part = layout.flow.parts[component.name]
    try:
        logic, letters = part.make(), None if part.letters is None else part.letters()
    except PenstockError as error:
        raise UserError(context=context) from error
    guard = None if part.errors is None else Guard(part.errors, letters, logic, context)
    task = Task(number, component, context, logic, part.outputs, guard)
    task.slot = slot
    worker.current = task
    window = worker.execution.window(None, 1)
    task.inputs = {(stream, source): InChannel(stream, source, window) for stream, source in layout.channels_in(number)}
    task.open_channels = len(task.inputs)
    task.queues = [open_queue(worker, stream, number) for stream in layout.outputs(number)]
    task.ended = ended
    task.closed = ended and not task.publishes
    if guard is not None:
        guard.open()
    if not task.closed:
        task.open()
    return task
