"""SPARCLE's baseline GS: its placement step without its dynamic ranking, the neediest tasks first.

GS puts each task where SPARCLE would, on the machine with the highest γ of eq. (2), but takes the tasks in the
order of what they require themselves, blind to what they exchange.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Floats
from penstock.policies.api import PlacementView
from penstock.policies.placement.imposed_rate import Ties, place_in_order


@dataclass(frozen=True, slots=True)
class GreedySorted:
    """Place the neediest task first, each where the rate falls least.

    measure: `total` adds up a task's needs of all resources, each as a share of what all machines have; `cpu` looks at
        cpu alone, as SPARCLE's reference answers do.
    ties: among equally good machines `near` takes the one with the least bits × links to the neighbours placed, then
        the roomier; `lowest` the first, as the reference answers do.
    """

    measure: Literal["total", "cpu"] = "total"
    ties: Ties = "near"

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        need = view.work if self.measure == "cpu" else requirement(view)
        return place_in_order(view, np.argsort(-need, kind="stable").tolist(), self.ties)


def requirement(view: PlacementView) -> Floats:
    """Return what each task needs for a source tuple, summed over resources as shares of the cluster's. [T]"""
    slots, tasks = view.slots, view.tasks
    needs = np.column_stack([view.work, tasks.needs * tasks.gain[:, None]])
    there_is = np.concatenate([[slots.machine_cpu.sum()], slots.capacity.sum(axis=0)])
    shares = np.divide(needs, there_is, out=np.zeros_like(needs), where=there_is > 0)
    return np.asarray(shares.sum(axis=1))
