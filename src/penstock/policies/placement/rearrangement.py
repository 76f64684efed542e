"""A placement of all tasks near one in which a task has no room: few tasks move, the others keep their slots.

A rule that places one task after another can fragment memory so that the last tasks have no room. The remaining tasks
then go where they exceed memory least, the largest first, and tasks move or are swapped as long as that reduces the
excess. If some excess remains, a mixed-integer program searches for the arrangement that moves the fewest tasks, or
proves that none fits; anti-affinity is left to the program from the start. Nothing here depends on the clock: the
program is limited by its number of nodes.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from penstock.model.placement import MEMORY_SLACK, Constraint, Infeasible, Placement
from penstock.model.taskgraph import Bools, Floats, Ints, sum_by
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft, complete
from penstock.policies.placement.drafts import balanced, deal_out, gathered, interleave, packed, scattered
from penstock.policies.placement.exact import refusal
from penstock.policies.placement.exact.task_groups import group_tasks

NODES = 1000  # of the program's search tree
COLUMNS = 20_000  # maximum size of the program; larger ones take too long
STEPS = 4  # changes per task after which the search for less excess ends


def make_room(draft: Draft, task: int) -> Placement | Infeasible:
    """Move placed tasks so that all fit, also one that no slot has room for; if none is found, return the refusal."""
    view, kept = draft.view, draft.slot
    slots = _fit(view, kept, draft.refusal(task))
    if isinstance(slots, Infeasible):
        return slots
    moved = int(((kept >= 0) & (kept != slots)).sum())
    return complete(view, slots.tolist(), note=f"{moved} of {len(kept)} tasks rearranged to fit into memory")


def first_placements(view: PlacementView, rng: np.random.Generator) -> NDArray[np.int32] | Infeasible:
    """Return placements for a search to start from, within pins and memory, [N, T]; a refusal if there is none.

    If no simple rule finds one, what packing placed is rearranged. Routes are not checked.
    """
    dealt, stuck = deal_out(view, interleave(view.slots.machine))
    drafts = [balanced(view), gathered(view), scattered(view, rng), packed(view)]
    made = [dealt.slot] if stuck is None and isinstance(dealt.done(), Placement) else []
    made += [draft.slot for draft in drafts if isinstance(draft, Draft)]
    if not made:
        stuck_at = drafts[-1]
        assert isinstance(stuck_at, Infeasible)
        kept = np.full(view.tasks.number, -1, dtype=np.int32)
        kept[list(stuck_at.placed)] = list(stuck_at.placed.values())
        found = _fit(view, kept, stuck_at)
        return found if isinstance(found, Infeasible) else found[None, :].astype(np.int32)
    return np.unique(np.array(made, dtype=np.int32), axis=0)


def _fit(view: PlacementView, kept: Ints, stuck: Infeasible) -> Ints | Infeasible:
    """Return slots for all tasks near `kept` [T], where tasks without a slot are -1, or why there are none.

    `stuck` is the refusal of the rule that placed them.
    """
    if stuck.constraint not in (Constraint.MEMORY, Constraint.ANTI_AFFINITY):
        return stuck
    if (short := refusal.without_room(view)) is not None:
        return short
    slots = _settled(view, kept) if view.conflicts is None else None
    if slots is None:
        slots, impossible = _program(view, kept)
        if impossible and stuck.constraint is Constraint.MEMORY:
            return refusal.unpackable(view)
        if impossible:
            return replace(stuck, reason=f"no arrangement meets all anti-affinities: {stuck.reason}", proven=True)
    if slots is None:
        problem, _, remedy = stuck.reason.partition("; ")
        reason = f"no placement was found, nor proven impossible: {problem}; try local-search or optimal, or {remedy}"
        return replace(stuck, reason=reason)
    return slots


def _settled(view: PlacementView, kept: Ints) -> Ints | None:
    """Return where hill climbing puts all tasks; None if some memory is still exceeded."""
    packing = _Packing(view, kept)
    memory = view.tasks.memory_mb
    for task in sorted(np.flatnonzero(kept < 0).tolist(), key=lambda task: -memory[task]):
        packing.add(task)
        packing.relieve()
    return packing.slot if packing.fits() else None


class _Packing:
    """Slots of tasks and used memory of slots and machines, which may exceed their capacity."""

    def __init__(self, view: PlacementView, kept: Ints) -> None:
        self._view, self._slots, self._memory = view, view.slots, view.tasks.memory_mb
        self.slot = kept.astype(np.int32)
        self._in_slot, self._on_machine = self._in_use()
        self._slot_limit = view.slots.memory_mb * (1 + MEMORY_SLACK)
        self._machine_limit = view.slots.machine_memory_mb * (1 + MEMORY_SLACK)
        placed = kept >= 0
        self._load = sum_by(kept[placed], view.work[placed], view.slots.number)
        self._able = np.array([view.machines_with_resources(task) for task in range(view.tasks.number)])  # [T, M]
        free = view.pins < 0
        self._able[~free] &= np.arange(view.slots.machines) == view.pins[~free, None]

    def _in_use(self) -> tuple[Floats, Floats]:
        placed = self.slot >= 0
        where, memory = self.slot[placed], self._memory[placed]
        return sum_by(where, memory, self._slots.number), sum_by(
            self._slots.machine[where], memory, self._slots.machines
        )

    def fits(self) -> bool:
        """Return whether all tasks have a slot and no memory is exceeded, recomputed."""
        in_slot, on_machine = self._in_use()
        within = (in_slot <= self._slot_limit).all() and (on_machine <= self._machine_limit).all()
        return bool((self.slot >= 0).all() and within)

    def add(self, task: int) -> None:
        """Put a task where it exceeds memory least; ties go to the least loaded slot for its speed."""
        excess = self._added(task, np.arange(self._slots.number, dtype=np.int32))
        load = (self._load + self._view.work[task]) / self._slots.cpu
        self._put(task, int(np.lexsort((load, excess))[0]))

    def relieve(self) -> None:
        """Move single tasks away from exceeded memory, or swap pairs, as long as that reduces the excess."""
        for _ in range(STEPS * len(self.slot)):
            best: tuple[float, float, int, int, int] | None = None
            for task in self._crowded():
                for change in (self._best_move(task), self._best_swap(task)):
                    if change is not None and (best is None or change < best):
                        best = change
            if best is None:
                return
            _, _, task, slot, other = best
            here = int(self.slot[task])
            self._take(task)
            if other >= 0:
                self._take(other)
                self._put(other, here)
            self._put(task, slot)

    def _crowded(self) -> list[int]:
        """Return the tasks in slots and on machines whose memory is exceeded."""
        over = self._in_slot > self._slot_limit
        over |= (self._on_machine > self._machine_limit)[self._slots.machine]
        return np.flatnonzero((self.slot >= 0) & over[self.slot]).tolist()

    def _best_move(self, task: int) -> tuple[float, float, int, int, int] | None:
        """Return the move of a task that reduces the excess most: change, memory moved, task, slot, no partner."""
        here, memory = int(self.slot[task]), float(self._memory[task])
        left = self._without(here, memory)
        excess = self._added(task, np.arange(self._slots.number, dtype=np.int32)) + left
        machine = self._slots.machine
        beside = machine == machine[here]  # moves within a machine change only the excess of slots
        excess[beside] = self._within(task, here)[beside]
        slot = int(np.argmin(excess))
        return (float(excess[slot]), memory, task, slot, -1) if excess[slot] < -1e-6 else None

    def _best_swap(self, task: int) -> tuple[float, float, int, int, int] | None:
        """Return the swap with another task that reduces the excess most: like a move, with the partner."""
        machine, here = self._slots.machine, int(self.slot[task])
        there = self.slot
        more = self._memory[task] - self._memory  # increase in the other task's slot
        change = self._over(there, more, self._in_slot, self._slot_limit)
        change += self._over(np.full_like(there, here), -more, self._in_slot, self._slot_limit)
        across = self._over(machine[there], more, self._on_machine, self._machine_limit)
        across += self._over(np.full_like(there, machine[here]), -more, self._on_machine, self._machine_limit)
        change += np.where(machine[there] != machine[here], across, 0.0)
        may: Bools = (there >= 0) & (there != here) & self._able[task, machine[there]] & self._able[:, machine[here]]
        change = np.where(may, change, np.inf)
        other = int(np.argmin(change))
        moved = float(self._memory[task] + self._memory[other])
        return (float(change[other]), moved, task, int(there[other]), other) if change[other] < -1e-6 else None

    def _added(self, task: int, slots: Ints) -> Floats:
        """Return how much the excess grows with a task in each slot; infinite if it is not allowed there. [S]"""
        memory, machine = np.full(len(slots), self._memory[task]), self._slots.machine
        grown = self._over(slots, memory, self._in_slot, self._slot_limit)
        grown += self._over(machine[slots], memory, self._on_machine, self._machine_limit)
        return np.where(self._able[task, machine[slots]], grown, np.inf)

    def _without(self, slot: int, memory: float) -> float:
        """Return the change of the excess with less memory in a slot."""
        at, less = np.array([slot], dtype=np.int32), np.array([-memory])
        slots = self._over(at, less, self._in_slot, self._slot_limit)
        return float((slots + self._over(self._slots.machine[at], less, self._on_machine, self._machine_limit))[0])

    def _within(self, task: int, here: int) -> Floats:
        """Return the change of the excess with a task in each slot of its own machine. [S]"""
        every = np.arange(self._slots.number, dtype=np.int32)
        memory = np.full(len(every), self._memory[task])
        change = self._over(every, memory, self._in_slot, self._slot_limit)
        change += self._over(np.array([here], dtype=np.int32), -memory[:1], self._in_slot, self._slot_limit)[0]
        change[here] = 0.0
        return change

    def _over(self, where: Ints, more: Floats, used: Floats, limit: Floats) -> Floats:
        """Return the change of the excess of places with more memory used."""
        over = used[where] - limit[where]
        change: Floats = np.maximum(over + more, 0.0) - np.maximum(over, 0.0)
        return change

    def _put(self, task: int, slot: int) -> None:
        self.slot[task] = slot
        self._count(task, slot, 1.0)

    def _take(self, task: int) -> None:
        self._count(task, int(self.slot[task]), -1.0)
        self.slot[task] = -1

    def _count(self, task: int, slot: int, sign: float) -> None:
        self._in_slot[slot] += sign * self._memory[task]
        self._on_machine[self._slots.machine[slot]] += sign * self._memory[task]
        self._load[slot] += sign * self._view.work[task]


def _program(view: PlacementView, kept: Ints) -> tuple[Ints | None, bool]:
    """Return the arrangement that moves the fewest tasks, None if none was found, and whether none exists."""
    # imported here because few placements need the solver, which takes long to load
    from penstock.policies.placement.exact.assignment import Assignment
    from penstock.policies.placement.exact.program import SolverStatus, TooLarge

    by_slot = bool(np.isfinite(view.slots.memory_mb).any())
    groups = group_tasks(view, wired=False)
    bins = view.slots.number if by_slot else view.slots.machines
    if 2 * len(groups) * bins > COLUMNS:
        return None, False
    try:
        assignment = Assignment(view, groups, by_slot, ordered=False)
        placed = np.where(kept >= 0, kept if by_slot else view.slots.machine[kept], -1)
        for number, group in enumerate(groups):
            there = placed[list(group.tasks)]
            for place, count in zip(*np.unique(there[there >= 0], return_counts=True), strict=True):
                assignment.reward(number, int(place), int(count))
        solution = assignment.program.solve(np.inf, NODES)
    except TooLarge:
        return None, False
    if solution.values is None:
        return None, solution.outcome is SolverStatus.INFEASIBLE
    return _slots(view, kept, placed, assignment.counts(solution.values), by_slot), False


def _slots(view: PlacementView, kept: Ints, placed: Ints, counts: NDArray[np.int64], by_slot: bool) -> Ints | None:
    """Return the slot of every task, given the number of each group [G] in each bin [B]; tasks stay if possible."""
    draft, moving = Draft(view), []
    for number, group in enumerate(group_tasks(view, wired=False)):
        left = counts[number].copy()
        away = []
        for task in group.tasks:
            if placed[task] >= 0 and left[placed[task]] > 0:
                left[placed[task]] -= 1
                draft.put(task, int(kept[task]))
            else:
                away.append(task)
        moving += list(zip(away, np.repeat(np.arange(len(left)), left).tolist(), strict=True))
    for task, place in moving:
        if by_slot:
            draft.put(task, place)
        else:
            draft.put_on(task, place)
    fits = min(draft.slot_free_mb.min(), draft.machine_free_mb.min()) >= 0
    return draft.slot if fits else None
