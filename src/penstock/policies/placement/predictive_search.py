"""Beyond Li's Algorithm 1: from its result, the best single move or swap, repeatedly until none helps.

Algorithm 1 considers every task once, while later tasks are still in their first places. Here every task may move again
after others have, and if no move helps, two tasks on different machines may be swapped. The result is never worse than
Algorithm 1's by the view's score, and no move or swap improves it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.model.errors import InvalidInput
from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import Evaluate, PlacementView
from penstock.policies.placement.draft import complete
from penstock.policies.placement.local_search import nothing_allowed
from penstock.policies.placement.predictive import Found, Placed, Predictive, Room

BATCH = 2048  # placements scored per call
GAIN = 1e-9  # relative; less is rounding

Change = tuple[tuple[int, int], ...]
"""Tasks, each with its new slot."""


@dataclass(frozen=True, slots=True)
class PredictiveSearch:
    """Improve the result of `predictive` with the best move or swap until there is none.

    start: the policy whose placement `predictive` starts from.
    steps: maximum number of placements to score; None: until nothing improves.
    swaps: whether two tasks may be swapped.
    """

    start: str = "round-robin"
    steps: int | None = 50_000
    swaps: bool = True

    def __post_init__(self) -> None:
        Predictive(self.start)
        if self.steps is not None and self.steps < 1:
            raise InvalidInput("steps", f"expected ≥ 1, got {self.steps}")

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return a placement that no move or swap improves, or the best one after `steps`.

        Raises `ValueError` for a view without `evaluate`, which gives the score.
        """
        if view.evaluate is None:
            raise ValueError("predictive-search needs a view with evaluate")
        found = Predictive(self.start).improve(view, view.evaluate, rng)
        if isinstance(found, Infeasible):
            return found
        limit = np.inf if self.steps is None else float(self.steps)
        ended = _improve(view, view.evaluate, found, limit, self.swaps)
        if found.score == -np.inf:
            return nothing_allowed(view, found.slots.tolist(), found.scored)
        why = "no other improves it" if ended else "step limit reached"
        return complete(
            view, found.slots.tolist(), note=f"{found.moved} moves, {found.scored} placements scored, {why}"
        )


def _improve(view: PlacementView, evaluate: Evaluate, found: Found, limit: float, swaps: bool) -> bool:
    """Apply the best change until there is none; return True if there is none, False at the step limit."""
    room = Room(view, found.slots)
    while True:
        best = _best(evaluate, found, _moves(view, room), limit)
        if best is None and swaps and found.scored < limit:
            best = _best(evaluate, found, _exchanges(view, room), limit)
        if best is None:
            return found.scored < limit
        for task, slot in best:
            room.move(task, slot)
        found.moved += len(best)


def _moves(view: PlacementView, room: Room) -> Iterator[Change]:
    for task in range(view.tasks.number):
        for slot in room.slots_for(task):
            yield ((task, slot),)


def _exchanges(view: PlacementView, room: Room) -> Iterator[Change]:
    machine = view.slots.machine
    free = np.flatnonzero(view.pins < 0).tolist()
    slots = room.slots.tolist()
    for position, task in enumerate(free):
        for other in free[position + 1 :]:
            if machine[slots[task]] != machine[slots[other]]:
                yield ((task, slots[other]), (other, slots[task]))


def _best(evaluate: Evaluate, found: Found, changes: Iterator[Change], limit: float) -> Change | None:
    """Return the change with the highest score if it improves; updates the score, not the placement."""
    least = found.score + GAIN * abs(found.score) if np.isfinite(found.score) else found.score
    best, top = None, least
    for batch in _batches(changes):
        if found.scored >= limit:
            break
        rows = _rows(found.slots, batch)
        scores = evaluate(rows)[1:]
        found.scored += len(batch)
        if scores.max() > top:
            best, top = batch[int(np.argmax(scores))], float(scores.max())
    if best is not None:
        found.score = top
    return best


def _rows(slots: Placed, changes: list[Change]) -> Placed:
    """Return the placement itself, then with each change: neighbours are scored faster together."""
    rows = np.repeat(slots[None, :], len(changes) + 1, axis=0)
    for row, change in zip(rows[1:], changes, strict=True):
        for task, slot in change:
            row[task] = slot
    return rows


def _batches(changes: Iterator[Change]) -> Iterator[list[Change]]:
    batch: list[Change] = []
    for change in changes:
        batch.append(change)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
