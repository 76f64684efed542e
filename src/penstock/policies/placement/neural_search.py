"""Local search that starts from the placements of the trained network, beside the constructive ones."""

from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count, Probability
from penstock.model.placement import Infeasible
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.samples import proposals
from penstock.policies.placement.local_search import LocalSearch, Placed
from penstock.policies.placement.neural import propose


@dataclass(frozen=True, slots=True)
class NeuralSearch(LocalSearch):
    """Anneal like local-search, from placements that a trained network proposes.

    samples: number of placements that are proposed, fewer on large clusters.
    weight: of throughput against delay, for the network; None: as the objective has it, 0.8 if it has both.
    file: the network's weights; None: those of the package.
    """

    samples: Count = 64
    weight: Probability | None = None
    file: str | None = None

    def _starts(self, view: PlacementView, rng: np.random.Generator) -> Placed | Infeasible:
        constructed = LocalSearch._starts(self, view, rng)
        if isinstance(constructed, Infeasible):
            return constructed
        proposed, _ = proposals(view, self.samples, lambda rows: propose(view, rows, rng, self.weight, self.file))
        return np.unique(np.concatenate([proposed, constructed]), axis=0)
