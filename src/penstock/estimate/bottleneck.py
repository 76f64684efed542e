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
from penstock.model.taskgraph import FORWARD, GLOBAL, Floats, Ints, Tasks, sum_by


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
    shared = np.diff(slots.first)[slots.machine] > 1  # the only slot of a machine is not told apart from it
    in_slots = np.where(shared, sum_by(placed, work, slots.number), 0.0)
    found = _used("slot", cluster.slot_names, in_slots, slots.cpu)
    usable = np.minimum(slots.machine_cpu, sum_by(slots.machine, slots.cpu, slots.machines))
    found += _used("machine", names, sum_by(machine, work, slots.machines), usable)
    for column, resource in enumerate(tasks.resources):
        load = sum_by(machine, tasks.needs[:, column] * tasks.gain, slots.machines)
        found += _used(resource, names, load, slots.capacity[:, column])
    found += _network(tasks, slots, cluster, placement)
    # Of equal limits the wider element is named: a machine rather than its only slot.
    return sorted(found, key=lambda element: (element.rate_tps, element.kind == "slot"))


def utilisation(tasks: Tasks, slots: Slots, placement: Placement, rate_tps: float) -> Floats:
    """Return the share of every machine's cpu that is busy at a rate of source tuples: [M]."""
    machine = slots.machine[np.asarray(placement.slots, dtype=np.int32)]
    return sum_by(machine, tasks.cpu * tasks.gain * rate_tps, slots.machines) / slots.machine_cpu


def _used(kind: str, names: Sequence[str], load: Floats, capacity: Floats) -> list[Element]:
    limited = np.flatnonzero((load > 0) & np.isfinite(capacity))
    return [Element(kind, names[int(i)], float(load[i]), float(capacity[i])) for i in limited]


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
        for number, (way, load) in enumerate(zip(("out", "in"), card_bits(tasks, slots, placed), strict=True)):
            names = [f"{machine.name} ({way})" for machine in cluster.machines]
            found += _used("network", names, np.where(limited[number], load, 0.0), slots.machine_network[number])
    return found


class RateNet(NamedTuple):
    """What the rate kernel reads; T tasks, C components, F flows, S slots, M machines, R resources."""

    work: Floats  # [T] core-seconds a source tuple
    needs: Floats  # [T, R] a source tuple
    gain: Floats  # [T] tuples processed a source tuple
    first: Ints  # [C + 1] first task of each component
    flow_source: Ints  # [F] sending component, flows in the order in which they are routed
    flow_target: Ints  # [F] receiving component
    heard: Ints  # [F] SPREAD, FORWARD or GLOBAL
    share: Floats  # [F] tuples to each receiver a tuple processed
    bits: Floats  # [F] a tuple
    slot_cpu: Floats  # [S]
    slot_machine: Ints  # [S]
    machine_cpu: Floats  # [M]
    machine_network: Floats  # [2, M] bits a second that it sends and receives
    capacity: Floats  # [M, R]
    links: Links
    routed: bool
    carded: bool  # whether any network card may limit


def rate_net(tasks: Tasks, slots: Slots, links: Links, routed: bool) -> RateNet:
    """Gather what the rate kernel reads."""
    flows = sorted(tasks.flows, key=lambda flow: flow.stream)
    return RateNet(
        work=tasks.cpu * tasks.gain,
        needs=tasks.needs * tasks.gain[:, None],
        gain=tasks.gain,
        first=tasks.first,
        flow_source=np.array([flow.source for flow in flows], dtype=np.int32),
        flow_target=np.array([flow.target for flow in flows], dtype=np.int32),
        heard=np.array([flow.heard for flow in flows], dtype=np.int32),
        share=np.array([flow.share for flow in flows]),
        bits=np.array([flow.tuple_bytes for flow in flows]) * BITS,
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
def bottleneck_rates(net: RateNet, placed: NDArray[np.int32], cpu: bool = True) -> Floats:
    """Return the rate of many placements, `placed` being [B, T]; hops are routed by sequential widest paths.

    Without `cpu` only other resources and the network count. A placement with a hop that has no way gets 0.
    """
    rates = np.empty(len(placed))
    for row in range(len(placed)):
        rate = min(_cpu_rate(net, placed[row]) if cpu else np.inf, _resource_rate(net, placed[row]))
        if net.routed:
            rate = min(rate, _link_rate(net, placed[row]))
        elif net.carded:
            rate = min(rate, _card_rate(net, placed[row]))
        rates[row] = rate
    return rates


@kernel
def machine_traffic(net: RateNet, placed: NDArray[np.int32]) -> Floats:
    """Return the bits a source tuple between machines of many placements, `placed` being [B, T]."""
    crossing = np.empty(len(placed))
    for row in range(len(placed)):
        crossing[row] = _card_loads(net, placed[row])[0].sum()
    return crossing


@kernel
def _cpu_rate(net: RateNet, placed: NDArray[np.int32]) -> float:
    slot_load = np.zeros(len(net.slot_cpu))
    machine_load = np.zeros(len(net.machine_cpu))
    for task in range(len(placed)):
        slot_load[placed[task]] += net.work[task]
        machine_load[net.slot_machine[placed[task]]] += net.work[task]
    return min(_least_rate(net.slot_cpu, slot_load), _least_rate(net.machine_cpu, machine_load))


@kernel
def _resource_rate(net: RateNet, placed: NDArray[np.int32]) -> float:
    rate = np.inf
    for resource in range(net.capacity.shape[1]):
        load = np.zeros(len(net.machine_cpu))
        for task in range(len(placed)):
            load[net.slot_machine[placed[task]]] += net.needs[task, resource]
        rate = min(rate, _least_rate(net.capacity[:, resource], load))
    return rate


@kernel
def _least_rate(capacity: Floats, load: Floats) -> float:
    rate = np.inf
    for element in range(len(load)):
        if load[element] > 0.0:
            rate = min(rate, capacity[element] / load[element])
    return rate


@kernel
def _card_rate(net: RateNet, placed: NDArray[np.int32]) -> float:
    sent, received = _card_loads(net, placed)
    return min(_least_rate(net.machine_network[0], sent), _least_rate(net.machine_network[1], received))


@kernel
def _card_loads(net: RateNet, placed: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """Return the bits a source tuple that every machine sends to others and receives from others."""
    machines = len(net.machine_cpu)
    sent, received = np.zeros(machines), np.zeros(machines)
    tuples, listeners = np.zeros(machines), np.zeros(machines)
    for flow in range(len(net.bits)):
        first, end = net.first[net.flow_source[flow]], net.first[net.flow_source[flow] + 1]
        to, to_end = net.first[net.flow_target[flow]], net.first[net.flow_target[flow] + 1]
        amount = net.share[flow] * net.bits[flow]
        if net.heard[flow] == FORWARD:
            for task in range(first, end):
                here = net.slot_machine[placed[task]]
                there = net.slot_machine[placed[to + task - first]]
                if here != there:
                    sent[here] += net.gain[task] * amount
                    received[there] += net.gain[task] * amount
            continue
        count = 1 if net.heard[flow] == GLOBAL else to_end - to
        total = _by_machine(net, placed, first, end, to, to + count, tuples, listeners)
        for machine in range(machines):
            sent[machine] += tuples[machine] * (count - listeners[machine]) * amount
            received[machine] += listeners[machine] * max(total - tuples[machine], 0.0) * amount
    return sent, received


@kernel
def _by_machine(
    net: RateNet,
    placed: NDArray[np.int32],
    first: int,
    end: int,
    to: int,
    to_end: int,
    tuples: Floats,
    listeners: Floats,
) -> float:
    """Set what senders process and how many receivers there are on every machine; return what all process."""
    tuples[:] = 0.0
    listeners[:] = 0.0
    total = 0.0
    for task in range(first, end):
        tuples[net.slot_machine[placed[task]]] += net.gain[task]
        total += net.gain[task]
    for task in range(to, to_end):
        listeners[net.slot_machine[placed[task]]] += 1.0
    return total


@kernel
def _link_rate(net: RateNet, placed: NDArray[np.int32]) -> float:
    machines = len(net.machine_cpu)
    load = np.zeros(len(net.links.bandwidth))
    tuples, listeners = np.zeros(machines), np.zeros(machines)
    pairs = np.zeros((machines, machines))
    for flow in range(len(net.bits)):
        first, end = net.first[net.flow_source[flow]], net.first[net.flow_source[flow] + 1]
        to, to_end = net.first[net.flow_target[flow]], net.first[net.flow_target[flow] + 1]
        pairs[:] = 0.0
        if net.heard[flow] == FORWARD:
            for task in range(first, end):
                pairs[net.slot_machine[placed[task]], net.slot_machine[placed[to + task - first]]] += net.gain[task]
        else:
            count = 1 if net.heard[flow] == GLOBAL else to_end - to
            _by_machine(net, placed, first, end, to, to + count, tuples, listeners)
            for here in range(machines):
                for there in range(machines):
                    pairs[here, there] = tuples[here] * listeners[there]
        for here in range(machines):
            for there in range(machines):
                if here != there and pairs[here, there] * net.share[flow] > 0.0:
                    amount = pairs[here, there] * net.share[flow] * net.bits[flow]
                    _, path = widest_path(net.links, load, amount, here, there)
                    if len(path) == 0:
                        return 0.0
                    for link in path:
                        load[link] += amount
    return _least_rate(net.links.bandwidth, load)
