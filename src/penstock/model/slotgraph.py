"""The array form of a cluster: its slots, their capacities and distances, and the links between them."""

from typing import NamedTuple

import numpy as np

from penstock.model.cluster import Cluster, Machine
from penstock.model.taskgraph import LABEL, Floats, Ints

MEGABIT = 1e6
UNKNOWN = (np.inf, np.inf)  # of a network card, in each direction


class Slots(NamedTuple):
    """The slots of a cluster; S slots, M machines, R resources beside cpu."""

    machine: Ints  # [S]
    process: Ints  # [S]
    host: Ints  # [S]
    first: Ints  # [M + 1] number of the machine's first slot; the last entry is S
    cpu: Floats  # [S] core-seconds per second: a slot is one thread
    memory_mb: Floats  # [S] infinite if only the machine limits it
    machine_cpu: Floats  # [M]
    machine_memory_mb: Floats  # [M]
    machine_network: Floats  # [2, M] bits per second sent and received, infinite if unknown
    capacity: Floats  # [M, R] of other resources per second; of a label, infinite or 0
    delay_ms: Floats  # [4] same slot, same process, same host, other host

    @property
    def number(self) -> int:
        """The number of slots."""
        return len(self.machine)

    @property
    def machines(self) -> int:
        """The number of machines."""
        return len(self.machine_cpu)


class Links(NamedTuple):
    """The arcs of a routed network, one or two per link; L links, A arcs, V nodes (machines first)."""

    nodes: int
    bandwidth: Floats  # [L] bits per second
    latency_ms: Floats  # [L]
    start: Ints  # [V + 1] the arcs that leave node v are start[v] .. start[v + 1]
    head: Ints  # [A] node that the arc leads to
    link: Ints  # [A] link that the arc uses


def expand_slots(cluster: Cluster, resources: tuple[str, ...] = ()) -> Slots:
    """Expand a cluster into its slots; `resources` names the columns of `capacity`."""
    machines = cluster.machines
    width = np.array([machine.slots for machine in machines])
    keys = [(m.host is None, m.host or m.name) for m in machines]  # a machine without a host has one of its own
    hosts = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    processes = np.array([machine.processes for machine in machines])
    before = np.concatenate([[0], np.cumsum(processes)])[:-1]
    block = [before[m] + np.arange(width[m]) * processes[m] // width[m] for m in range(len(machines))]
    distances = cluster.distances
    return Slots(
        machine=np.repeat(np.arange(len(machines), dtype=np.int32), width),
        process=np.concatenate(block).astype(np.int32),
        host=np.repeat(np.array([hosts[key] for key in keys], dtype=np.int32), width),
        first=np.concatenate([[0], np.cumsum(width)]).astype(np.int32),
        cpu=np.repeat([machine.speed for machine in machines], width),
        memory_mb=np.repeat([machine.slot_memory_mb or np.inf for machine in machines], width),
        machine_cpu=np.array([machine.cpu for machine in machines]),
        machine_memory_mb=np.array([machine.memory_mb for machine in machines]),
        machine_network=np.ascontiguousarray(np.array([m.card_mbps or UNKNOWN for m in machines]).T) * MEGABIT,
        capacity=np.array(
            [[capacity_of(machine, name) for name in resources] for machine in machines], dtype=np.float64
        ).reshape(len(machines), len(resources)),
        delay_ms=np.array(
            [distances.same_slot_ms, distances.same_process_ms, distances.same_host_ms, distances.other_host_ms]
        ),
    )


def capacity_of(machine: Machine, resource: str) -> float:
    """Return a machine's capacity of a resource per second; of a label, infinite or 0."""
    if resource.startswith(LABEL):
        return np.inf if resource.removeprefix(LABEL) in machine.labels else 0.0
    return machine.resources.get(resource, 0.0)


def expand_links(cluster: Cluster) -> Links:
    """Expand a cluster's links into arcs, sorted by their tail node."""
    arcs = [
        (cluster.node_index[tail], cluster.node_index[head], number)
        for number, link in enumerate(cluster.links)
        for tail, head in ([(link.source, link.target)] if link.directed else _both_ways(link.source, link.target))
    ]
    arcs.sort()
    nodes = len(cluster.node_index)
    counts = np.bincount([tail for tail, _, _ in arcs], minlength=nodes) if arcs else np.zeros(nodes)
    return Links(
        nodes=nodes,
        bandwidth=np.array([link.bandwidth_mbps * MEGABIT for link in cluster.links]),
        latency_ms=np.array([link.latency_ms for link in cluster.links]),
        start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        head=np.array([head for _, head, _ in arcs], dtype=np.int32),
        link=np.array([number for _, _, number in arcs], dtype=np.int32),
    )


def _both_ways(source: str, target: str) -> list[tuple[str, str]]:
    return [(source, target), (target, source)]
