"""SPARCLE's random instances (§V-B): linear and diamond graphs on stars, lines and complete networks.

The unit is the mean need of a data unit. A task needs on average one unit of cpu and, if memory counts, one of memory;
a stream carries one megabit. So a machine of speed 1 processes one average task per second and a link of 1 Mbps carries
one average stream. `Scarcity` multiplies the capacities of machines and links: the paper's cases are ratios of these.
All needs and capacities are uniformly distributed within ±50 % of their mean.

A join would process one tuple per input, so the inputs of a join have selectivities ½, ¼, … with a sum of 1, and
correspondingly larger tuples: a data unit is one tuple everywhere, and every stream carries its bits.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from penstock.model.cluster import Cluster, Distances, Link, Machine
from penstock.model.decoding import decode_json
from penstock.model.errors import UnknownName, nearest
from penstock.model.files import read_text
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.workloads import networks

SPREAD = 0.5  # of all random values: ±50 %
LINEAR_TASKS = 4
DIAMOND_WIDTH = 3  # without the first and the last task: more tasks and streams than the linear graph, as in the paper
MEGABIT_BYTES = 1e6 / 8
MEMORY = "memory"
FOLDER = Path(__file__).resolve().parents[4] / "shared" / "data" / "sparcle"
AT_ONCE = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=0.0)

Edge = tuple[str, str]

LINEAR: tuple[Edge, ...] = (
    ("source", "t1"),
    *((f"t{number}", f"t{number + 1}") for number in range(1, LINEAR_TASKS)),
    (f"t{LINEAR_TASKS}", "sink"),
)
DIAMOND: tuple[Edge, ...] = (
    ("source", "first"),
    *(("first", f"t{number}") for number in range(1, DIAMOND_WIDTH + 1)),
    *((f"t{number}", "last") for number in range(1, DIAMOND_WIDTH + 1)),
    ("last", "sink"),
)
GRAPHS = {"linear": LINEAR, "diamond": DIAMOND}
SHAPES = {"star": networks.star, "line": networks.line, "complete": networks.complete}


class Scarcity(NamedTuple):
    """The capacities of a network per second, relative to the mean need; the smallest is the bottleneck."""

    machines: float = 1.0
    links: float = 1.0
    memory: float = 0.0  # 0: unlimited


class SparcleInstance(NamedTuple):
    """An application and its cluster."""

    application: Application
    cluster: Cluster


class Reference(NamedTuple):
    """An instance with independently computed results."""

    setting: SparcleInstance
    rate: float  # of Algorithm 2 with ties broken by the lowest number
    others: tuple[float, ...]  # its rates with other tie breaking, if there are few
    span: tuple[float, float]  # their minimum and maximum
    optimum: float  # over all placements combined with all single routes

    def allows(self, rate: float, slack: float) -> bool:
        """Return whether some tie breaking yields this rate; slack is relative."""
        if self.others:
            return any(abs(rate / one - 1.0) <= slack for one in (self.rate, *self.others))
        return self.span[0] * (1.0 - slack) <= rate <= self.span[1] * (1.0 + slack)


def draw_instance(
    shape: str, graph: str, scarcity: Scarcity, seed: int, machines: int = 8, duplex: bool = False
) -> SparcleInstance:
    """Draw a network and an application whose ends are pinned to two of its machines.

    Equal seeds give the same draws whatever the scarcity is. duplex: each direction of a link is a separate link.
    """
    rng = np.random.default_rng(seed)
    cluster = random_network(shape, scarcity, rng, machines, duplex)
    return SparcleInstance(random_application(graph, cluster, rng, memory=scarcity.memory > 0), cluster)


def random_network(
    shape: str, scarcity: Scarcity, rng: np.random.Generator, machines: int = 8, duplex: bool = False
) -> Cluster:
    """Draw a network: a star's hub is a switch; a machine has one slot that all its tasks share."""
    if shape not in SHAPES:
        raise UnknownName("shape", f"none is named {shape!r}; {nearest(shape, SHAPES)}")
    capacities = networks.Capacities(
        cores=1, slots=1, speed=scarcity.machines, bandwidth_mbps=scarcity.links, latency_ms=0.0, spread=SPREAD
    )
    cluster = SHAPES[shape](machines, capacities, rng)
    memories = factors(rng, machines)  # always drawn, so that later draws do not depend on it
    if scarcity.memory > 0:
        own = zip(cluster.machines, memories, strict=True)
        equipped = tuple(
            msgspec.structs.replace(machine, resources={MEMORY: scarcity.memory * factor}) for machine, factor in own
        )
        cluster = msgspec.structs.replace(cluster, machines=equipped)
    return full_duplex(cluster) if duplex else cluster


def full_duplex(cluster: Cluster) -> Cluster:
    """Replace every shared link by two directed ones, each with the full bandwidth."""
    both = tuple(
        Link(source=a, target=b, bandwidth_mbps=link.bandwidth_mbps, latency_ms=link.latency_ms, directed=True)
        for link in cluster.links
        for a, b in ((link.source, link.target), (link.target, link.source))
    )
    return msgspec.structs.replace(cluster, links=both)


def random_application(
    graph: str,
    cluster: Cluster,
    rng: np.random.Generator,
    memory: bool = False,
    name: str = "",
    sizes: tuple[float, float] = (1.0, 1.0),
    **promised: Any,
) -> Application:
    """Draw an application whose source and sink, which cost nothing, are pinned to two machines of a cluster.

    sizes: mean units of cpu per task, and mean megabits per stream. promised: other fields, such as a priority.
    """
    if graph not in GRAPHS:
        raise UnknownName("graph", f"none is named {graph!r}; {nearest(graph, GRAPHS)}")
    edges = GRAPHS[graph]
    ends = rng.choice(len(cluster.machines), 2, replace=False)
    inner = list(dict.fromkeys(task for edge in edges for task in edge if task not in ("source", "sink")))
    cpu, needed, bits = factors(rng, len(inner)), factors(rng, len(inner)), factors(rng, len(edges))
    return Application(
        name=name or graph,
        components=(
            Component(name="source", kind=Kind.SOURCE, pinned=cluster.machines[ends[0]].name),
            *(
                Component(name=task, cpu=sizes[0] * cost, resources={MEMORY: need} if memory else {})
                for task, cost, need in zip(inner, cpu, needed, strict=True)
            ),
            Component(name="sink", kind=Kind.SINK, pinned=cluster.machines[ends[1]].name),
        ),
        streams=streams([(a, b, sizes[1] * amount) for (a, b), amount in zip(edges, bits, strict=True)]),
        **promised,
    )


def streams(edges: Sequence[tuple[str, str, float]]) -> tuple[Stream, ...]:
    """Return streams that carry the given megabits per data unit, and deliver one tuple of it to every task."""
    into: dict[str, list[int]] = {}
    for number, (_, target, _) in enumerate(edges):
        into.setdefault(target, []).append(number)
    shares = [1.0] * len(edges)
    for numbers in into.values():
        for place, number in enumerate(numbers):
            shares[number] = 0.5 ** min(place + 1, len(numbers) - 1)
    return tuple(
        Stream(source=source, target=target, selectivity=share, tuple_bytes=megabits * MEGABIT_BYTES / share)
        for (source, target, megabits), share in zip(edges, shares, strict=True)
    )


def factors(rng: np.random.Generator, number: int) -> list[float]:
    """Draw factors within ±50 %."""
    drawn: list[float] = rng.uniform(1.0 - SPREAD, 1.0 + SPREAD, number).tolist()
    return drawn


@cache
def references() -> tuple[Reference, ...]:
    """Read instances with independent results; none if they are not beside the repository."""
    path = FOLDER / "cases.json"
    if not path.exists():
        return ()
    return tuple(
        Reference(
            known_instance(one),
            float(one["sparcle"]["rate"]),
            tuple(one["rates_under_ties"] or ()),
            _span(one),
            float(one["optimum_ii"]["rate"]),
        )
        for one in decode_json(read_text(path))["instances"]
    )


def known_instance(one: Mapping[str, Any]) -> SparcleInstance:
    """Return an instance of cases.json: task `t3` is its task 3, node `m2` its machine 2.

    A machine without any capacity is a switch, which changes the numbers of the machines after it.
    """
    return SparcleInstance(_given_application(one), _given_cluster(one))


def _span(one: Mapping[str, Any]) -> tuple[float, float]:
    low, high = one["rate_range_under_ties"] if one["ambiguous"] else [one["sparcle"]["rate"]] * 2
    return float(low), float(high)


def _given_application(one: Mapping[str, Any]) -> Application:
    needs = one["tasks"]
    kinds = {0: Kind.SOURCE, len(needs) - 1: Kind.SINK}
    pins = {int(task): f"m{machine}" for task, machine in one["pins"].items()}
    return Application(
        name=f"instance-{one['id']}",
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
        streams=streams([(f"t{a}", f"t{b}", bits) for a, b, bits in one["edges"]]),
    )


def _given_cluster(one: Mapping[str, Any]) -> Cluster:
    """Return the network of an instance of cases.json; a machine without any capacity is a switch."""
    capacities = one["machines"]
    return Cluster(
        name=str(one["topology"]),
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
            Link(source=f"m{a}", target=f"m{b}", bandwidth_mbps=bandwidth, directed=one["directed"])
            for a, b, bandwidth in one["links"]
        ),
        distances=AT_ONCE,
    )
