"""Flink with `cluster.evenly-spread-out-slots`: shared slots taken from all machines in turn.

Flink's default fills one machine before it starts the next, which leaves machines idle if there are more slots than the
widest component has tasks. With this option it uses a slot of the least used machine each time.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.drafts import interleave
from penstock.policies.placement.flink import share_slots


@dataclass(frozen=True, slots=True)
class FlinkSpread:
    """Put subtask k of every component in the k-th slot, with slots from every machine in turn."""

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        return share_slots(view, interleave(view.slots.machine))
