"""The reference answers of ../shared/data/sparcle/cases.json, as applications and clusters.

One data unit of an instance is one source tuple, and every task is a component of one task that processes exactly one
tuple for it. A component with several inputs would process one tuple of each, so its inputs have selectivities ½, ¼, …
that add up to 1, and tuples as many times larger: in powers of two, so that no rounding moves a tie.
"""

import json
from functools import cache
from typing import Any

from penstock.model.cluster import Cluster, Distances, Link, Machine
from penstock.model.placement import Placement
from penstock.model.slotgraph import expand_slots
from penstock.model.topology import Application, Component, Kind, Stream
from tests.shared_data import SHARED

Instance = dict[str, Any]

BITS_A_BYTE = 8
MEGABIT = 1e6
AT_ONCE = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=0.0)


@cache
def instances() -> list[Instance]:
    """Return all instances with their answers; none where the data is absent."""
    path = SHARED / "sparcle" / "cases.json"
    return list(json.loads(path.read_text())["instances"]) if path.exists() else []


def build(instance: Instance) -> tuple[Application, Cluster]:
    """Return an instance's application and cluster: task `t3` is its task 3, node `m2` its machine 2.

    A machine without any capacity is a switch, which changes the numbers of the machines after it: compare `hosts`.
    """
    return _application(instance), _cluster(instance)


def hosts(cluster: Cluster, placement: Placement) -> list[int]:
    """Return for every task of a placement the instance's number of its machine."""
    machine = expand_slots(cluster).machine
    return [int(cluster.machines[machine[slot]].name[1:]) for slot in placement.slots]


def _application(instance: Instance) -> Application:
    needs, edges = instance["tasks"], instance["edges"]
    kinds = {0: Kind.SOURCE, len(needs) - 1: Kind.SINK}
    pins = {int(task): f"m{machine}" for task, machine in instance["pins"].items()}
    return Application(
        name=f"instance-{instance['id']}",
        components=tuple(
            Component(
                name=f"t{task}",
                kind=kinds.get(task, Kind.OPERATOR),
                cpu=need[0],
                resources={f"r{number}": amount for number, amount in enumerate(need[1:], 1)},
                pinned=pins.get(task),
            )
            for task, need in enumerate(needs)
        ),
        streams=tuple(
            Stream(
                source=f"t{producer}",
                target=f"t{consumer}",
                selectivity=share,
                tuple_bytes=bits * MEGABIT / BITS_A_BYTE / share,
            )
            for (producer, consumer, bits), share in zip(edges, _shares(edges), strict=True)
        ),
    )


def _cluster(instance: Instance) -> Cluster:
    capacities = instance["machines"]
    return Cluster(
        name=instance["topology"],
        machines=tuple(
            Machine(
                name=f"m{number}",
                speed=capacity[0],
                resources={f"r{other}": amount for other, amount in enumerate(capacity[1:], 1)},
            )
            for number, capacity in enumerate(capacities)
            if any(capacity)
        ),
        switches=tuple(f"m{number}" for number, capacity in enumerate(capacities) if not any(capacity)),
        links=tuple(
            Link(source=f"m{u}", target=f"m{v}", bandwidth_mbps=bandwidth, directed=instance["directed"])
            for u, v, bandwidth in instance["links"]
        ),
        distances=AT_ONCE,
    )


def _shares(edges: list[list[Any]]) -> list[float]:
    """Return a selectivity for every edge: those into one task are 1/2, 1/4, …, the last as large as the one before."""
    inputs = [[number for number, edge in enumerate(edges) if edge[1] == task] for task in {e[1] for e in edges}]
    shares = [1.0] * len(edges)
    for numbers in inputs:
        for place, number in enumerate(numbers):
            shares[number] = 0.5 ** min(place + 1, len(numbers) - 1)
    return shares
