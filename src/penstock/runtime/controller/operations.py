"""Operations on a running application, one at a time: moves of tasks, one after another, and checkpoints.

Each move is prepared with the task's host, then told to every worker, and over when the new host has all that was on
its way and the journal says where the task is. Each step has a deadline, which progress extends. A move that was told
cannot be undone: nothing else moves before it has ended, however long that takes. A recovery interrupts whatever is
under way; moves that had not ended begin again after it, from where everything was before.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.model.errors import PenstockError
from penstock.model.tuples import TuplePolicies
from penstock.runtime.handle import Outcome
from penstock.runtime.protocol import controller_messages, worker_messages

if TYPE_CHECKING:
    from penstock.runtime.controller.state_machine import Controller

PREPARE_S = 30.0  # for a task to say whether it can move: as soon as it is between two tuples
MOVE_S = 30.0  # without a word from a worker that takes part, after which nobody waits for a move


class CannotMove(PenstockError):
    """A move that was refused or did not come to its end."""


@dataclass
class Operation:
    """Moves that are done one after another; `then` is called at the end, with an error or None."""

    moves: deque[tuple[int, str]]  # task, slot
    then: Callable[["Operation"], None]
    label: str = ""
    routes: tuple[controller_messages.Route, ...] | None = (
        None  # of the plan that it applies; told before the first move
    )
    tuples: TuplePolicies | None = None  # likewise
    done: list[Outcome] = field(default_factory=list)
    error: PenstockError | None = None
    saves: bool = False  # it is a checkpoint
    for_now: bool = False  # where tasks go is not where they should be in the end
    step: str = ""  # preparing, moving, noting; saving; empty between moves
    number: int = -1  # of the move that is under way
    deadline: float = 0.0


class Operations:
    """The operations of one run that have not ended, in order."""

    def __init__(self, controller: "Controller") -> None:
        self.controller = controller
        self._waiting: deque[Operation] = deque()
        self._moves = 0  # so far

    @property
    def current(self) -> str:
        """What is being done."""
        return self._waiting[0].label if self._waiting else ""

    def tick(self, now: float) -> None:
        """Give up what is overdue."""
        if self._waiting and self._waiting[0].step and now > self._waiting[0].deadline:
            self._overdue(self._waiting[0])

    def checkpoint(self, now: float) -> None:
        """Take a checkpoint, before all that waits but after what is under way, unless one waits already."""
        if any(operation.saves and not operation.step for operation in self._waiting):
            return
        operation = Operation(deque(), lambda _: None, "checkpoint", saves=True)
        self._waiting.insert(1 if self._waiting and self._waiting[0].step else 0, operation)
        self._next(now)

    def checkpointed(self, now: float) -> None:
        """Go on: a checkpoint is complete, or was given up."""
        if self._waiting and self._waiting[0].step == "saving":
            self._waiting.popleft()
        self._next(now)

    def progressed(self, now: float) -> None:
        """Give the checkpoint that is being taken more time: it comes closer to its end."""
        if self._waiting and self._waiting[0].step == "saving":
            self._waiting[0].deadline = now + self.controller.spec.config.checkpointing.timeout_s

    def interrupt(self, now: float) -> None:
        """Stop what is under way, as a new epoch begins."""
        while self._waiting and self._waiting[0].saves:
            self._waiting.popleft()
        if self._waiting:
            operation = self._waiting[0]
            operation.step, operation.number = "", -1

    def resume(self, now: float) -> None:
        """Go on after an interruption."""
        self._next(now)

    @property
    def moving_to(self) -> str:
        """The slot that a task is on its way to, or empty."""
        operation = self._waiting[0] if self._waiting else None
        return operation.moves[0][1] if operation and operation.step in ("preparing", "moving") else ""

    def request(
        self,
        moves: Sequence[tuple[int, str]],
        label: str,
        then: Callable[[Operation], None],
        routes: tuple[controller_messages.Route, ...] | None = None,
        for_now: bool = False,
        tuples: TuplePolicies | None = None,
    ) -> None:
        """Begin an operation, after those that are under way; `routes` and `tuples` replace those there were."""
        if tuples is not None:
            self.controller.rulebook.check(tuples)
        operation = Operation(deque(moves), then, label, routes, tuples, for_now=for_now)
        if self.controller.phase not in ("running", "recovering"):
            operation.error = CannotMove(
                f"{label}: the application is {self.controller.phase}; only a running one can be changed"
            )
            then(operation)
            return
        self._waiting.append(operation)
        if len(self._waiting) == 1:
            self._next(self.controller.now)

    def _next(self, now: float) -> None:
        """Begin a checkpoint, or the next move of the first operation, skipping tasks that are there already."""
        while self._waiting and not self._waiting[0].step and self.controller.phase in ("running", "draining"):
            if len(self._waiting) > 1 and self._waiting[1].saves:  # it need not wait for all moves of a plan
                self._waiting.rotate(-1)
                self._waiting.insert(1, self._waiting.pop())
            operation = self._waiting[0]
            if operation.saves:
                operation.step, operation.deadline = "saving", now + self.controller.spec.config.checkpointing.timeout_s
                self.controller.checkpointing.begin(now)
                return
            if operation.routes is not None:
                self.controller.routes = operation.routes
                self.controller.tell_all(controller_messages.Routes(self.controller.epoch, operation.routes))
                operation.routes = None
            if operation.tuples is not None:
                self._switch(operation, operation.tuples, now)
                return
            while operation.moves and self.controller.placement[operation.moves[0][0]] == operation.moves[0][1]:
                operation.moves.popleft()
            if not operation.moves:
                self._conclude()
                continue
            task, slot = operation.moves[0]
            if slot not in self.controller.members.usable(now, ready=True):
                self._give_up(f"slot {slot} has no worker now")
                continue
            self._moves += 1
            operation.number = self._moves
            host = self.controller.slots[self.controller.placement[task]]
            if self.controller.slots[slot] == host:  # nothing travels, so that any task can
                self._let_go(operation, now)
            else:
                operation.step, operation.deadline = "preparing", now + PREPARE_S
                self.controller.out.append(
                    (host, controller_messages.PrepareMove(self.controller.epoch, operation.number, task))
                )

    def _switch(self, operation: Operation, tuples: TuplePolicies, now: float) -> None:
        """Have other tuple policies in force, and go on when the journal says so."""
        operation.tuples, operation.step, operation.deadline = None, "noting", math.inf
        number = operation.number
        self.controller.rulebook.switch(tuples, now)
        self.controller.standing.note(lambda at: self._noted(operation, number, at))

    def prepared(self, _: int, message: worker_messages.MovePrepared, now: float) -> None:
        """Take a host's answer on whether a task can move: let it go, or give up."""
        operation = self._waiting[0] if self._waiting else None
        if operation is None or operation.number != message.move or operation.step != "preparing":
            return
        if message.problem:
            self._give_up(f"task {self.controller.layout.names[operation.moves[0][0]]}: {message.problem}")
        else:
            self._let_go(operation, now)

    def _let_go(self, operation: Operation, now: float) -> None:
        """Tell every worker of the move: from now on it cannot be undone."""
        operation.step, operation.deadline = "moving", now + MOVE_S
        self.controller.tell_all(controller_messages.Move(self.controller.epoch, operation.number, *operation.moves[0]))

    def moved(self, worker: int, message: worker_messages.Moved, now: float) -> None:
        """Take note that a task has come where it goes."""
        operation = self._waiting[0] if self._waiting else None
        if operation is None or operation.number != message.move or operation.step != "moving":
            return
        task, slot = operation.moves.popleft()
        before, name = self.controller.placement[task], self.controller.layout.names[task]
        self.controller.placement[task] = slot
        if not operation.for_now:
            self.controller.standing.wanted[task] = slot
        self.controller.progress.tell(task)  # what was told its old host may have come too late to go along
        left = self.controller.clock(self.controller.slots[before]).controller_time(message.left)
        held = max(0.0, self.controller.clock(worker).controller_time(message.settled) - left)
        operation.done.append(Outcome(name, before, slot, held))
        operation.step, operation.deadline = "noting", math.inf
        self.controller.event("move", f"{name} {before} -> {slot}", now)
        self.controller.rulebook.moved()
        self.controller.standing.note(lambda at: self._noted(operation, message.move, at))

    def _noted(self, operation: Operation, move: int, now: float) -> None:
        """Go on: the journal says where the task is."""
        if self._waiting and self._waiting[0] is operation and operation.number == move and operation.step == "noting":
            operation.step = ""
            self._next(now)

    def _conclude(self) -> None:
        operation = self._waiting.popleft()
        operation.then(operation)

    def _give_up(self, reason: str) -> None:
        operation = self._waiting[0]
        operation.error = CannotMove(f"{operation.label}: {reason}")
        self._conclude()
        self._next(self.controller.now)

    def _overdue(self, operation: Operation) -> None:
        """Give up; a task that is on its way cannot be called back, and arrives when every worker has done its part."""
        if operation.step == "saving":
            within = self.controller.spec.config.checkpointing.timeout_s
            self.controller.checkpointing.give_up(f"not all tasks were saved in {within:g} s", self.controller.now)
            operation.deadline = math.inf  # a manifest is on its way to the disk, where it was not given up
            return
        name = self.controller.layout.names[operation.moves[0][0]]
        if operation.step == "preparing":
            self._release(operation)
            self._give_up(f"task {name} did not answer in {PREPARE_S:g} s")
            return
        operation.deadline = self.controller.now + MOVE_S
        busy = self.controller.members.busy_since(self.controller.now - MOVE_S)
        if busy:
            self._leave_alone(operation, f"task {name} is on its way, and arrives when worker {busy!r} has time for it")

    def _leave_alone(self, operation: Operation, reason: str) -> None:
        """Let nobody wait for a move any more, and no other follow it; it comes to its end by itself."""
        operation.moves = deque([operation.moves[0]])
        operation.error = CannotMove(f"{operation.label}: {reason}")
        operation.then(operation)
        operation.then, operation.deadline = lambda _: None, math.inf

    def abandon(self, reason: str, *, all_of_them: bool) -> None:
        """End operations; a move that is under way cannot be undone, and comes to its end while there is time."""
        operations, self._waiting = self._waiting, deque()
        for operation in operations:
            if operation.saves and not all_of_them:  # the last one, it may be, which nobody would ask for again
                self._waiting.append(operation)
            elif operation.step in ("moving", "noting") and not all_of_them:
                self._cut_short(operation, reason)
                self._waiting.append(operation)
            else:
                if operation.step == "preparing":
                    self._release(operation)
                operation.error = operation.error or CannotMove(f"{operation.label}: {reason}")
                operation.then(operation)
        self._next(self.controller.now)

    def _release(self, operation: Operation) -> None:
        """Let a task go on that was asked to move, and may stand still for it."""
        task, controller = operation.moves[0][0], self.controller
        host = controller.slots[controller.placement[task]]
        controller.out.append((host, controller_messages.ReleaseTask(controller.epoch, operation.number, task)))

    def _cut_short(self, operation: Operation, reason: str) -> None:
        """Let no move follow the one that is under way."""
        under_way = list(operation.moves)[: operation.step == "moving"]
        if len(operation.moves) > len(under_way):
            operation.error = CannotMove(f"{operation.label}: {reason}")
        operation.moves = deque(under_way)
