"""SPARCLE's baseline GR: its placement step without its dynamic ranking, the tasks in random order.

GR puts each task where SPARCLE would, on the machine with the highest γ of eq. (2).
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.imposed_rate import Ties, place_in_order


@dataclass(frozen=True, slots=True)
class GreedyRandom:
    """Place tasks in random order, each where the rate decreases least.

    ties: among equally good machines, `near` selects the one with the fewest bits × links to placed neighbours, then
        the one with more capacity; `lowest` the first, as SPARCLE's reference results do.
    """

    ties: Ties = "near"

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` shuffles the tasks."""
        return place_in_order(view, rng.permutation(view.tasks.number).tolist(), self.ties)
