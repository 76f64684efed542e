"""TATA's learned placement as published: graph encoders, a recurrent decoder, attention over slots (§III-A).

The decoder does not see how full a slot is. What it was trained with is in the file of its weights.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.entity import Count
from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.published_network import PublishedDecoder
from penstock.policies.placement.learned.samples import best_of
from penstock.policies.placement.learned.weights import chosen_network


@dataclass(frozen=True, slots=True)
class Tata:
    """Propose placements by TATA's network, and keep the best by the objective, as the paper does.

    samples: number of placements that are proposed, the first of them greedily; fewer on large clusters. 1: only that.
    file: the network's weights; None: those of the package.
    """

    samples: Count = 64
    file: str | None = None

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the best proposed placement; `rng` draws all but the first."""
        return best_of(view, self.samples, lambda rows: propose("tata", self.file, view, rows, rng))


def propose(
    network: str, file: str | None, view: PlacementView, rows: int, rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return placements by a published network, and for each the first task without room, -1 without one."""
    decoder = PublishedDecoder(chosen_network(network, file), view, rows)
    decoder.run(rng)
    return decoder.room.placed, decoder.room.stuck
