"""Random topologies with random placements, as in the paper's check of its estimate (§V-B), on its three machines.

A topology has 2 to 10 components (one alone would be source and sink at once) of 1 to 6 tasks in layers, with forks and
joins, and one source; a tuple costs 1 to 6 units, as in the authors' data set. A placement uses a random number of
random slots, and every task has one of them. In every second topology the tuple's key chooses the task, so that a
stream splits evenly, which is what TATA's estimate assumes; in the others senders avoid tasks without room.
"""

from typing import NamedTuple

import msgspec
import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.placement import Placement
from penstock.model.topology import Application
from penstock.workloads.clusters import tata
from penstock.workloads.topologies import layered

COMPONENTS = (2, 10)
MOST_TASKS = 6  # of a component
UNITS = (1, 6)
UNIT_S = 0.004  # cost of one unit; a tuple keeps a core of speed 1 busy for 4 to 24 ms
TASK_MB = 8.0  # mean; little, so that all tasks fit in one slot
EVEN, CHOSEN = "fields", "shuffle"


class Drawn(NamedTuple):
    """A topology on the machines, and a placement."""

    application: Application
    cluster: Cluster
    placement: Placement
    streams: str  # EVEN or CHOSEN


def draw(number: int, seed: int = 0) -> Drawn:
    """Draw the topology and the placement of a number."""
    rng = np.random.default_rng([seed, number])
    application, cluster = _topology(number, rng), tata()
    used = rng.choice(cluster.slot_count, int(rng.integers(1, cluster.slot_count + 1)), replace=False)
    placement = Placement(tuple(rng.choice(used, application.task_count).tolist()))
    return Drawn(application, cluster, placement, (EVEN, CHOSEN)[number % 2])


def _topology(number: int, rng: np.random.Generator) -> Application:
    """Draw a topology; again if it has several sources, whose shares of the rate the paper does not define."""
    while True:
        components = int(rng.integers(COMPONENTS[0], COMPONENTS[1] + 1))
        drawn = layered(
            components=components,
            depth=int(rng.integers(2, components + 1)),
            parallelism=MOST_TASKS,
            min_parallelism=1,
            memory_mb=TASK_MB,
            keyed=1.0 if number % 2 == 0 else 0.0,
            seed=int(rng.integers(2**31)),
        )
        if len(drawn.sources) == 1:
            units = rng.integers(UNITS[0], UNITS[1] + 1, components)
            costed = tuple(
                msgspec.structs.replace(one, cpu=UNIT_S * float(unit))
                for one, unit in zip(drawn.components, units, strict=True)
            )
            return msgspec.structs.replace(drawn, name=f"random-{number}", components=costed)
