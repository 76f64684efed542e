"""Random placement: the yardstick that every rule must beat, and the source of varied samples.

SPARCLE compares with it; Li's predictors and learners are trained on placements drawn this way.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count
from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft


@dataclass(frozen=True, slots=True)
class Random:
    """Give every task a slot drawn evenly from those that have room for it; pinned tasks draw first.

    machines: so many are drawn before, and only they take tasks that are not pinned; None: all do. Over all slots of a
    large cluster tasks are hardly ever near each other, so that samples for learning are drawn with this, too.
    """

    machines: Count | None = None

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return a placement drawn with `rng`."""
        draft = Draft(view)
        number = view.slots.machines
        drawn = np.arange(number)
        if self.machines is not None:
            drawn = rng.choice(number, min(self.machines, number), replace=False)
        among = np.isin(view.slots.machine, drawn)
        for task in np.argsort(view.pins < 0, kind="stable").tolist():
            fits = draft.slots_with_room(task)
            room = np.flatnonzero(fits & among if view.pins[task] < 0 else fits)
            if not len(room):
                return draft.stuck(task) if self.machines is None else draft.refusal(task)
            draft.put(task, int(room[rng.integers(len(room))]))
        return draft.done()
