"""Random small applications and networks, by seed, for tests of policies that consider the network."""

from collections.abc import Callable
from itertools import combinations

import networkx as nx
import numpy as np
from msgspec.structs import replace

from penstock.model.cluster import Cluster, Distances, Link, Machine
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.policies.api import PlacementView

Case = Callable[[int], PlacementView]  # from a seed

GROUPINGS = (Grouping.SHUFFLE, Grouping.FIELDS, Grouping.ALL, Grouping.FORWARD)


def random_application(rng: np.random.Generator, machines: int) -> Application:
    """Draw three to five components of one to three tasks; some need a second resource, some are pinned."""
    number = int(rng.integers(3, 6))
    width = rng.integers(1, 4, number)
    ways = {(int(rng.integers(0, c)), c) for c in range(1, number)}
    ways |= {(c, int(rng.integers(c + 1, number))) for c in range(number - 1)}
    components = tuple(
        Component(
            name=f"c{c}",
            kind=Kind.SOURCE if c == 0 else Kind.SINK if c == number - 1 else Kind.OPERATOR,
            parallelism=int(width[c]),
            cpu=float(rng.uniform(0.1, 2.0)),
            resources={"gpu": float(rng.uniform(0.0, 1.0))} if rng.random() < 0.5 else {},
            pinned=f"m{rng.integers(machines)}" if c in (0, number - 1) and rng.random() < 0.5 else None,
        )
        for c in range(number)
    )
    streams = tuple(
        Stream(
            source=f"c{a}",
            target=f"c{b}",
            grouping=_grouping(rng, width[a] == width[b]),
            selectivity=float(rng.uniform(0.2, 2.0)),
            tuple_bytes=float(rng.uniform(1e4, 3e5)),
        )
        for a, b in sorted(ways)
    )
    return Application(name="random", components=components, streams=streams)


def _grouping(rng: np.random.Generator, equal_widths: bool) -> Grouping:
    return GROUPINGS[int(rng.integers(len(GROUPINGS) if equal_widths else len(GROUPINGS) - 1))]


def random_machines(rng: np.random.Generator, carded: bool) -> tuple[Machine, ...]:
    """Draw three to five machines of one to three slots, some on a common host."""
    slots = rng.integers(1, 4, int(rng.integers(3, 6)))
    return tuple(
        Machine(
            name=f"m{m}",
            cores=int(rng.integers(1, 3)),
            speed=float(rng.uniform(0.5, 2.0)),
            slots=int(slots[m]),
            processes=int(rng.integers(1, slots[m] + 1)),
            host="shared" if rng.random() < 0.3 else None,
            network_mbps=float(rng.uniform(0.5, 5.0)) if carded and rng.random() < 0.8 else None,
            resources={"gpu": float(rng.uniform(0.5, 2.0))},
        )
        for m in range(len(slots))
    )


def random_mesh(seed: int) -> PlacementView:
    """Draw an application and a full mesh with network cards; in every other case some receive at another rate."""
    rng = np.random.default_rng(seed)
    machines = random_machines(rng, carded=True)
    if seed % 2 == 1:
        machines = tuple(_receiving(machine, np.random.default_rng([seed, at])) for at, machine in enumerate(machines))
    cluster = Cluster(name="mesh", machines=machines, distances=Distances(other_host_ms=700.0))
    return PlacementView(random_application(rng, len(machines)), cluster)


def _receiving(machine: Machine, rng: np.random.Generator) -> Machine:
    differs = machine.network_mbps is not None and rng.random() < 0.8
    return replace(machine, receive_mbps=float(rng.uniform(0.5, 5.0))) if differs else machine


def random_network(seed: int) -> PlacementView:
    """Draw an application and a routed cluster with a switch, whose links are directed in every other case."""
    rng = np.random.default_rng(seed)
    machines = random_machines(rng, carded=False)
    nodes = [machine.name for machine in machines] + ["switch"]
    directed = seed % 2 == 1
    joined = nx.random_labeled_tree(len(nodes), seed=seed).to_undirected()
    joined.add_edges_from(pair for pair in combinations(range(len(nodes)), 2) if rng.random() < 0.3)
    ways = [(a, b) for a, b in joined.edges] + [(b, a) for a, b in joined.edges if directed]
    links = tuple(
        Link(
            source=nodes[a],
            target=nodes[b],
            bandwidth_mbps=float(rng.uniform(0.5, 5.0)),
            latency_ms=float(rng.uniform(0.0, 500.0)),
            directed=directed,
        )
        for a, b in ways
    )
    cluster = Cluster(name="network", machines=machines, switches=("switch",), links=links)
    return PlacementView(random_application(rng, len(machines)), cluster)


def arcs_of(view: PlacementView) -> nx.MultiDiGraph:
    """The network as a graph whose arcs are keyed by their link."""
    graph = nx.MultiDiGraph()
    index = view.cluster.node_index
    graph.add_nodes_from(range(len(index)))
    for number, link in enumerate(view.cluster.links):
        ends = index[link.source], index[link.target]
        for tail, head in (ends,) if link.directed else (ends, ends[::-1]):
            graph.add_edge(tail, head, number, bandwidth=link.bandwidth_mbps * 1e6, latency_s=link.latency_ms / 1e3)
    return graph
