"""The rate a placement sustains when streams split evenly, and the element that limits it (SPARCLE, eq. (1a)).

Every element (slot, machine, network card, link, other resource) has a capacity and is charged a load for each source
tuple; the rate is the smallest capacity / load. Tasks charge slots and machines; hops charge every
link of their route, or the two network cards where there are no links.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.cluster import Cluster
from penstock.model.kernel import kernel
from penstock.model.placement import Placement
from penstock.model.routes import BITS, card_bits, hop_bits, widest_path
from penstock.model.slotgraph import MEGABIT, Links, Slots
from penstock.model.taskgraph import Edges, Floats, Ints, Tasks, sum_by


class Element(NamedTuple):
    """Something with a capacity that a placement uses."""

    kind: str  # slot, machine, network, link, or the name of a resource
    name: str
    load: float  # a source tuple, in the capacity's unit
    capacity: float  # core-seconds, bits or resource units a second

    @property
    def rate_tps(self) -> float:
        """The highest rate of source tuples that it allows."""
        return self.capacity / self.load if self.load > 0 else np.inf

    def utilisation(self, rate_tps: float) -> float:
        """The share of it that is busy at a rate of source tuples."""
        return self.load * rate_tps / self.capacity if self.capacity > 0 else np.inf if self.load > 0 else 0.0


def elements(tasks: Tasks, slots: Slots, cluster: Cluster, placement: Placement) -> list[Element]:
    """List every element that a placement uses, the most limiting first."""
    placed = np.asarray(placement.slots, dtype=np.int32)
    machine = slots.machine[placed]
    work = tasks.cpu * tasks.gain
    names = [m.name for m in cluster.machines]
    found = _used("slot", cluster.slot_names, sum_by(placed, work, slots.number), slots.cpu)
    found += _used("machine", names, sum_by(machine, work, slots.machines), slots.machine_cpu)
    for column, resource in enumerate(tasks.resources):
        load = sum_by(machine, tasks.needs[:, column] * tasks.gain, slots.machines)
        found += _used(resource, names, load, slots.capacity[:, column])
    found += _network(tasks, slots, cluster, placement)
    # Of equal limits the wider element is named: a machine rather than its only slot.
    return sorted(found, key=lambda element: (element.rate_tps, element.kind == "slot"))


def bottleneck(tasks: Tasks, slots: Slots, cluster: Cluster, placement: Placement) -> Element:
    """Return the element that limits the rate of a placement."""
    found = elements(tasks, slots, cluster, placement)
    return found[0] if found else Element("machine", cluster.machines[0].name, 0.0, slots.machine_cpu[0])


def _used(kind: str, names: Sequence[str], load: Floats, capacity: Floats) -> list[Element]:
    return [Element(kind, names[int(i)], float(load[i]), float(capacity[i])) for i in np.flatnonzero(load > 0)]


def _network(tasks: Tasks, slots: Slots, cluster: Cluster, placement: Placement) -> list[Element]:
    placed = np.asarray(placement.slots, dtype=np.int32)
    if cluster.routed:
        load = np.zeros(len(cluster.links))
        for hop, amount in hop_bits(tasks, slots, placed).items():
            load[list(placement.routes[hop])] += amount
        bandwidth = np.array([link.bandwidth_mbps for link in cluster.links]) * MEGABIT
        return _used("link", [link.label for link in cluster.links], load, bandwidth)
    limited = np.isfinite(slots.machine_network)
    found: list[Element] = []
    if limited.any():
        for way, load in zip(("out", "in"), card_bits(tasks, slots, placed), strict=True):
            names = [f"{machine.name} ({way})" for machine in cluster.machines]
            found += _used("network", names, np.where(limited, load, 0.0), slots.machine_network)
    return found


class RateNet(NamedTuple):
    """What the rate kernel reads; T tasks, E edges, S slots, M machines, R resources."""

    work: Floats  # [T] core-seconds a source tuple
    needs: Floats  # [T, R] a source tuple
    edge_source: Ints  # [E]
    edge_target: Ints  # [E]
    edge_stream: Ints  # [E]
    edge_bits: Floats  # [E] a source tuple
    streams: int
    slot_cpu: Floats  # [S]
    slot_machine: Ints  # [S]
    machine_cpu: Floats  # [M]
    machine_network: Floats  # [M] bits a second each way
    capacity: Floats  # [M, R]
    links: Links
    routed: bool
    carded: bool  # whether any network card may limit


def rate_net(tasks: Tasks, edges: Edges, slots: Slots, links: Links, routed: bool) -> RateNet:
    """Gather what the rate kernel reads."""
    return RateNet(
        work=tasks.cpu * tasks.gain,
        needs=tasks.needs * tasks.gain[:, None],
        edge_source=edges.source,
        edge_target=edges.target,
        edge_stream=edges.stream,
        edge_bits=tasks.gain[edges.source] * edges.share * edges.tuple_bytes * BITS,
        streams=len(tasks.flows),
        slot_cpu=slots.cpu,
        slot_machine=slots.machine,
        machine_cpu=slots.machine_cpu,
        machine_network=slots.machine_network,
        capacity=slots.capacity,
        links=links,
        routed=routed,
        carded=bool(np.isfinite(slots.machine_network).any()) and not routed,
    )


@kernel
def bottleneck_rates(net: RateNet, placed: NDArray[np.int32]) -> Floats:
    """Return the rate of many placements, `placed` being [B, T]; hops are routed by sequential widest paths."""
    rates = np.empty(len(placed))
    for row in range(len(placed)):
        rate = _machine_rate(net, placed[row])
        if net.routed:
            rate = min(rate, _link_rate(net, placed[row]))
        elif net.carded:
            rate = min(rate, _card_rate(net, placed[row]))
        rates[row] = rate
    return rates


@kernel
def _machine_rate(net: RateNet, placed: NDArray[np.int32]) -> float:
    slot_load = np.zeros(len(net.slot_cpu))
    machine_load = np.zeros(len(net.machine_cpu))
    other_load = np.zeros(net.capacity.shape)
    for task in range(len(placed)):
        machine = net.slot_machine[placed[task]]
        slot_load[placed[task]] += net.work[task]
        machine_load[machine] += net.work[task]
        for resource in range(net.capacity.shape[1]):
            other_load[machine, resource] += net.needs[task, resource]
    rate = np.inf
    for slot in range(len(slot_load)):
        if slot_load[slot] > 0.0:
            rate = min(rate, net.slot_cpu[slot] / slot_load[slot])
    for machine in range(len(machine_load)):
        if machine_load[machine] > 0.0:
            rate = min(rate, net.machine_cpu[machine] / machine_load[machine])
        for resource in range(net.capacity.shape[1]):
            if other_load[machine, resource] > 0.0:
                rate = min(rate, net.capacity[machine, resource] / other_load[machine, resource])
    return rate


@kernel
def _card_rate(net: RateNet, placed: NDArray[np.int32]) -> float:
    sent = np.zeros(len(net.machine_cpu))
    received = np.zeros(len(net.machine_cpu))
    for edge in range(len(net.edge_bits)):
        here = net.slot_machine[placed[net.edge_source[edge]]]
        there = net.slot_machine[placed[net.edge_target[edge]]]
        if here != there:
            sent[here] += net.edge_bits[edge]
            received[there] += net.edge_bits[edge]
    rate = np.inf
    for machine in range(len(sent)):
        load = max(sent[machine], received[machine])
        if load > 0.0:
            rate = min(rate, net.machine_network[machine] / load)
    return rate


@kernel
def _link_rate(net: RateNet, placed: NDArray[np.int32]) -> float:
    machines = len(net.machine_cpu)
    bits = np.zeros((net.streams, machines, machines))
    for edge in range(len(net.edge_bits)):
        here = net.slot_machine[placed[net.edge_source[edge]]]
        there = net.slot_machine[placed[net.edge_target[edge]]]
        if here != there:
            bits[net.edge_stream[edge], here, there] += net.edge_bits[edge]
    load = np.zeros(len(net.links.bandwidth))
    for stream in range(net.streams):
        for here in range(machines):
            for there in range(machines):
                amount = bits[stream, here, there]
                if amount > 0.0:
                    _, path = widest_path(net.links, load, amount, here, there)
                    if len(path) == 0:
                        return 0.0
                    for link in path:
                        load[link] += amount
    rate = np.inf
    for link in range(len(load)):
        if load[link] > 0.0:
            rate = min(rate, net.links.bandwidth[link] / load[link])
    return rate
