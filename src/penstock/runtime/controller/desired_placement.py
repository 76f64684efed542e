"""Where tasks should be: kept in the journal, and restored by moves when sites appear, are excluded or lost."""

from collections import deque
from collections.abc import Callable

from penstock.runtime.controller.membership import Membership
from penstock.runtime.controller.operations import Operation
from penstock.runtime.controller.outbox import ControllerOutbox
from penstock.runtime.controller.run_spec import Complete, RunState, place_on_fewest
from penstock.runtime.storage.checkpoints import Journal, write_journal
from penstock.runtime.storage.disk import StorageJob

CHECK_S = 1.0  # between comparisons of the placement with the desired one


class DesiredPlacement:
    """The slots that tasks should have. A slot may be missing; its tasks then have others temporarily."""

    def __init__(
        self,
        state: RunState,
        members: Membership,
        outbox: ControllerOutbox,
        complete: Complete | None,
        folder: str,
        journal: Callable[[], Journal],
    ) -> None:
        self.slots = list(state.placement)
        self._state = state
        self._members = members
        self._outbox = outbox
        self._complete = complete or place_on_fewest
        self._folder = folder
        self._journal = journal
        self._waiting: list[Callable[[float], None]] = []  # for the journal to be written
        self._writing = False
        self.next_check = 0.0
        self._immovable: set[tuple[int, int]] = set()  # epoch, task

    def complete(self, usable: list[str]) -> list[str]:
        """Return a usable slot for every task: the desired one if possible."""
        return list(self._complete(self.slots, usable))

    def write(self, then: Callable[[float], None]) -> None:
        """Write the journal, and call `then`; requests that come meanwhile share the next write."""
        self._waiting.append(then)
        if not self._writing:
            self._write()

    def _write(self) -> None:
        self._writing = True
        waiting, self._waiting = self._waiting, []
        journal, folder = self._journal(), self._folder

        def written(_: object, problem: str, now: float) -> None:
            self._writing = False
            if problem:
                self._outbox.warn(f"the placement could not be written to the journal, {problem}")
            if self._waiting:
                self._write()
            for then in waiting:
                then(now)

        self._outbox.store(StorageJob("journal", lambda disk: write_journal(disk, folder, journal), written))

    def correct(self, now: float, idle: bool) -> Operation | None:
        """Exclude unreliable sites; return the moves that restore the desired placement, if no operation is running."""
        if now < self.next_check:
            return None
        self.next_check = now + CHECK_S
        members, placement = self._members, self._state.placement
        members.exclude_unreliable(
            now, lambda number, reason: self._outbox.warn(f"worker {members[number].site.name!r}: {reason}")
        )
        usable = members.usable(now, ready=True)
        if self._state.phase != "running" or not idle or not usable:
            return None
        if placement == self.slots and set(self.slots) <= set(usable):
            return None
        best = self.complete(usable)
        moves = [
            (task, best[task])
            for task, slot in enumerate(placement)
            if slot != best[task] and (slot not in usable or best[task] == self.slots[task]) and self.is_movable(task)
        ]
        label = f"restore the placement of {len(moves)} task{'s' if len(moves) > 1 else ''}"
        return Operation(deque(moves), self._corrected, label, temporary=True) if moves else None

    def is_movable(self, task: int) -> bool:
        """Return whether no attempt to move a task has failed in this epoch."""
        return (self._state.epoch, task) not in self._immovable

    def _corrected(self, operation: Operation) -> None:
        """Remember a task that could not move, to leave it alone in this epoch."""
        if operation.error is not None and operation.moves and self._state.phase == "running":
            self._immovable.add((self._state.epoch, operation.moves[0][0]))
            self._outbox.warn(str(operation.error))
