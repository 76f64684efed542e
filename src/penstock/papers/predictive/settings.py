"""Applications and machines: Li's four topologies at their sizes on ten machines, loads relative to the default's.

The dissertation gives no loads, costs or delays. Costs are those of `workloads.storm_applications`. Delays between
slots have TATA's proportions (the same slot 1, process 1.5, machine 2, another 4), scaled so that word count under the
default scheduler takes the dissertation's 2.2 ms: the one absolute time that is needed.

Every task has a thread of its own, like executors in Storm, and a placement is a machine for every task: the ten slots
of Li's machines are processes, of which an application uses one per machine. In this model slots are threads, so
machines have as many as their memory allows.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.experiments.figure import Case
from penstock.model.cluster import Cluster, Distances
from penstock.model.costs import Costs
from penstock.model.placement import Infeasible
from penstock.model.topology import Application
from penstock.policies.api import PlacementPolicy, PlacementView
from penstock.policies.registry import placement_policy
from penstock.sim.events import Twin
from penstock.workloads.clusters import li
from penstock.workloads.storm_applications import continuous_queries, log_processing, word_count

TOPOLOGIES: Mapping[str, Callable[[], Application]] = {
    "word-count": word_count,
    "log-processing": log_processing,
    "continuous-queries": continuous_queries,
    "word-count-2": lambda: word_count(second_sources=6),
}
SCALE = 0.18  # of TATA's delays in ms
DELAY_VARIATION = 0.25  # of delays between machines, standard deviation over mean: an assumption, not fitted
THREADS = 32  # per machine: tasks of 128 MB that fit its 4 GB
DEFAULT = "round-robin"  # Storm's default scheduler
LOADS = (0.3, 0.6, 0.9)  # of what the default placement carries; used in turn for training
NEW_LOADS = (0.45, 0.75)  # not used for training
SEEDS = 3
COSTS = Costs(delay_variation=DELAY_VARIATION)
"""Costs of every twin that represents the real cluster."""
SOME, ALL = "some machines", "all machines"
"""How random placements are drawn: each task's machine uniformly among a random number of machines, like
`penstock sim explore`; or always among all ten, so that no machine is crowded. The dissertation says "randomly
generated" and "diverse"."""


class Amounts(NamedTuple):
    """Size of a simulation."""

    windows: int  # for training: 20 minutes in windows of 30 s are 40
    apart: int  # held-out placements at each load
    tuples: int  # mean number per window and task of the widest component
    measured: int  # windows over which a placement is measured
    known: int  # windows of the default placement that give the loads
    repeats: int  # runs of a twin whose mean is its prediction


FULL, QUICK = Amounts(40, 8, 500, 8, 10, 4), Amounts(6, 2, 100, 3, 2, 1)


def trial_cases(topology: str, quick: bool, training: str = SOME) -> list[Case]:
    """Return the cases of a topology."""
    amounts = (QUICK if quick else FULL)._asdict()
    return [
        {"topology": topology, "training": training, "seed": seed, **amounts} for seed in range(1 if quick else SEEDS)
    ]


def li_cluster(machines: int = 10, scale: float = SCALE) -> Cluster:
    """Return Li's machines with TATA's delays times `scale`."""
    far = Distances()
    near = Distances(
        same_slot_ms=scale * far.same_slot_ms,
        same_process_ms=scale * far.same_process_ms,
        same_host_ms=scale * far.same_host_ms,
        other_host_ms=scale * far.other_host_ms,
    )
    threaded = tuple(msgspec.structs.replace(machine, slots=THREADS) for machine in li(machines).machines)
    return msgspec.structs.replace(li(machines), machines=threaded, distances=near)


class PlacedTopology(NamedTuple):
    """A topology on the machines."""

    application: Application
    cluster: Cluster
    default: tuple[int, ...]  # slot of each task
    maximum_tps: float  # of the default placement

    def at(self, load: float) -> Application:
        """Return the application at a share of what the default placement carries, equal for all sources."""
        sources = [source.name for source in self.application.sources]
        rates = {name: load * self.maximum_tps / len(sources) for name in sources}
        return msgspec.structs.replace(self.application, rate_tps=rates)


@cache
def setting(topology: str) -> PlacedTopology:
    """Return a topology with its default placement and that placement's maximum rate."""
    application, machines = TOPOLOGIES[topology](), li_cluster()
    default = placed(DEFAULT, application, machines, np.random.default_rng(0))
    return PlacedTopology(application, machines, default, Twin(application, machines, COSTS).saturated_tps(default))


def placed(policy: str, application: Application, machines: Cluster, rng: np.random.Generator) -> tuple[int, ...]:
    """Return the slots in a policy's placement."""
    chosen = placement_policy(policy)
    assert isinstance(chosen, PlacementPolicy), f"{policy} is a placement policy"
    found = chosen.place(PlacementView(application, machines), rng)
    assert not isinstance(found, Infeasible), f"{policy}: {found}"
    return tuple(found.slots)


def widest(application: Application) -> int:
    """Return the number of tasks of the widest component."""
    return max(component.parallelism for component in application.components)


def amounts_of(case: Case) -> Amounts:
    """Return the size of a case's simulation."""
    return Amounts(*(int(case[name]) for name in Amounts._fields))


def loads_in_turn(number: int) -> Sequence[float]:
    """Return the loads of a number of training windows."""
    return [LOADS[one % len(LOADS)] for one in range(number)]
