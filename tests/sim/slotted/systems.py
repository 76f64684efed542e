"""Small systems for tests of the simulator: fixed and random ones; and access to the tables of a simulation."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from penstock.model.cluster import Cluster, Machine
from penstock.model.slotted import Longs, PlacedApplication, SlottedSystem, build_slotted_system
from penstock.model.topology import Component, Grouping, Kind, Stream, Topology
from penstock.policies.registry import routing_policy
from penstock.policies.tuples.lanes import Lanes, Queues
from penstock.sim.slotted import Arrivals, SlottedResult, simulate
from penstock.sim.slotted.simulation import run_slots
from penstock.sim.slotted.state import RootArrivals, SlotCounts, SlottedState

GROUPINGS = (Grouping.SHUFFLE, Grouping.SHUFFLE, Grouping.ALL, Grouping.GLOBAL)
MACHINES = 3


def mesh(number: int = MACHINES) -> Cluster:
    return Cluster(name="mesh", machines=tuple(Machine(name=f"m{i}") for i in range(number)))


def line(*widths: int, service: float | Sequence[float] = 1.0, limit: int = 1000, cost: float = 1.0) -> SlottedSystem:
    """Components of these widths one after another, each task on a machine of its own."""
    kinds = [Kind.SOURCE, *[Kind.OPERATOR] * (len(widths) - 2), Kind.SINK]
    components = [Component(name=f"c{i}", kind=kinds[i], parallelism=width) for i, width in enumerate(widths)]
    streams = [Stream(source=f"c{i}", target=f"c{i + 1}") for i in range(len(widths) - 1)]
    topology = Topology(name="line", components=tuple(components), streams=tuple(streams))
    number = sum(widths)
    between = cost * (1.0 - np.eye(number))
    system = build_slotted_system([PlacedApplication(topology, range(number))], mesh(number), cost=between, limit=limit)
    served = np.full(number, np.inf)
    served[widths[0] :] = service
    return system._replace(service=served)


def random_system(rng: np.random.Generator, groupings: Sequence[Grouping] = GROUPINGS) -> SlottedSystem:
    """Sources, operators and sinks, with forks, joins, copies, any selectivity, and limits that are reached."""
    kinds = [Kind.SOURCE] * rng.integers(1, 3) + [Kind.OPERATOR] * rng.integers(0, 3) + [Kind.SINK]
    components = [
        Component(name=f"c{i}", kind=kind, parallelism=int(rng.integers(1, 4))) for i, kind in enumerate(kinds)
    ]
    last, sources = len(kinds) - 1, kinds.count(Kind.SOURCE)
    pairs = {(i, int(rng.integers(max(i + 1, sources), last + 1))) for i in range(last)}
    pairs |= {(int(rng.integers(0, i)), i) for i in range(sources, last + 1)}
    streams = [
        Stream(
            source=f"c{a}",
            target=f"c{b}",
            grouping=groupings[int(rng.integers(len(groupings)))],
            selectivity=float(rng.choice([1.0, 1.0, 0.5, 0.3, 2.0, 1.7])),
        )
        for a, b in sorted(pairs)
    ]
    topology = Topology(name="random", components=tuple(components), streams=tuple(streams))
    slots = rng.integers(0, MACHINES, topology.task_count).tolist()
    between = rng.integers(0, 4, (MACHINES, MACHINES)).astype(np.float64)
    system = build_slotted_system([PlacedApplication(topology, slots)], mesh(), cost=between)
    service = rng.choice([0.4, 1.0, 1.5, 2.0, 3.7, 5.0, np.inf], system.tasks)
    return system._replace(service=np.where(system.source, np.inf, service), limit=rng.integers(2, 12, system.tasks))


def random_arrivals(system: SlottedSystem, slots: int, rng: np.random.Generator, ahead: bool = False) -> Arrivals:
    """Return Poisson arrivals; with look-ahead, predictions are often wrong."""
    counts = np.where(system.source[:, None], rng.poisson(1.2, (system.tasks, slots)), 0)
    if not ahead:
        return Arrivals(counts)
    predicted = np.where(rng.random(counts.shape) < 0.5, counts, rng.poisson(1.2, counts.shape))
    lead = rng.integers(0, 5, system.tasks)
    return Arrivals(counts, predicted * system.source[:, None], lead * system.source)


class Inside(NamedTuple):
    """The tables of a simulation, at its start and at its end."""

    outcome: SlottedResult
    state: SlottedState
    queues: Queues
    lanes: Lanes
    feed: RootArrivals
    counts: SlotCounts
    turn: Longs  # at the start
    rng: np.random.Generator  # at the start


def inspect_run(system: SlottedSystem, arrivals: Arrivals, spec: str, run: Any = run_slots, **settings: Any) -> Inside:
    """Simulate, and return the tables."""
    begun: list[Any] = []
    ended: list[Any] = []

    def watched(*tables: Any) -> int:
        if not begun:
            begun.extend((tables[2].turn.copy(), deepcopy(tables[12])))
        ended[:] = tables[1:6]
        slot: int = run(*tables)
        return slot

    outcome = simulate(system, arrivals, routing_policy(spec), run=watched, **settings)
    return Inside(outcome, *ended, *begun)
