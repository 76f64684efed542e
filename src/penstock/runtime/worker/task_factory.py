"""Opens the tasks of a worker: at the start of an epoch, and after a move."""

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.api.contracts import TaskContext
from penstock.api.keyed import KeyedOperator
from penstock.api.tuple_types import key_type
from penstock.model.errors import PenstockError
from penstock.runtime.layout import Layout, StreamFacts
from penstock.runtime.storage.key_groups import StateCodec
from penstock.runtime.worker.error_policy import ErrorGuard
from penstock.runtime.worker.input import Inbox, InChannel
from penstock.runtime.worker.keyed_runner import KeyedRunner
from penstock.runtime.worker.keyed_state import KeyedState
from penstock.runtime.worker.logic import UserError
from penstock.runtime.worker.output import Lane, OutQueue, Sender
from penstock.runtime.worker.running_task import RunningTask
from penstock.runtime.worker.task import AuthorCode, SourceLimits, Task


class RunFacts(NamedTuple):
    """The information on run and worker in the contexts of tasks."""

    run: str
    folder: str
    epoch: int
    seed: int
    clock: Callable[[], float]
    wake: Callable[[], None]


class TaskFactory:
    """Opens tasks; `window` is that of new channels, `timed` whether it keeps queues short."""

    def __init__(
        self,
        facts: RunFacts,
        layout: Layout,
        sender: Sender,
        running: RunningTask,
        limits: SourceLimits,
        *,
        window: int,
        timed: bool,
    ) -> None:
        self.sender = sender
        self.epoch = facts.epoch
        self._facts = facts
        self._layout = layout
        self._running = running
        self._limits = limits
        self._window = window
        self._timed = timed

    def open(self, number: int, slot: str, *, ended: bool) -> Task:
        """Open a task; the logic of one that has ended elsewhere stays closed."""
        layout, component, facts = self._layout, self._layout.components[number], self._facts
        context = TaskContext(
            component.name,
            layout.numbers[number],
            component.parallelism,
            folder=facts.folder,
            run=facts.run,
            epoch=facts.epoch,
            seed=facts.seed,
            clock=facts.clock,
            wake=facts.wake,
        )
        code = self._make(number, context)
        channels = [InChannel(stream, source, self._window) for stream, source in layout.channels_in(number)]
        inbox = Inbox(context.name, channels)
        queues = [self._queue(stream, number) for stream in layout.outputs(number)]
        task = Task(number, component, context, code, inbox, queues, slot, self._limits)
        self._running.set(task)
        task.open(ended)
        return task

    def _make(self, number: int, context: TaskContext) -> AuthorCode:
        """Create the author's code of a task."""
        part = self._layout.flow.parts[context.component]
        try:
            logic, dead_letters = part.make(), None if part.letters is None else part.letters()
        except PenstockError as error:
            raise UserError(context=context) from error
        if isinstance(logic, KeyedOperator):
            logic = self._keyed(number, logic, context)
        guard = None if part.errors is None else ErrorGuard(part.errors, dead_letters, logic, context)
        return AuthorCode(logic, guard, part.outputs)

    def _keyed(self, number: int, logic: KeyedOperator[Any, Any, Any], context: TaskContext) -> KeyedRunner:
        """Return what runs a keyed operator, with an empty state."""
        layout, inputs = self._layout, self._layout.inputs(number)
        kinds = [key_type(stream.outlet.keys, layout.flow.stream_type(stream.outlet)) for stream in inputs]
        kind = kinds[0] if all(other == kinds[0] for other in kinds) else Any
        codec = StateCodec(context.component, kind, layout.flow.parts[context.component].state)
        state = KeyedState(codec, context.task, context.tasks, context.now)
        return KeyedRunner(logic, state, {stream.number: layout.keys[stream.number] for stream in inputs}, context.now)

    def _queue(self, stream: StreamFacts, number: int) -> OutQueue:
        """Create an out-queue of a task; tasks of a component start with different receivers."""
        targets = self._layout.targets(stream, number)
        queue = OutQueue(
            stream.number,
            stream.outlet.grouping,
            number,
            [Lane(target, self._window) for target in targets],
            self.sender,
            key=self._layout.keys[stream.number],
            output=stream.outlet.output,
            timed=self._timed,
        )
        queue.turn = self._layout.numbers[number] % len(targets)
        return queue
