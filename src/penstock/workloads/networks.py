"""Networks of machines and switches: star, line, complete, fat-tree, Jellyfish.

SPARCLE's simulations use the first three (§V-B), POTUS's the last two, each with 24 switches and 16 servers (§5.1).
Both directions share a link. The capacities of machines and links are one record, around which they vary randomly if
`spread` is not 0.
"""

from itertools import pairwise

import numpy as np

from penstock.model.cluster import NEAR, Cluster, Link, Machine
from penstock.model.entity import Count, Entity, NonNegative, Positive, Probability
from penstock.model.errors import InvalidInput
from penstock.workloads.choice import Seed

ATTEMPTS = 100  # to draw a connected random graph; with a degree of 3 or more nearly all are connected


class Capacities(Entity, frozen=True):
    """The capacities of the machines and links of a network.

    With `spread` s, every speed and every bandwidth is multiplied by a uniformly random factor from 1-s to 1+s.
    """

    cores: Count = 4
    speed: Positive = 1.0
    memory_mb: Positive = 8192.0
    slots: Count = 4
    bandwidth_mbps: Positive = 1000.0
    latency_ms: NonNegative = 0.1
    spread: Probability = 0.0

    def machine(self, name: str, rng: np.random.Generator) -> Machine:
        """Draw a machine."""
        return Machine(
            name=name,
            cores=self.cores,
            speed=self.speed * self._factor(rng),
            memory_mb=self.memory_mb,
            slots=self.slots,
        )

    def link(self, source: str, target: str, rng: np.random.Generator) -> Link:
        """Draw a link."""
        return Link(
            source=source,
            target=target,
            bandwidth_mbps=self.bandwidth_mbps * self._factor(rng),
            latency_ms=self.latency_ms,
        )

    def _factor(self, rng: np.random.Generator) -> float:
        return float(rng.uniform(1.0 - self.spread, 1.0 + self.spread)) if self.spread else 1.0


EQUAL = Capacities()
PODS, EDGE_SWITCHES, CORE_SWITCHES = 4, 8, 8  # of the fat-tree


def star(machines: int = 8, capacities: Capacities = EQUAL, seed: Seed = 0, hub_computes: bool = False) -> Cluster:
    """Connect machines to one hub: a switch, or the first of the machines if `hub_computes`."""
    names = _machine_names(machines)
    hub = names[0] if hub_computes else "hub"
    pairs = [(hub, name) for name in names if name != hub]
    return _network("star", names, () if hub_computes else (hub,), pairs, capacities, seed)


def line(machines: int = 8, capacities: Capacities = EQUAL, seed: Seed = 0) -> Cluster:
    """Connect each machine to the next."""
    names = _machine_names(machines)
    return _network("line", names, (), list(pairwise(names)), capacities, seed)


def complete(machines: int = 6, capacities: Capacities = EQUAL, seed: Seed = 0) -> Cluster:
    """Connect each machine to every other."""
    names = _machine_names(machines)
    pairs = [(a, b) for position, a in enumerate(names) for b in names[position + 1 :]]
    return _network("complete", names, (), pairs, capacities, seed)


def fat_tree(servers: int = 2, capacities: Capacities = EQUAL, seed: Seed = 0) -> Cluster:
    """Build a fat-tree (Al-Fares et al. 2008): servers, edge, aggregation and core switches.

    Each pod has the same number of edge and aggregation switches, every one connected to all of the other kind; a core
    switch is connected to one aggregation switch in every pod. The numbers are our interpretation of POTUS's 24
    switches and 16 servers: 8 edge, 8 aggregation, 8 core. servers: at each edge switch.
    """
    edge = [f"edge{number}" for number in range(EDGE_SWITCHES)]
    aggregation = [f"aggregation{number}" for number in range(EDGE_SWITCHES)]
    core = [f"core{number}" for number in range(CORE_SWITCHES)]
    names = _machine_names(len(edge) * servers)
    pairs = [(name, edge[number // servers]) for number, name in enumerate(names)]
    size = EDGE_SWITCHES // PODS
    each = CORE_SWITCHES // size
    for first in range(0, EDGE_SWITCHES, size):
        own = range(first, first + size)
        pairs += [(edge[low], aggregation[high]) for low in own for high in own]
        pairs += [
            (aggregation[high], core[number])
            for rank, high in enumerate(own)
            for number in range(rank * each, (rank + 1) * each)
        ]
    return _network("fat-tree", names, (*edge, *aggregation, *core), pairs, capacities, seed)


def jellyfish(
    switches: int = 24, degree: int = 4, servers: int = 16, capacities: Capacities = EQUAL, seed: Seed = 0
) -> Cluster:
    """Build a Jellyfish (Singla et al. 2012): switches in a random regular graph, servers distributed over them.

    degree: links of a switch to other switches. POTUS specifies no degree; 4 is that of a fat-tree's core switch.
    """
    rng = np.random.default_rng(seed)
    names = _machine_names(servers)
    fabric = [f"switch{number}" for number in range(switches)]
    pairs = [(fabric[a], fabric[b]) for a, b in random_regular_graph(switches, degree, rng)]
    home = rng.permutation(switches)
    pairs += [(name, fabric[home[number % switches]]) for number, name in enumerate(names)]
    return _network("jellyfish", names, tuple(fabric), pairs, capacities, rng)


def random_regular_graph(nodes: int, degree: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """Draw a connected graph in which every node has `degree` neighbours, as pairs in ascending order."""
    if not 2 <= degree < nodes or nodes * degree % 2:
        raise InvalidInput("degree", f"expected 2 to {nodes - 1}, even if the {nodes} switches are odd, got {degree}")
    for _ in range(ATTEMPTS):
        near = _join_at_random(nodes, degree, rng)
        if near is not None and _connected(near):
            return sorted((a, b) for a in range(nodes) for b in near[a] if a < b)
    raise InvalidInput("degree", f"no connected graph of {nodes} switches found in {ATTEMPTS} draws; raise it")


def _join_at_random(nodes: int, degree: int, rng: np.random.Generator) -> list[set[int]] | None:
    """Connect random nodes with free ports until none is left; if the last ones are adjacent, break up a link."""
    near: list[set[int]] = [set() for _ in range(nodes)]
    for _ in range(nodes * degree):
        free = [node for node in range(nodes) if len(near[node]) < degree]
        if not free:
            return near
        open_pairs = [(a, b) for a in free for b in free if a < b and b not in near[a]]
        if open_pairs:
            _link(near, *open_pairs[rng.integers(len(open_pairs))])
            continue
        p, q = free[0], free[-1]  # one node with two free ports, or two adjacent nodes
        links = [(x, y) for x in range(nodes) for y in near[x] if x not in near[p] | {p} and y not in near[q] | {q}]
        if not links:
            return None
        x, y = links[rng.integers(len(links))]
        near[x].remove(y)
        near[y].remove(x)
        _link(near, p, x)
        _link(near, q, y)
    return near if all(len(own) == degree for own in near) else None


def _link(near: list[set[int]], a: int, b: int) -> None:
    near[a].add(b)
    near[b].add(a)


def _connected(near: list[set[int]]) -> bool:
    reached, waiting = {0}, [0]
    while waiting:
        found = near[waiting.pop()] - reached
        reached |= found
        waiting += found
    return len(reached) == len(near)


def _machine_names(number: int) -> list[str]:
    if number < 1:
        raise InvalidInput("machines", f"expected a whole number ≥ 1, got {number}")
    return [f"m{position}" for position in range(number)]


def _network(
    name: str,
    machines: list[str],
    switches: tuple[str, ...],
    pairs: list[tuple[str, str]],
    capacities: Capacities,
    seed: Seed,
) -> Cluster:
    rng = np.random.default_rng(seed)
    return Cluster(
        name=f"{name}-{len(machines)}",
        machines=tuple(capacities.machine(machine, rng) for machine in machines),
        switches=switches,
        links=tuple(capacities.link(source, target, rng) for source, target in pairs),
        distances=NEAR,
    )
