"""Placement by Penstock's trained network: greedy, or the best of several placements that it proposes.

A transformer encodes components and machines, and a decoder places one task after another, seeing each slot's load,
remaining memory and the task's neighbours there. It is trained by policy gradients on random applications and clusters
(`penstock models train placement`), conditioned on the weight of throughput against delay.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.model.entity import Count, Probability
from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.network import Decoder, weight_of
from penstock.policies.placement.learned.samples import best_of
from penstock.policies.placement.learned.weights import chosen_network


@dataclass(frozen=True, slots=True)
class Neural:
    """Propose placements by a trained network, and keep the best by the objective.

    samples: number of placements that are proposed, the first of them greedily; fewer on large clusters. 1: only that.
    weight: of throughput against delay; None: as the objective has it, 0.8 if it has both.
    file: the network's weights; None: those of the package.
    """

    samples: Count = 64
    weight: Probability | None = None
    file: str | None = None

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the best proposed placement; `rng` draws all but the first."""
        return best_of(view, self.samples, lambda rows: propose(view, rows, rng, self.weight, self.file))


def propose(
    view: PlacementView, rows: int, rng: np.random.Generator, weight: float | None, file: str | None
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return placements by the network, and for each the first task without room, -1 without one."""
    weight = weight_of(view.objective) if weight is None else weight
    decoder = Decoder(chosen_network("neural", file), view, weight, rows)
    decoder.run(rng)
    return decoder.room.placed, decoder.room.stuck
