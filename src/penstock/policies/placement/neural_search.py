"""Local search that starts from the placements of the trained network, beside the constructive ones."""

import time
from dataclasses import dataclass

import numpy as np

from penstock.model.entity import Count, Probability
from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.samples import proposals
from penstock.policies.placement.local_search import LocalSearch, Placed
from penstock.policies.placement.neural import propose

SHARE = 0.25  # of the time limit, for proposals
FURTHER = 0.12  # time of a further proposal, in times of the greedy one


@dataclass(frozen=True, slots=True)
class NeuralSearch(LocalSearch):
    """Anneal like local-search, from placements that a trained network proposes.

    samples: number of placements that are proposed, fewer if they would take more than a quarter of the time.
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
        began = time.perf_counter()
        greedy, _ = self._proposals(view, 1, rng)
        samples = self._affordable(time.perf_counter() - began)
        drawn = self._proposals(view, samples, rng)[0] if samples > 1 else greedy
        return np.unique(np.concatenate([greedy, drawn, constructed]), axis=0)

    def _proposals(
        self, view: PlacementView, samples: int, rng: np.random.Generator
    ) -> tuple[Placed, Placement | Infeasible | None]:
        return proposals(view, samples, lambda rows: propose(view, rows, rng, self.weight, self.file))

    def _affordable(self, greedy: float) -> int:
        """Return how many placements may be proposed in their share of the time, given the time of the greedy one."""
        if self.seconds is None:
            return self.samples
        return int(np.clip((SHARE * self.seconds - greedy) / (FURTHER * greedy), 0, self.samples))
