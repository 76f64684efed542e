"""Draws placements to try: as random as Li's (chapter 2), of every number of machines, and fit to carry the load.

Drawn over all slots of a cluster alone, tasks would hardly ever be near each other and a model would never see a
crowded machine. So every number of machines has its turn, in a random order; those machines are drawn, and then every
task's slot on them (policy `random:machines=N`). A placement that the estimator says cannot sustain the load with a
margin is drawn again, after a few times on one machine more: what it would show is a queue that grows.
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

TRIES = 200  # draws for one placement
EACH = 8  # draws with a number of machines, before one more


class Drawing:
    """Draws placements of one application on one cluster; equal seeds draw equal ones.

    margin: how much more than its load a placement must carry, as a share of the load.
    """

    def __init__(self, application: Application, cluster: Cluster, *, margin: float, seed: int) -> None:
        if not 0 <= margin < 10:
            raise InvalidInput("margin", f"expected a number from 0 to below 10, got {margin:g}")
        if not application.rate_tps:
            problem = f"{application.name!r} states no load, without which no placement can be judged"
            raise InvalidInput("rate_tps", f"{problem}; give --rates LOW:HIGH, or the application rate_tps")
        self.application = application
        self.cluster = cluster
        self.margin = margin
        self._rng = np.random.default_rng(seed)
        self._numbers = self._turns()

    @cached_property
    def instance(self) -> Evaluator:
        """What estimates what a placement carries."""
        return Evaluator(self.application, self.cluster)

    def draw(self, factor: float = 1.0) -> Placement:
        """Return a placement that sustains so many times the application's load."""
        view = PlacementView(self.application, self.cluster)
        machines = next(self._numbers)
        for tried in range(1, TRIES + 1):
            policy = placement_policy(f"random:machines={machines}")
            assert isinstance(policy, PlacementPolicy), "random is one"
            found = policy.place(view, self._rng)
            if not isinstance(found, Infeasible) and self.sustains(found, factor):
                return found
            if tried % EACH == 0:
                machines = min(machines + 1, len(self.cluster.machines))
        offered = factor * (self.application.offered_tps or 0.0)
        problem = f"none of {TRIES} random placements of {self.application.name!r} on {self.cluster.name!r} carries"
        raise InvalidInput("rates", f"{problem} {offered:g} tuples/s with {self.margin:.0%} to spare; lower the load")

    def sustains(self, placement: Placement, factor: float = 1.0) -> bool:
        """Return whether a placement carries so many times the load, with the margin."""
        offered = factor * (self.application.offered_tps or 0.0) * (1 + self.margin)
        evaluation = self.instance.evaluate(placement)
        return evaluation.fits_memory and evaluation.throughput_tps >= offered * (1 - 1e-9)

    def factor(self, low: float, high: float) -> float:
        """Draw a load between two, as a multiple of the application's."""
        return float(self._rng.uniform(low, high))

    def _turns(self) -> Iterator[int]:
        """Give every number of machines its turn, in an order drawn anew each round."""
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
    """Return an application with so many times its load."""
    rates = {name: rate * factor for name, rate in application.rate_tps.items()}
    return msgspec.structs.replace(application, rate_tps=rates)
