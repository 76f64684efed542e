"""Operations on a running application, one at a time: moves of tasks in sequence, changes of policies, checkpoints.

A move is prepared by the task's worker, then commanded to every worker, and committed when the new worker has all that
was in flight and the journal has the new placement. Each step has a deadline, which progress extends. A move that all
workers know of cannot be rolled back: no other operation starts before it has ended, however long that takes. A
recovery interrupts the operation in progress; moves that were not committed are repeated after it.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.model.errors import PenstockError
from penstock.model.tuples import TuplePolicies
from penstock.runtime.controller.membership import Membership
from penstock.runtime.controller.outbox import ControllerOutbox
from penstock.runtime.controller.run_spec import RunState
from penstock.runtime.handle import MovedTask
from penstock.runtime.protocol import controller_messages, worker_messages

PREPARE_S = 30.0  # for a task to answer whether it can move, which it does between two tuples
MOVE_S = 30.0  # without a message from a worker that takes part, before callers stop waiting for a move

Then = Callable[[float], None]


class CannotMove(PenstockError):
    """A move that was rejected or not completed."""


@dataclass
class Operation:
    """Moves in sequence, or a checkpoint; `then` is called at the end, when `error` is set or None."""

    moves: deque[tuple[int, str]]  # task, slot
    then: Callable[["Operation"], None]
    label: str = ""
    routes: tuple[controller_messages.Route, ...] | None = None  # to switch to before the first move
    tuples: TuplePolicies | None = None  # to switch to before the first move
    done: list[MovedTask] = field(default_factory=list)
    error: PenstockError | None = None
    saves: bool = False  # it is a checkpoint
    temporary: bool = False  # its moves do not change the desired placement
    step: str = ""  # preparing, moving, committing; saving; empty between moves
    number: int = -1  # of the move in progress
    deadline: float = 0.0


class _Changes(Protocol):
    """What operations have the controller do, apart from commands about a move."""

    def switch_routes(self, routes: tuple[controller_messages.Route, ...]) -> None: ...
    def switch_policies(self, tuples: TuplePolicies, now: float, then: Then) -> None: ...
    def commit_move(self, task: int, slot: str, temporary: bool, then: Then) -> None: ...
    def begin_checkpoint(self, now: float) -> None: ...
    def abort_overdue_checkpoint(self, now: float) -> None: ...


class Operations:
    """The operations of a run that have not ended, in order."""

    def __init__(
        self,
        state: RunState,
        members: Membership,
        outbox: ControllerOutbox,
        event: Callable[[str, str, float], None],
        changes: _Changes,
        checkpoint_within_s: float,
    ) -> None:
        self._state = state
        self._members = members
        self._outbox = outbox
        self._event = event
        self._changes = changes
        self._checkpoint_within_s = checkpoint_within_s
        self._waiting: deque[Operation] = deque()
        self._moves = 0  # so far

    @property
    def current(self) -> str:
        """The label of the operation in progress; empty: none."""
        return self._waiting[0].label if self._waiting else ""

    @property
    def moving_to(self) -> str:
        """The slot that a task is moving to; empty: none."""
        operation = self._waiting[0] if self._waiting else None
        return operation.moves[0][1] if operation and operation.step in ("preparing", "moving") else ""

    def tick(self, now: float) -> None:
        """Give up a step that is overdue."""
        if self._waiting and self._waiting[0].step and now > self._waiting[0].deadline:
            self._give_up_overdue(self._waiting[0], now)

    # Checkpoints

    def request_checkpoint(self, now: float) -> None:
        """Take a checkpoint, after the step in progress and before all else, unless one is waiting already."""
        if any(operation.saves and not operation.step for operation in self._waiting):
            return
        operation = Operation(deque(), lambda _: None, "checkpoint", saves=True)
        operation.deadline = now + self._checkpoint_within_s  # for it to begin, before users are warned
        self._waiting.insert(1 if self._waiting and self._waiting[0].step else 0, operation)
        self.proceed(now)

    def extend_checkpoint(self, now: float) -> None:
        """Extend the deadline of the checkpoint in progress: there was progress."""
        if self._waiting and self._waiting[0].step == "saving":
            self._waiting[0].deadline = now + self._checkpoint_within_s

    def end_checkpoint(self, now: float) -> None:
        """End the checkpoint in progress, complete or aborted."""
        if self._waiting and self._waiting[0].step == "saving":
            self._waiting.popleft()
        self.proceed(now)

    def warnings(self, now: float) -> list[str]:
        """Return what a checkpoint has been waiting for, if it has waited for long."""
        waiting = [operation for operation in self._waiting if operation.saves and not operation.step]
        if not any(now > operation.deadline for operation in waiting):
            return []
        cause = f"{self.current!r} is in progress" if self._state.flowing else f"the run is {self._state.phase}"
        return [f"a checkpoint has waited for more than {self._checkpoint_within_s:g} s: {cause}"]

    # Moves

    def request(self, operation: Operation, now: float) -> None:
        """Begin an operation after those that are waiting; reject it if the application is not running."""
        if self._state.phase not in ("running", "recovering"):
            problem = f"the application is {self._state.phase}; only a running one can be changed"
            operation.error = CannotMove(f"{operation.label}: {problem}")
            operation.then(operation)
            return
        self._waiting.append(operation)
        if len(self._waiting) == 1:
            self.proceed(now)

    def proceed(self, now: float) -> None:
        """Begin a checkpoint, or the next move of the first operation."""
        while self._waiting and not self._waiting[0].step and self._state.flowing:
            if len(self._waiting) > 1 and self._waiting[1].saves:  # it need not wait for all moves of a plan
                self._waiting.rotate(-1)
                self._waiting.insert(1, self._waiting.pop())
            operation = self._waiting[0]
            if operation.saves:
                operation.step, operation.deadline = "saving", now + self._checkpoint_within_s
                self._changes.begin_checkpoint(now)
                return
            if operation.routes is not None:
                self._changes.switch_routes(operation.routes)
                operation.routes = None
            if operation.tuples is not None:
                self._switch_policies(operation, operation.tuples, now)
                return
            while operation.moves and self._state.placement[operation.moves[0][0]] == operation.moves[0][1]:
                operation.moves.popleft()
            if not operation.moves:
                self._conclude()
            elif operation.moves[0][1] not in self._members.usable(now, ready=True):
                self._give_up(f"slot {operation.moves[0][1]} has no worker now", now)
            else:
                self._begin_move(operation, now)

    def _begin_move(self, operation: Operation, now: float) -> None:
        """Have the task's worker prepare the next move."""
        task, slot = operation.moves[0]
        self._moves += 1
        operation.number = self._moves
        host = self._members.slots[self._state.placement[task]]
        if self._members.slots[slot] == host:  # nothing travels, so that any task can
            self._command_move(operation, now)
        else:
            operation.step, operation.deadline = "preparing", now + PREPARE_S
            self._outbox.send(host, controller_messages.PrepareMove(self._state.epoch, operation.number, task))

    def _switch_policies(self, operation: Operation, tuples: TuplePolicies, now: float) -> None:
        operation.tuples, operation.step, operation.deadline = None, "committing", math.inf
        number = operation.number
        self._changes.switch_policies(tuples, now, lambda at: self._committed(operation, number, at))

    def take_prepared(self, _: int, message: worker_messages.MovePrepared, now: float) -> None:
        """Take a worker's answer whether a task can move: command the move, or give it up."""
        operation = self._waiting[0] if self._waiting else None
        if operation is None or operation.number != message.move or operation.step != "preparing":
            return
        if message.problem:
            self._give_up(f"task {self._state.names[operation.moves[0][0]]}: {message.problem}", now)
        else:
            self._command_move(operation, now)

    def _command_move(self, operation: Operation, now: float) -> None:
        """Command every worker to move a task: from now on the move cannot be rolled back."""
        operation.step, operation.deadline = "moving", now + MOVE_S
        self._outbox.broadcast(
            controller_messages.PerformMove(self._state.epoch, operation.number, *operation.moves[0])
        )

    def take_moved(self, worker: int, message: worker_messages.Moved, now: float) -> None:
        """Commit a move: the task has settled on its new worker."""
        operation = self._waiting[0] if self._waiting else None
        if operation is None or operation.number != message.move or operation.step != "moving":
            return
        task, slot = operation.moves.popleft()
        before, name = self._state.placement[task], self._state.names[task]
        left = self._clock_time(self._members.slots[before], message.left)
        held = max(0.0, self._clock_time(worker, message.settled) - left)
        operation.done.append(MovedTask(name, before, slot, held))
        operation.step, operation.deadline = "committing", math.inf
        self._event("move", f"{name} {before} -> {slot}", now)
        number = message.move
        self._changes.commit_move(task, slot, operation.temporary, lambda at: self._committed(operation, number, at))

    def _clock_time(self, worker: int, at: float) -> float:
        """Return a time of a worker's clock in the controller's time."""
        return self._members[worker].clock.estimate.controller_time(at)

    def _committed(self, operation: Operation, move: int, now: float) -> None:
        """Continue: the journal has the change."""
        waits = self._waiting and self._waiting[0] is operation
        if waits and operation.number == move and operation.step == "committing":
            operation.step = ""
            self.proceed(now)

    def _conclude(self) -> None:
        operation = self._waiting.popleft()
        operation.then(operation)

    def _give_up(self, reason: str, now: float) -> None:
        operation = self._waiting[0]
        operation.error = CannotMove(f"{operation.label}: {reason}")
        self._conclude()
        self.proceed(now)

    def _give_up_overdue(self, operation: Operation, now: float) -> None:
        """Give up a step; a move that all workers know of continues, but callers no longer wait for it."""
        if operation.step == "saving":
            self._changes.abort_overdue_checkpoint(now)
            operation.deadline = math.inf  # if it was not aborted, its manifest is being written
            return
        name = self._state.names[operation.moves[0][0]]
        if operation.step == "preparing":
            self._release(operation)
            self._give_up(f"task {name} did not answer in {PREPARE_S:g} s", now)
            return
        operation.deadline = now + MOVE_S
        busy = self._members.busy_since(now - MOVE_S)
        if busy:
            self._detach_caller(operation, f"the move of task {name} ends when worker {busy!r} has time for it")

    def _detach_caller(self, operation: Operation, reason: str) -> None:
        """Report a failure to the caller, and let the move in progress end by itself, without those after it."""
        operation.moves = deque([operation.moves[0]])
        operation.error = CannotMove(f"{operation.label}: {reason}")
        operation.then(operation)
        operation.then, operation.deadline = lambda _: None, math.inf

    # Ends

    def interrupt(self) -> None:
        """Interrupt the operation in progress, because a new epoch starts; moves are repeated by `proceed`."""
        while self._waiting and self._waiting[0].saves:
            self._waiting.popleft()
        if self._waiting:
            operation = self._waiting[0]
            operation.step, operation.number = "", -1

    def abandon(self, reason: str, now: float, *, everything: bool) -> None:
        """End operations; unless `everything`, keep checkpoints and the move that all workers know of."""
        operations, self._waiting = self._waiting, deque()
        for operation in operations:
            if operation.saves and not everything:  # it may be the last one, which nobody would request again
                self._waiting.append(operation)
            elif operation.step in ("moving", "committing") and not everything:
                self._cut_short(operation, reason)
                self._waiting.append(operation)
            else:
                if operation.step == "preparing":
                    self._release(operation)
                operation.error = operation.error or CannotMove(f"{operation.label}: {reason}")
                operation.then(operation)
        self.proceed(now)

    def _release(self, operation: Operation) -> None:
        """Resume a task that may be suspended for a move."""
        task = operation.moves[0][0]
        host = self._members.slots[self._state.placement[task]]
        self._outbox.send(host, controller_messages.ReleaseTask(self._state.epoch, operation.number, task))

    def _cut_short(self, operation: Operation, reason: str) -> None:
        """Drop the moves after the one in progress."""
        in_progress = list(operation.moves)[: operation.step == "moving"]
        if len(operation.moves) > len(in_progress):
            operation.error = CannotMove(f"{operation.label}: {reason}")
        operation.moves = deque(in_progress)
