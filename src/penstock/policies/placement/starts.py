"""Cheap placements from which a search starts: dealt, balanced, gathered, scattered, packed.

Their strengths differ: dealing uses every slot, balancing distributes the cpu load evenly, gathering reduces the
traffic between machines, packing works if memory is short. A search that keeps the best placement seen is never worse
than the best of these.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Bools, Floats
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.round_robin import deal_out, interleave

Preference = Callable[[Draft, int], Floats]
"""From a draft and a task to a penalty of each slot: [S]."""


def starts(view: PlacementView, rng: np.random.Generator) -> NDArray[np.int32] | Infeasible:
    """Return placements that respect pins and memory, [N, T]; if none is found, packing rearranged, or a refusal.

    Routes are not checked.
    """
    dealt, stuck = deal_out(view, interleave(view.slots.machine))
    drafts = [balanced(view), gathered(view), scattered(view, rng), packed(view)]
    made = [dealt.slot] if stuck is None and isinstance(dealt.done(), Placement) else []
    made += [draft.slot for draft in drafts if isinstance(draft, Draft)]
    if not made:
        from penstock.policies.placement.rearrangement import fitting  # needs packing itself

        refusal = drafts[-1]
        assert isinstance(refusal, Infeasible)
        kept = np.full(view.tasks.number, -1, dtype=np.int32)
        kept[list(refusal.placed)] = list(refusal.placed.values())
        found = fitting(view, kept, refusal)
        return found if isinstance(found, Infeasible) else found[None, :].astype(np.int32)
    return np.unique(np.array(made, dtype=np.int32), axis=0)


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
