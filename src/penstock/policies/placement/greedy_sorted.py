"""SPARCLE's baseline GS: its placement step without its dynamic ranking, the neediest tasks first.

GS puts each task where SPARCLE would, on the machine with the highest γ of eq. (2), but in the order of the tasks' own
requirements, regardless of what they exchange.
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
    """Place the most demanding task first, each where the rate decreases least.

    measure: `total` adds up a task's needs of all resources, each as a share of all machines' capacity; `cpu` uses cpu
        alone, as SPARCLE's reference results do.
    ties: among equally good machines, `near` selects the one with the fewest bits × links to placed neighbours, then
        the one with more capacity; `lowest` the first, as the reference results do.
    """

    measure: Literal["total", "cpu"] = "total"
    ties: Ties = "near"

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        need = view.work if self.measure == "cpu" else requirement(view)
        return place_in_order(view, np.argsort(-need, kind="stable").tolist(), self.ties)


def requirement(view: PlacementView) -> Floats:
    """Return what each task needs per source tuple, summed over resources as shares of the cluster's. [T]"""
    slots, tasks = view.slots, view.tasks
    needs = np.column_stack([view.work, tasks.needs * tasks.gain[:, None]])
    there_is = np.concatenate([[slots.machine_cpu.sum()], slots.capacity.sum(axis=0)])
    shares = np.divide(needs, there_is, out=np.zeros_like(needs), where=there_is > 0)
    return np.asarray(shares.sum(axis=1))
