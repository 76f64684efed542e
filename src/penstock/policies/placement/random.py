"""Random placement: the yardstick that every rule must beat, and the source of varied samples.

SPARCLE compares with it; Li's predictors and learners are trained on placements drawn this way.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft


@dataclass(frozen=True, slots=True)
class Random:
    """Give every task a slot drawn evenly from those that have room for it; pinned tasks draw first."""

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return a placement drawn with `rng`."""
        draft = Draft(view)
        for task in np.argsort(view.pins < 0, kind="stable").tolist():
            room = np.flatnonzero(draft.slots_with_room(task))
            if not len(room):
                return draft.stuck(task)
            draft.put(task, int(room[rng.integers(len(room))]))
        return draft.done()
