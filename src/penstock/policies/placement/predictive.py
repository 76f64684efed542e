"""Li's predictive scheduling (chapter 2, Algorithm 1): each task in turn to the machine that is predicted best.

From a feasible placement, for every task and every machine: move the task there if the prediction improves. Every task
is considered once, for every machine once: N · M predictions. The view defines the prediction: with a trained latency
model the mean latency of a tuple, else the objective's score.

The paper assigns tasks to machines; on a machine with several slots a task uses the least loaded one with room.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import UnknownName, nearest
from penstock.model.placement import MEMORY_SLACK, Infeasible, Placement
from penstock.policies.api import Evaluate, PlacementView
from penstock.policies.placement.draft import complete
from penstock.policies.placement.local_search import nothing_allowed

Placed = NDArray[np.int32]

OWN = ("predictive", "predictive-search")
STAYS = -1


@dataclass(frozen=True, slots=True)
class Predictive:
    """Move each task once, to the machine with the best prediction.

    start: the policy whose placement it starts from, Storm's default in the paper; a name without parameters.
    """

    start: str = "round-robin"

    def __post_init__(self) -> None:
        from penstock.policies.registry import PolicyKind, names

        known = [name for name in names(PolicyKind.PLACEMENT) if name not in OWN]
        if self.start not in known:
            raise UnknownName("start", f"no policy to start from is named {self.start!r}; {nearest(self.start, known)}")

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement after every task was considered.

        Raises `ValueError` for a view without `evaluate`, which gives the prediction.
        """
        if view.evaluate is None:
            raise ValueError("predictive needs a view with evaluate")
        found = self.improve(view, view.evaluate, rng)
        if isinstance(found, Infeasible):
            return found
        if found.score == -np.inf:
            return nothing_allowed(view, found.slots.tolist(), found.scored)
        return complete(view, found.slots.tolist(), note=f"{found.moved} moves, {found.scored} placements scored")

    def improve(self, view: PlacementView, evaluate: Evaluate, rng: np.random.Generator) -> "Found | Infeasible":
        """Return the result of Algorithm 1, whatever its score, or the refusal if there is no start."""
        from penstock.policies.registry import placement_policy

        first = placement_policy(self.start).place(view, rng)
        if isinstance(first, Infeasible):
            return first
        found = Found(np.array(first.slots, dtype=np.int32))
        found.score = float(evaluate(found.slots[None, :])[0])
        found.scored = 1
        room = Room(view, found.slots)
        for task in range(view.tasks.number):  # line 2
            tried = np.array(list(room.slots_for(task)), dtype=np.int32)  # lines 3-7, all machines in one call
            if not len(tried):
                continue
            rows = np.repeat(found.slots[None, :], len(tried), axis=0)
            rows[:, task] = tried
            scores = evaluate(rows)
            found.scored += len(rows)
            best = int(np.argmax(scores))  # the first among equals, as if machines came one by one
            if scores[best] > found.score:  # line 8: less time is a higher score
                room.move(task, int(tried[best]))
                found.score = float(scores[best])
                found.moved += 1
        return found


@dataclass
class Found:
    """A placement, its score, and the effort to find it."""

    slots: Placed
    score: float = -np.inf
    scored: int = 0
    moved: int = 0


class Room:
    """Slots of tasks, and the slot of a machine that a task would use; `slots` is updated in place."""

    def __init__(self, view: PlacementView, slots: Placed) -> None:
        self._view, self.slots = view, slots
        self._work = np.bincount(slots, view.work, view.slots.number)
        self._memory = np.bincount(slots, view.tasks.memory_mb, view.slots.number)
        self._limit = view.slots.memory_mb * (1 + MEMORY_SLACK)

    def slots_for(self, task: int) -> Iterator[int]:
        """Yield for every machine but its own, in order, the slot that a task would use, if there is room."""
        own = self._view.slots.machine[self.slots[task]]
        pin = self._view.pins[task]
        if pin >= 0:
            if pin != own and (slot := self._least(task, int(pin))) != STAYS:
                yield slot
            return
        for machine in range(self._view.slots.machines):
            if machine != own and (slot := self._least(task, machine)) != STAYS:
                yield slot

    def _least(self, task: int, machine: int) -> int:
        """Return the least loaded slot with enough memory, ties by number."""
        first, last = self._view.slots.first[machine], self._view.slots.first[machine + 1]
        fits = self._memory[first:last] + self._view.tasks.memory_mb[task] <= self._limit[first:last]
        if not fits.any():
            return STAYS
        return int(first + np.argmin(np.where(fits, self._work[first:last], np.inf)))

    def move(self, task: int, slot: int) -> None:
        """Move a task to a slot."""
        for place, sign in ((self.slots[task], -1.0), (slot, 1.0)):
            self._work[place] += sign * self._view.work[task]
            self._memory[place] += sign * self._view.tasks.memory_mb[task]
        self.slots[task] = slot
