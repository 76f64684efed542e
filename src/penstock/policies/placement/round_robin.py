"""Storm's default scheduler: tasks dealt to slots in turn.

Storm's `EvenScheduler` sorts the free slots so that neighbours in the list are on different machines, and deals the
tasks of a topology to them one after another, whatever they cost. It ignores memory; here a slot without room is
skipped, so the result differs from Storm's only if Storm's would not run.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """Deal tasks to slots in turn.

    order: `interleaved` takes the first slot of every machine, then the second of every machine, as Storm does;
        `listed` takes the slots as the cluster lists them.
    """

    order: Literal["interleaved", "listed"] = "interleaved"

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        slots = view.slots
        if self.order == "listed":
            return deal(view, np.arange(slots.number, dtype=np.int32))
        return deal(view, interleave(slots.machine))


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


def deal(view: PlacementView, turn: Ints) -> Placement | Infeasible:
    """Give every free task the next slot in turn that has room for it; pinned tasks take no turn."""
    draft, stuck = deal_out(view, turn)
    return draft.done() if stuck is None else draft.stuck(stuck)


def deal_out(view: PlacementView, turn: Ints) -> tuple[Draft, int | None]:
    """Deal as long as there is room; return what is placed, and the first task without room."""
    draft = Draft(view)
    if (stuck := draft.first_pinned_stuck()) is not None:
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
