"""Simple rules that fill a draft, from which a search starts: dealt, balanced, gathered, scattered, packed.

Their strengths differ: dealing uses every slot, balancing distributes the cpu load evenly, gathering reduces the
traffic between machines, packing works if memory is short. A search that keeps the best placement seen is never worse
than the best of these.
"""

from collections.abc import Callable

import numpy as np

from penstock.model.placement import Infeasible
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft

Preference = Callable[[Draft, int], Floats]
"""From a draft and a task to a penalty of each slot: [S]."""


def interleave(group: Ints, turn: Ints | None = None) -> Ints:
    """Return all slots: the first of each group, then the second of each group, and so on.

    `group` [S] numbers the group of every slot (its machine, its host); `turn` is the order of the groups, by default
    their numbers.
    """
    size = np.bincount(group)
    by_group = np.argsort(group, kind="stable")
    number = np.empty(len(group), dtype=np.int64)  # position of the slot in its group
    number[by_group] = np.arange(len(group)) - np.repeat(np.cumsum(size) - size, size)
    rank = np.arange(len(size)) if turn is None else np.argsort(turn)
    return np.lexsort((rank[group], number)).astype(np.int32)


def deal_out(view: PlacementView, turn: Ints) -> tuple[Draft, int | None]:
    """Deal as long as there is room; return what is placed, and the first task without room."""
    draft = Draft(view)
    if (stuck := draft.put_pinned()) is not None:
        return draft, stuck
    next_turn = 0
    for task in np.flatnonzero(view.pins < 0).tolist():
        ahead = np.roll(turn, -next_turn)
        room = draft.slots_with_room(task)[ahead]
        if not room.any():
            return draft, int(task)
        skipped = int(np.argmax(room))
        draft.put(task, int(ahead[skipped]))
        next_turn = (next_turn + skipped + 1) % len(turn)
    return draft, None


def balanced(view: PlacementView) -> Draft | Infeasible:
    """Put the task with the most work first, each where slot and machine are then least loaded for their speed."""
    slots = view.slots

    def load(draft: Draft, task: int) -> Floats:
        in_slot = (draft.slot_load + view.work[task]) / slots.cpu
        on_machine = (draft.machine_load + view.work[task]) / slots.machine_cpu
        worst: Floats = np.maximum(in_slot, on_machine[slots.machine])
        return worst

    return _fill(view, -view.work, load)


def gathered(view: PlacementView) -> Draft | Infeasible:
    """Fill the most powerful machine, then the next, each task in the machine's least loaded slot."""
    slots = view.slots
    rank = np.argsort(np.argsort(-slots.machine_cpu, kind="stable"))[slots.machine].astype(np.float64)

    def turn(draft: Draft, _task: int) -> Floats:
        unwanted: Floats = rank + draft.slot_load / (draft.slot_load.max() + 1.0)
        return unwanted

    return _fill(view, np.arange(view.tasks.number, dtype=np.float64), turn)


def scattered(view: PlacementView, rng: np.random.Generator) -> Draft | Infeasible:
    """Give every task a random slot."""
    return _fill(view, rng.random(view.tasks.number), lambda _draft, _task: rng.random(view.slots.number))


def packed(view: PlacementView) -> Draft | Infeasible:
    """Put the largest task first, each where the least memory remains (best fit, decreasing)."""

    def room(draft: Draft, _task: int) -> Floats:
        free: Floats = np.minimum(draft.slot_free_mb, draft.machine_free_mb[view.slots.machine])
        return free

    return _fill(view, -view.tasks.memory_mb, room)


def _fill(view: PlacementView, order: Floats, unwanted: Preference) -> Draft | Infeasible:
    """Place pinned tasks, then the others by ascending `order`, each in the slot with room and the lowest penalty."""
    draft = Draft(view)
    for task in np.lexsort((order, view.pins < 0)).tolist():
        fits: Bools = draft.slots_with_room(task)
        if not fits.any():
            return draft.refusal(task)
        draft.put(task, int(np.argmin(np.where(fits, unwanted(draft, task), np.inf))))
    return draft
