"""Random placement: the baseline for every rule, and the source of varied samples.

SPARCLE compares with it; Li's predictors and learners are trained on placements drawn this way.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count
from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.rearrangement import make_room


@dataclass(frozen=True, slots=True)
class Random:
    """Give every task a random slot among those with room for it; pinned tasks are placed first.

    machines: number of machines that are drawn first, and used by all tasks that are not pinned; None: all machines. On
    a large cluster, tasks in random slots hardly ever share a machine, so samples for training also use this.
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
                return make_room(draft, task) if self.machines is None else draft.refusal(task)
            draft.put(task, int(room[rng.integers(len(room))]))
        return draft.done()
