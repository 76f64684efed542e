"""TATA's improved Storm: tasks dealt to slots in turn, the hosts with the most slots first.

TATA (section V) compares with Storm's default scheduler after "sorting all hosts in descending order of slots'
number". The order determines which tasks share a host if there are fewer tasks than slots: large hosts come first.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.placement import Infeasible, Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.drafts import interleave
from penstock.policies.placement.round_robin import deal


@dataclass(frozen=True, slots=True)
class IStorm:
    """Deal tasks to the first slot of every host, then to the second of every host: large hosts first."""

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used. Hosts of one size keep the cluster's order."""
        host = view.slots.host
        largest_first = np.argsort(-np.bincount(host), kind="stable").astype(np.int32)
        return deal(view, interleave(host, largest_first))
