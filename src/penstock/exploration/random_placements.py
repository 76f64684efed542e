"""Draw random placements as in Li (chapter 2), on every number of machines, that are able to carry the load.

If tasks were drawn over all slots of a cluster alone, they would hardly ever share a machine, and a model would never
see a crowded one. Therefore all numbers of machines are used in random order: the machines are drawn first, then every
task's slot on them (policy `random:machines=N`). A placement that the estimator rejects for load and margin is drawn
again, after a few attempts with one more machine: it would only show a growing queue.
"""

from collections.abc import Iterator
from functools import cached_property

import msgspec
import numpy as np

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import task_names
from penstock.model.topology import Application
from penstock.policies.api import PlacementPolicy, PlacementView
from penstock.policies.registry import placement_policy

TRIES = 200  # attempts per placement
EACH = 8  # attempts with a number of machines before one more is used


class Drawing:
    """Draws placements of one application on one cluster; equal random seeds draw equal ones.

    margin: capacity that a placement must have beyond its load, as a share of the load.
    """

    def __init__(self, application: Application, cluster: Cluster, *, margin: float, seed: int) -> None:
        if not 0 <= margin < 10:
            raise InvalidInput("margin", f"expected a number from 0 to below 10, got {margin:g}")
        if not application.rate_tps:
            problem = f"{application.name!r} declares no load, so placements cannot be checked"
            raise InvalidInput("rate_tps", f"{problem}; add --rates LOW:HIGH, or rate_tps to the application")
        self.application = application
        self.cluster = cluster
        self.margin = margin
        self._rng = np.random.default_rng(seed)
        self._numbers = self._turns()

    @cached_property
    def instance(self) -> Evaluator:
        """The estimator of a placement's throughput."""
        return Evaluator(self.application, self.cluster)

    def draw(self, factor: float = 1.0) -> Placement:
        """Return a placement that sustains the application's load times `factor`."""
        view = PlacementView(self.application, self.cluster)
        machines = next(self._numbers)
        for tried in range(1, TRIES + 1):
            policy = placement_policy(f"random:machines={machines}")
            assert isinstance(policy, PlacementPolicy), "random is a placement policy"
            found = policy.place(view, self._rng)
            if not isinstance(found, Infeasible) and self.sustains(found, factor):
                return found
            if tried % EACH == 0:
                machines = min(machines + 1, len(self.cluster.machines))
        offered = factor * (self.application.offered_tps or 0.0)
        problem = f"none of {TRIES} random placements of {self.application.name!r} on {self.cluster.name!r} sustains"
        raise InvalidInput(
            "rates", f"{problem} {offered:g} tuples/s with a margin of {self.margin:.0%}; lower the load"
        )

    def sustains(self, placement: Placement, factor: float = 1.0) -> bool:
        """Return whether a placement sustains the load times `factor`, with the margin."""
        offered = factor * (self.application.offered_tps or 0.0) * (1 + self.margin)
        evaluation = self.instance.evaluate(placement)
        return evaluation.fits_memory and evaluation.throughput_tps >= offered * (1 - 1e-9)

    def factor(self, low: float, high: float) -> float:
        """Draw a load factor between two limits."""
        return float(self._rng.uniform(low, high))

    def _turns(self) -> Iterator[int]:
        """Yield every number of machines, in a new random order each round."""
        while True:
            yield from (self._rng.permutation(len(self.cluster.machines)) + 1).tolist()


def named(application: Application, cluster: Cluster, placement: Placement) -> dict[str, str]:
    """Return the slot of each task by name."""
    slots = (cluster.slot_names[slot] for slot in placement.slots)
    return dict(zip(task_names(application), slots, strict=True))


def machines_used(cluster: Cluster, placement: Placement) -> int:
    """Return how many machines a placement uses."""
    return len({cluster.slot_names[slot].rpartition("/")[0] for slot in placement.slots})


def at_load(application: Application, factor: float) -> Application:
    """Return an application whose load is scaled."""
    rates = {name: rate * factor for name, rate in application.rate_tps.items()}
    return msgspec.structs.replace(application, rate_tps=rates)
