"""Where tasks should be: written down for the next driver, and brought about again when sites come, go or fail."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.runtime.controller.settings import fewest
from penstock.runtime.storage.checkpoints import Journal, write_journal
from penstock.runtime.storage.disk import Job

if TYPE_CHECKING:
    from penstock.runtime.controller.operations import Operation
    from penstock.runtime.controller.state_machine import Controller

LOOK_S = 1.0  # between looks at whether tasks are where they should be


class Standing:
    """The slots that tasks should have, `wanted`: not all may be there, so that some have others for now."""

    def __init__(self, controller: "Controller") -> None:
        self.controller = controller
        self.wanted = list(controller.spec.placement)
        self._waiting: list[Callable[[float], None]] = []  # for the journal to be written
        self._writing = False
        self._next_look = 0.0
        self._refused: set[tuple[int, int]] = set()  # epoch, and a task that cannot move

    @property
    def journal(self) -> Journal:
        """What the next driver must know."""
        controller = self.controller
        placement = dict(zip(controller.layout.names, self.wanted, strict=True))
        return Journal(controller.epoch, placement, controller.policy, controller.rulebook.tuples, controller.limits)

    def complete(self, usable: list[str]) -> list[str]:
        """Return the slot of every task, given those that there are."""
        return list((self.controller.spec.complete or fewest)(self.wanted, usable))

    def note(self, then: Callable[[float], None]) -> None:
        """Write down where tasks should be; those who wait for it share what is written next."""
        self._waiting.append(then)
        if not self._writing:
            self._write()

    def _write(self) -> None:
        self._writing = True
        waiting, self._waiting = self._waiting, []
        journal, folder = self.journal, self.controller.checkpointing.folder

        def written(_: object, problem: str, now: float) -> None:
            self._writing = False
            if problem:
                self.controller.warn(f"it could not be written down where tasks are, {problem}")
            if self._waiting:
                self._write()
            for then in waiting:
                then(now)

        self.controller.storing.append(Job("journal", lambda disk: write_journal(disk, folder, journal), written))

    def tick(self, now: float) -> None:
        """Leave out sites that cannot be relied on; move tasks away from them, and to where they should be."""
        if now < self._next_look:
            return
        self._next_look = now + LOOK_S
        controller, members = self.controller, self.controller.members
        members.judge(now, lambda number, why: controller.warn(f"worker {members[number].site.name!r}: {why}"))
        usable = members.usable(now, ready=True)
        if controller.phase != "running" or controller.operations.current or not usable:
            return
        if controller.placement == self.wanted and set(self.wanted) <= set(usable):
            return
        best = self.complete(usable)
        moves = [
            (task, best[task])
            for task, slot in enumerate(controller.placement)
            if slot != best[task]
            and (slot not in usable or best[task] == self.wanted[task])
            and (controller.epoch, task) not in self._refused
        ]
        if moves:
            label = f"bring {len(moves)} task{'s' if len(moves) > 1 else ''} where they belong"
            controller.operations.request(moves, label, self._brought, for_now=True)

    def look_soon(self) -> None:
        """Look at the next tick whether tasks are where they should be."""
        self._next_look = 0.0

    def refuses(self, task: int) -> bool:
        """Say whether a task could not move in this epoch."""
        return (self.controller.epoch, task) in self._refused

    def _brought(self, operation: "Operation") -> None:
        """Remember a task that could not move, so that it is not asked again in this epoch."""
        if operation.error is not None and operation.moves and self.controller.phase == "running":
            self._refused.add((self.controller.epoch, operation.moves[0][0]))
            self.controller.warn(str(operation.error))
