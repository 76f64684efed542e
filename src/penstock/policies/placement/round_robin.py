"""Storm's default scheduler: tasks dealt to slots in turn.

Storm's `EvenScheduler` sorts the free slots so that neighbours in the list are on different machines, and deals the
tasks of a topology to them one after another, whatever they cost. Memory is unknown to it; here a slot without room
is passed over, so that the answer differs from Storm's only where Storm's would not run.
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
        return deal(view, interleave(view, np.arange(slots.machines, dtype=np.int32)))


def interleave(view: PlacementView, machines: Ints) -> Ints:
    """Return all slots: the first of each machine in the given order, then the second of each, and so on."""
    rank = np.empty(len(machines), dtype=np.int64)
    rank[machines] = np.arange(len(machines))
    slots = view.slots
    number = np.arange(slots.number) - slots.first[slots.machine]
    return np.lexsort((rank[slots.machine], number)).astype(np.int32)


def deal(view: PlacementView, turn: Ints) -> Placement | Infeasible:
    """Give every task the next slot in turn that has room for it."""
    draft = Draft(view)
    next_turn = 0
    for task in range(view.tasks.number):
        ahead = np.roll(turn, -next_turn)
        room = draft.slots_with_room(task)[ahead]
        if not room.any():
            return draft.stuck(task)
        skipped = int(np.argmax(room))
        draft.put(task, int(ahead[skipped]))
        if view.pins[task] < 0:  # a pinned task takes no turn
            next_turn = (next_turn + skipped + 1) % len(turn)
    return draft.done()
