"""Place some tasks while the others stay: after a machine was lost, and when one was added.

Unlike a placement policy, a repair always has a result, because a run that has lost half of its machines must continue:
pins and resources are respected as long as an open slot satisfies them, and memory is exceeded as little as possible.
If all placements of the tasks can be tried, they are. Otherwise a few constructive placements are improved with moves
and swaps, until none helps or the limit of scored placements is reached.

Placements are compared by excess memory first, then by score, then by balance of load.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from penstock.model.placement import MEMORY_SLACK
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.api import PlacementView

Placed = NDArray[np.int32]

BATCH = 256  # pairs of tasks that are swapped in one call
SAME = 1e-9  # relative; scores that differ by less are equal
SAME_MB = 1e-3
ENOUGH = 0.95  # of the gain of the maximum number of moves; fewer moves suffice for that


@dataclass(frozen=True, slots=True)
class Repair:
    """Places tasks among others that stay, scoring approximately `rows` placements at most.

    The view's `evaluate` must ignore memory: it is handled here, because its limits may have to be exceeded.
    """

    rows: int = 2048

    def complete(self, view: PlacementView, kept: Ints, opened: Bools) -> list[int]:
        """Return a slot for every task: `kept` [T] has those of tasks that stay, else -1; `opened` [S]: usable.

        Raises `ValueError` if no slot is open, or the view has no `evaluate`.
        """
        if not opened.any():
            raise ValueError("no slot is open")
        case = _Case(view, kept, opened)
        if not len(case.lost):
            return [int(slot) for slot in kept]
        search = _Search(case, self.rows)
        if case.combinations <= self.rows:
            search.try_all()
        else:
            search.improve_starts()
        return [int(slot) for slot in search.best]

    def extend(self, view: PlacementView, placed: Ints, opened: Bools, most: int) -> list[tuple[int, int]]:
        """Return moves of tasks to open slots, at most `most`, each the best one after those before it.

        Returns fewer if they gain nearly as much.
        """
        case = _Case(view, np.full(len(placed), -1, dtype=np.int32), opened, strict=True)
        ways = [_steps(case, placed.astype(np.int32), most, choose) for choose in (case.pick, case.relieve)]
        steps = max(ways, key=lambda way: float(case.scores(way).max()))
        scores = case.scores(steps)
        if not np.isfinite(scores.max()) or not np.isfinite(scores[0]):
            last = int(np.argmax(scores))
        else:
            last = int(np.argmax(scores >= scores[0] + ENOUGH * (scores.max() - scores[0])))
        final = _without_idle_moves(case, steps[0], steps[last])
        return [(int(task), int(final[task])) for task in np.flatnonzero(final != placed)]


def _steps(case: "_Case", placed: Placed, most: int, choose: Callable[[Placed], int]) -> Placed:
    """Return a placement and those after each move, always the best one possible: [N, T].

    A single move may lower a score that several together improve, so one choice follows the score, another the load of
    the busiest slot.
    """
    steps = [placed]
    for _ in range(most):
        rows = np.concatenate([steps[-1][None, :], case.onto_open(steps[-1])])
        best = choose(rows)
        if best == 0:
            break
        steps.append(rows[best])
    return np.array(steps)


def relative_gain(before: float, after: float) -> float:
    """Return the relative improvement of a score; 0 if it is undefined."""
    if before == after or not np.isfinite(after):
        return 0.0
    return (after - before) / abs(before) if np.isfinite(before) and before != 0 else np.inf


def _without_idle_moves(case: "_Case", before: Placed, after: Placed) -> Placed:
    """Revert moves without which the score is equally good."""
    for task in np.flatnonzero(before != after):
        fewer = after.copy()
        fewer[task] = before[task]
        if case.pick(np.array([fewer, after]), even=False) == 0:
            after = fewer
    return after


class _Case:
    """The tasks to be placed, their allowed slots, and the comparison of placements."""

    def __init__(self, view: PlacementView, kept: Ints, opened: Bools, strict: bool = False) -> None:
        if view.evaluate is None:
            raise ValueError("a repair needs a view with evaluate")
        self.view, self.kept, self.opened = view, kept.astype(np.int32), opened
        self._evaluate = view.evaluate
        self.lost: list[int] = np.flatnonzero(kept < 0).tolist()
        self.allowed = {task: self._allowed(task, strict) for task in self.lost}
        self.may = np.zeros((view.tasks.number, view.slots.number), dtype=np.bool_)
        for task, slots in self.allowed.items():
            self.may[task, slots] = True
        counted = view.work.max(initial=0.0)
        self._load = view.work + (counted * 1e-6 or 1.0)  # so that tasks without cost are spread, too

    def _allowed(self, task: int, strict: bool) -> Ints:
        """Return the open slots that a task may use; if there are none, ignore its constraints unless strict."""
        view, machine = self.view, self.view.slots.machine
        pinned = self.opened & ((view.pins[task] < 0) | (machine == view.pins[task]))
        able = view.machines_with_resources(task)[machine]
        for wanted in (pinned & able, pinned, self.opened & able):
            if strict or wanted.any():
                return np.flatnonzero(wanted).astype(np.int32)
        return np.flatnonzero(self.opened).astype(np.int32)

    @cached_property
    def combinations(self) -> float:
        """Number of possible placements of the tasks."""
        return float(np.prod([float(len(self.allowed[task])) for task in self.lost]))

    def scores(self, rows: Placed) -> Floats:
        """Return the objective's score of placements."""
        return self._evaluate(rows)

    def pick(self, rows: Placed, even: bool = True) -> int:
        """Return which of the placements [B, T] is the best; ties by number."""
        excess = self.excess(rows)
        left = np.flatnonzero(excess <= excess.min() + SAME_MB)
        scores = self._evaluate(rows[left])
        top = scores.max()
        left = left[scores >= (top - SAME * abs(top) if np.isfinite(top) else top)]
        if even and len(left) > 1:
            crowding = self.crowding(rows[left])
            left = left[crowding <= crowding.min() * (1 + SAME)]
        return int(left[0])

    def relieve(self, rows: Placed) -> int:
        """Return the placement whose busiest slot or machine has the lowest load; ties go to the most balanced one."""
        busiest = np.maximum(*(loads.max(axis=1) for loads in self._loads(rows)))
        return int(np.lexsort((self.crowding(rows), busiest, self.excess(rows)))[0])

    def excess(self, rows: Placed) -> Floats:
        """Return the excess memory of slots and machines in MB: [B]."""
        slots, memory = self.view.slots, self.view.tasks.memory_mb
        over = np.zeros(len(rows))
        for place, limit in ((rows, slots.memory_mb), (slots.machine[rows], slots.machine_memory_mb)):
            used = _sums(place, memory, len(limit))
            over += np.maximum(used - limit * (1 + MEMORY_SLACK), 0.0).sum(axis=1)
        return over

    def crowding(self, rows: Placed) -> Floats:
        """Return how unevenly slots and machines are loaded for their speed: [B]."""
        slots = self.view.slots
        in_slots, on_machines = self._loads(rows)
        uneven: Floats = (in_slots**2 * slots.cpu).sum(axis=1) + (on_machines**2 * slots.machine_cpu).sum(axis=1)
        return uneven

    def _loads(self, rows: Placed) -> tuple[Floats, Floats]:
        """Return the load of slots [B, S] and machines [B, M] for their speed."""
        slots = self.view.slots
        in_slots = _sums(rows, self._load, slots.number) / slots.cpu
        return in_slots, _sums(slots.machine[rows], self._load, slots.machines) / slots.machine_cpu

    def onto_open(self, placed: Placed) -> Placed:
        """Return every placement that has one more task in an open slot: [B, T]."""
        waiting = [task for task in self.lost if not self.opened[placed[task]]]
        pairs = [(task, slot) for task in waiting for slot in self.allowed[task]]
        rows = np.repeat(placed[None, :], len(pairs), axis=0)
        for row, (task, slot) in enumerate(pairs):
            rows[row, task] = slot
        return rows

    def everything(self) -> Iterator[Placed]:
        """Yield all placements of the tasks, in batches."""
        ways = [self.allowed[task] for task in self.lost]
        total = int(self.combinations)
        for begin in range(0, total, BATCH):
            number = np.arange(begin, min(begin + BATCH, total))
            rows = np.repeat(self.kept[None, :], len(number), axis=0)
            for task, slots in zip(self.lost, ways, strict=True):
                number, digit = np.divmod(number, len(slots))
                rows[:, task] = slots[digit]
            yield rows

    def starts(self) -> Placed:
        """Return starting placements: evenly over all open slots, and over those of each machine alone."""
        machine = self.view.slots.machine
        masks = [self.opened] + [self.opened & (machine == number) for number in np.unique(machine[self.opened])]
        return np.unique(np.array([self._spread(mask) for mask in masks]), axis=0)

    def _spread(self, wanted: Bools) -> Placed:
        """Put the task with the most work first, each where memory suffices and load is then lowest."""
        view, slots, placed = self.view, self.view.slots, self.kept.copy()
        stays = placed >= 0
        in_slot = np.bincount(placed[stays], self._load[stays], slots.number)
        on_machine = np.bincount(slots.machine[placed[stays]], self._load[stays], slots.machines)
        memory = view.tasks.memory_mb
        slot_free = slots.memory_mb - np.bincount(placed[stays], memory[stays], slots.number)
        machine_free = slots.machine_memory_mb - np.bincount(
            slots.machine[placed[stays]], memory[stays], slots.machines
        )
        for task in sorted(self.lost, key=lambda task: -self._load[task]):
            may = self.allowed[task]
            may = may[wanted[may]] if wanted[may].any() else may
            where = slots.machine[may]
            short = np.maximum(memory[task] - np.minimum(slot_free[may], machine_free[where]), 0.0)
            load = np.maximum(
                (in_slot[may] + self._load[task]) / slots.cpu[may],
                (on_machine[where] + self._load[task]) / slots.machine_cpu[where],
            )
            slot = may[np.lexsort((in_slot[may], load, short))[0]]
            placed[task] = slot
            in_slot[slot] += self._load[task]
            on_machine[slots.machine[slot]] += self._load[task]
            slot_free[slot] -= memory[task]
            machine_free[slots.machine[slot]] -= memory[task]
        return placed


class _Search:
    """The best placement seen, and the remaining number of placements to score."""

    def __init__(self, case: _Case, rows: int) -> None:
        self._case = case
        self._left = rows
        self.best = case.kept

    def try_all(self) -> None:
        """Score all placements of the tasks."""
        found = [rows[self._case.pick(rows)] for rows in self._case.everything()]
        self.best = found[self._case.pick(np.array(found))]

    def improve_starts(self) -> None:
        """Improve constructive placements, the best of them first, as long as the limit allows."""
        rows, found = self._case.starts(), []
        while len(rows) and self._left > 0:
            best = self._case.pick(rows)
            found.append(self._improve(rows[best]))
            rows = np.delete(rows, best, axis=0)
        self.best = found[self._case.pick(np.array(found))]

    def _improve(self, placed: Placed) -> Placed:
        """Move single tasks as long as that helps, then swap pairs, repeatedly."""
        moved = True
        while moved and self._left > 0:
            before = placed
            for rows in self._neighbours(placed):
                if self._left <= 0:
                    break
                self._left -= len(rows)
                # Other tasks have moved since these were drawn: only the differences count.
                now = np.concatenate([placed[None, :], np.where(rows != before, rows, placed)])
                placed = now[self._case.pick(now)]
            moved = bool((placed != before).any())
        return placed

    def _neighbours(self, placed: Placed) -> Iterable[Placed]:
        """Yield the placements that differ in one task, task by task, then those that differ in two."""
        return chain(self._moves(placed), self._swaps(placed))

    def _moves(self, placed: Placed) -> Iterator[Placed]:
        for task in sorted(self._case.lost, key=lambda task: -self._case.view.work[task]):
            others = self._case.allowed[task]
            others = others[others != placed[task]]
            if len(others):
                rows = np.repeat(placed[None, :], len(others), axis=0)
                rows[:, task] = others
                yield rows

    def _swaps(self, placed: Placed) -> Iterator[Placed]:
        case = self._case
        first, second = (np.array(case.lost)[side] for side in np.triu_indices(len(case.lost), 1))
        here, there = placed[first], placed[second]
        component = case.view.tasks.component
        useful = (here != there) & (component[first] != component[second])  # tasks of one component are equivalent
        useful &= case.may[first, there] & case.may[second, here]
        for batch in np.array_split(np.flatnonzero(useful), int(useful.sum()) // BATCH + 1):
            rows = np.repeat(placed[None, :], len(batch), axis=0)
            every = np.arange(len(batch))
            rows[every, first[batch]], rows[every, second[batch]] = there[batch], here[batch]
            if len(rows):
                yield rows


def _sums(place: Ints, amount: Floats, places: int) -> Floats:
    """Add up the tasks' amounts by where they are, for many placements: [B, places]."""
    rows = len(place)
    at = place + (np.arange(rows, dtype=np.int64) * places)[:, None]
    sums = np.bincount(at.ravel(), np.tile(amount, rows), rows * places)
    return sums.reshape(rows, places).astype(np.float64)
