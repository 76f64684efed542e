"""TATA's learned baseline (Ni et al. 2020): a fixed number of slots that are all alike, and no delay in the reward.

It is TATA's network with slots that have a number instead of features, trained for throughput on TATA's estimator, as
in the paper's comparison. Of a larger cluster it uses the first slots.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count
from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.samples import best_of
from penstock.policies.placement.tata import propose


@dataclass(frozen=True, slots=True)
class Ni:
    """Propose placements by the network of Ni et al., and keep the best by the objective.

    samples: number of placements that are proposed, the first of them greedily; fewer on large clusters. 1: only that.
    file: the network's weights; None: those of the package.
    """

    samples: Count = 64
    file: str | None = None

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the best proposed placement; `rng` draws all but the first."""
        return best_of(view, self.samples, lambda rows: propose("ni", self.file, view, rows, rng))
