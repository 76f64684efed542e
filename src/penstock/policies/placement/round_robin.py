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
from penstock.policies.placement.drafts import deal_out, interleave
from penstock.policies.placement.rearrangement import make_room


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


def deal(view: PlacementView, turn: Ints) -> Placement | Infeasible:
    """Give every free task the next slot in turn that has room for it; pinned tasks take no turn."""
    draft, stuck = deal_out(view, turn)
    return draft.done() if stuck is None else make_room(draft, stuck)
