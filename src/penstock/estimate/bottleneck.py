"""The rate a placement sustains when streams split evenly, and the element that limits it (SPARCLE, eq. (1a)).

Every element (slot, machine, network card, link, other resource) has a capacity and a load per source tuple. The rate
is the minimum of capacity / load. Tasks load slots and machines. Hops load every link of their route, or the two
network cards if the cluster has no links. `estimate.saturation` computes the rate and the loads when senders avoid slow
receivers.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.cluster import Cluster
from penstock.model.kernel import kernel, part
from penstock.model.placement import Hop, Placement
from penstock.model.routes import BITS, card_bits, hop_bits, widest_path
from penstock.model.slotgraph import MEGABIT, Links, Slots
from penstock.model.taskgraph import FORWARD, GLOBAL, SPREAD, Bools, Floats, Flow, Ints, Tasks, sum_by


class Element(NamedTuple):
    """Something with a capacity that a placement uses."""

    kind: str  # slot, machine, network, link, or the name of a resource
    name: str
    load: float  # per source tuple, in the capacity's unit
    capacity: float  # core-seconds, bits or resource units per second

    @property
    def rate_tps(self) -> float:
        """The maximum rate of source tuples that it allows."""
        return self.capacity / self.load if self.load > 0 else np.inf

    def utilisation(self, rate_tps: float) -> float:
        """The busy fraction of its capacity at a rate of source tuples."""
        return self.load * rate_tps / self.capacity if self.capacity > 0 else np.inf if self.load > 0 else 0.0


class Settled(NamedTuple):
    """The load of a source tuple once back-pressure has settled; T tasks, S slots, N wires (cards or links)."""

    rate_tps: float
    gain: Floats  # [T] tuples that each task processes
    slot_busy: Floats  # [S] seconds, with contention for the machine's cores
    wire_load: Floats  # [N] bits


def elements(
    tasks: Tasks, slots: Slots, cluster: Cluster, placement: Placement, settled: Settled | None = None
) -> list[Element]:
    """List every element that a placement uses, the most limiting first; by default streams split evenly."""
    placed = np.asarray(placement.slots, dtype=np.int32)
    machine = slots.machine[placed]
    tasks = tasks.placed(slots.process[placed]) if settled is None else tasks._replace(gain=settled.gain)
    work = tasks.cpu * tasks.gain
    names = [m.name for m in cluster.machines]
    shared = np.diff(slots.first)[slots.machine] > 1  # the only slot of a machine is the machine
    slot_work = sum_by(placed, work, slots.number) if settled is None else settled.slot_busy * slots.cpu
    in_slots = np.where(shared, slot_work, 0.0)
    found = _used("slot", cluster.slot_names, in_slots, slots.cpu)
    usable = np.minimum(slots.machine_cpu, sum_by(slots.machine, slots.cpu, slots.machines))
    found += _used("machine", names, sum_by(machine, work, slots.machines), usable)
    for column, resource in enumerate(tasks.resources):
        load = sum_by(machine, tasks.needs[:, column] * tasks.gain, slots.machines)
        found += _used(resource, names, load, slots.capacity[:, column])
    found += _network(tasks, slots, cluster, placement, None if settled is None else settled.wire_load)
    # Among equal limits the larger element comes first: a machine before its only slot.
    return sorted(found, key=lambda element: (float(f"{element.rate_tps:.9g}"), element.kind == "slot"))


def _used(kind: str, names: Sequence[str], load: Floats, capacity: Floats) -> list[Element]:
    limited = np.flatnonzero((load > 0) & np.isfinite(capacity))
    return [Element(kind, names[int(i)], float(load[i]), float(capacity[i])) for i in limited]


def _network(
    tasks: Tasks, slots: Slots, cluster: Cluster, placement: Placement, wire_load: Floats | None
) -> list[Element]:
    placed = np.asarray(placement.slots, dtype=np.int32)
    if cluster.routed:
        load = np.zeros(len(cluster.links)) if wire_load is None else wire_load
        for hop, amount in hop_bits(tasks, slots, placed).items() if wire_load is None else ():
            load[list(placement.routes[hop])] += amount
        bandwidth = np.array([link.bandwidth_mbps for link in cluster.links]) * MEGABIT
        return _used("link", [link.label for link in cluster.links], load, bandwidth)
    limited = np.isfinite(slots.machine_network)
    found: list[Element] = []
    if limited.any():
        loads = card_bits(tasks, slots, placed) if wire_load is None else wire_load.reshape(2, slots.machines)
        for number, (way, load) in enumerate(zip(("out", "in"), loads, strict=True)):
            names = [f"{machine.name} ({way})" for machine in cluster.machines]
            found += _used("network", names, np.where(limited[number], load, 0.0), slots.machine_network[number])
    return found


class Ways(NamedTuple):
    """The wires (network cards, or links) between machines; M machines, N wires; F flows if routed, else 1."""

    start: Ints  # [F, M, M] the wires from one machine to another are wire[start] .. wire[end]
    end: Ints  # [F, M, M]
    wire: Ints
    capacity: Floats  # [N] bits per second


class RateNet(NamedTuple):
    """The input of the kernels; T tasks, C components, F flows, S slots, P processes, M machines, R resources."""

    cpu: Floats  # [T] core-seconds per tuple
    needs: Floats  # [T, R] per tuple
    gain: Floats  # [T] tuples processed per source tuple, if local streams spread evenly too
    source: Bools  # [T]
    sink: Bools  # [C]
    first: Ints  # [C + 1] first task of each component
    flow_source: Ints  # [F] sending component, flows in the order in which they are routed
    flow_target: Ints  # [F] receiving component
    order: Ints  # [F] flows by sending component, upstream before downstream
    heard: Ints  # [F] SPREAD, FORWARD or GLOBAL
    local: Bools  # [F] whether senders prefer receivers in their own process
    chosen: Bools  # [F] whether senders choose the receiver
    single: Bools  # [C] whether tasks on the same slot may differ in their input or in their receivers
    share: Floats  # [F] tuples to each receiver per processed tuple
    bits: Floats  # [F] per tuple
    slot_cpu: Floats  # [S]
    slot_machine: Ints  # [S]
    slot_process: Ints  # [S]
    slot_host: Ints  # [S]
    slot_first: Ints  # [M + 1] first slot of each machine
    machine_cpu: Floats  # [M]
    machine_network: Floats  # [2, M] maximum bits per second sent and received
    capacity: Floats  # [M, R]
    delay_ms: Floats  # [4] same slot, same process, same host, other host
    links: Links
    ways: Ways  # over network cards; if routed, over links and still empty
    routed: bool
    carded: bool  # whether any network card may limit
    prefers: bool  # whether any sender prefers receivers in its own process
    processes: int  # P
    hosts: int


def rate_net(tasks: Tasks, slots: Slots, links: Links, routed: bool) -> RateNet:
    """Build the input of the kernels."""
    flows = sorted(tasks.flows, key=lambda flow: flow.stream)
    return RateNet(
        cpu=tasks.cpu,
        needs=tasks.needs,
        gain=tasks.gain,
        source=tasks.source,
        sink=tasks.sink[tasks.first[:-1]],
        first=tasks.first,
        flow_source=np.array([flow.source for flow in flows], dtype=np.int32),
        flow_target=np.array([flow.target for flow in flows], dtype=np.int32),
        order=np.array(sorted(range(len(flows)), key=lambda number: flows[number].source), dtype=np.int32),
        heard=np.array([flow.heard for flow in flows], dtype=np.int32),
        local=np.array([flow.local for flow in flows], dtype=np.bool_),
        chosen=np.array([flow.chosen for flow in flows], dtype=np.bool_),
        single=_single(flows, len(tasks.position)),
        share=np.array([flow.share for flow in flows], dtype=np.float64),
        bits=np.array([flow.tuple_bytes for flow in flows], dtype=np.float64) * BITS,
        slot_cpu=slots.cpu,
        slot_machine=slots.machine,
        slot_process=slots.process,
        slot_host=slots.host,
        slot_first=slots.first,
        machine_cpu=slots.machine_cpu,
        machine_network=slots.machine_network,
        capacity=slots.capacity,
        delay_ms=slots.delay_ms,
        links=links,
        ways=_ways(slots, links, len(flows)) if routed else _card_ways(slots),
        routed=routed,
        carded=bool(np.isfinite(slots.machine_network).any()) and not routed,
        prefers=any(flow.local for flow in flows),
        processes=int(slots.process[-1]) + 1,
        hosts=int(slots.host.max()) + 1,
    )


def _ways(slots: Slots, links: Links, flows: int) -> Ways:
    """Return empty paths over links."""
    empty = np.zeros((flows, slots.machines, slots.machines), dtype=np.int32)
    return Ways(empty, empty.copy(), np.empty(0, dtype=np.int32), links.bandwidth)


def _card_ways(slots: Slots) -> Ways:
    """Return the paths over the network cards of a mesh: out of one machine, into another."""
    machines = slots.machines
    if not np.isfinite(slots.machine_network).any():
        empty = np.zeros((1, machines, machines), dtype=np.int32)
        return Ways(empty, empty.copy(), np.empty(0, dtype=np.int32), np.empty(0))
    pairs = np.array([(here, machines + there) for here in range(machines) for there in range(machines)])
    start = 2 * np.arange(machines**2, dtype=np.int32).reshape(1, machines, machines)
    return Ways(start, start + 2, pairs.ravel().astype(np.int32), slots.machine_network.ravel())


def route_ways(net: RateNet, routes: Mapping[Hop, tuple[int, ...]]) -> Ways:
    """Return the paths of a placement's routes."""
    start, end, wires = net.ways.start.copy(), net.ways.end.copy(), list[int]()
    for hop, path in routes.items():
        start[hop] = len(wires)
        wires.extend(path)
        end[hop] = len(wires)
    return net.ways._replace(start=start, end=end, wire=np.array(wires, dtype=np.int32))


def _single(flows: Sequence[Flow], components: int) -> Bools:
    """Return which components send or receive a forward stream, or receive a global one. [C]"""
    single = np.zeros(components, dtype=np.bool_)
    for flow in flows:
        single[flow.target] |= flow.heard != SPREAD
        single[flow.source] |= flow.heard == FORWARD
    return single


@kernel
def bottleneck_rates(net: RateNet, placed: NDArray[np.int32], cpu: bool = True) -> Floats:
    """Return the rates of placements [B, T]; hops are routed by sequential widest paths.

    Without `cpu`, only other resources and the network count. A placement with a hop that has no path gets 0.
    """
    rates = np.empty(len(placed))
    ways = empty_ways(net)
    for row in range(len(placed)):
        gain = placed_gain(net, placed[row])
        rate = _cpu_rate(net, placed[row], gain) if cpu else np.inf
        if net.capacity.shape[1] > 0:
            rate = min(rate, _resource_rate(net, placed[row], gain))
        if net.routed:
            rate = min(rate, link_rate(net, placed[row], gain, ways))
        elif net.carded:
            rate = min(rate, _card_rate(net, placed[row], gain))
        rates[row] = rate
    return rates


@kernel
def empty_ways(net: RateNet) -> Ways:
    """Return empty paths over links with room for any placement; on a mesh, the paths over network cards."""
    if not net.routed:
        return net.ways
    hops, machines = 0, len(net.machine_cpu)
    for flow in range(len(net.bits)):
        senders = net.first[net.flow_source[flow] + 1] - net.first[net.flow_source[flow]]
        receivers = net.first[net.flow_target[flow] + 1] - net.first[net.flow_target[flow]]
        hops += min(senders, machines) * min(receivers, machines)
    wire = np.empty(hops * net.links.nodes, dtype=np.int32)
    return Ways(net.ways.start.copy(), net.ways.end.copy(), wire, net.ways.capacity)


@kernel
def machine_traffic(net: RateNet, placed: NDArray[np.int32]) -> Floats:
    """Return the bits per source tuple between machines, for placements [B, T]."""
    crossing = np.empty(len(placed))
    for row in range(len(placed)):
        sent = _card_loads(net, placed[row], placed_gain(net, placed[row]))[0]
        crossing[row] = 0.0
        for machine in range(len(sent)):
            crossing[row] += sent[machine]
    return crossing


@kernel
def placed_gain(net: RateNet, placed: NDArray[np.int32]) -> Floats:
    """Return the tuples processed per source tuple by each task of a placement; local streams spread unevenly."""
    if not net.prefers:
        return net.gain
    gain = np.zeros(len(net.gain))
    for task in range(len(gain)):
        gain[task] = net.gain[task] if net.source[task] else 0.0
    listeners, near = np.zeros(net.processes), np.zeros(net.processes)
    for flow in net.order:
        first, end = net.first[net.flow_source[flow]], net.first[net.flow_source[flow] + 1]
        to, to_end = net.first[net.flow_target[flow]], net.first[net.flow_target[flow] + 1]
        if net.heard[flow] == FORWARD:
            for task in range(first, end):
                gain[to + task - first] += gain[task] * net.share[flow]
        elif net.heard[flow] == GLOBAL:
            for task in range(first, end):
                gain[to] += gain[task] * net.share[flow]
        else:
            _count_near(net, placed, flow, listeners)
            clear(near)
            far = 0.0
            for task in range(first, end):
                process = net.slot_process[placed[task]]
                if listeners[process] > 0.0:
                    near[process] += gain[task] * (to_end - to) / listeners[process]
                else:
                    far += gain[task]
            for task in range(to, to_end):
                gain[task] += (far + near[net.slot_process[placed[task]]]) * net.share[flow]
    return gain


@part
def clear(amounts: Floats) -> None:
    """Set all elements to 0; a slice assignment would compile one second more slowly."""
    for number in range(len(amounts)):
        amounts[number] = 0.0


@kernel
def _count_near(net: RateNet, placed: NDArray[np.int32], flow: int, listeners: Floats) -> None:
    """Count the receivers of a local stream in every process; all counts are 0 for other streams."""
    clear(listeners)
    if net.local[flow]:
        for task in range(net.first[net.flow_target[flow]], net.first[net.flow_target[flow] + 1]):
            listeners[net.slot_process[placed[task]]] += 1.0


@kernel
def _cpu_rate(net: RateNet, placed: NDArray[np.int32], gain: Floats) -> float:
    slot_load = np.zeros(len(net.slot_cpu))
    machine_load = np.zeros(len(net.machine_cpu))
    for task in range(len(placed)):
        slot_load[placed[task]] += net.cpu[task] * gain[task]
        machine_load[net.slot_machine[placed[task]]] += net.cpu[task] * gain[task]
    return min(_least_rate(net.slot_cpu, slot_load), _least_rate(net.machine_cpu, machine_load))


@kernel
def _resource_rate(net: RateNet, placed: NDArray[np.int32], gain: Floats) -> float:
    rate = np.inf
    for resource in range(net.capacity.shape[1]):
        load = np.zeros(len(net.machine_cpu))
        for task in range(len(placed)):
            load[net.slot_machine[placed[task]]] += net.needs[task, resource] * gain[task]
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
def _card_rate(net: RateNet, placed: NDArray[np.int32], gain: Floats) -> float:
    sent, received = _card_loads(net, placed, gain)
    return min(_least_rate(net.machine_network[0], sent), _least_rate(net.machine_network[1], received))


@kernel
def _card_loads(net: RateNet, placed: NDArray[np.int32], gain: Floats) -> tuple[Floats, Floats]:
    """Return the bits per source tuple that every machine sends to others and receives from others."""
    machines = len(net.machine_cpu)
    sent, received = np.zeros(machines), np.zeros(machines)
    tuples, listeners, near = np.zeros(machines), np.zeros(machines), np.zeros(net.processes)
    for flow in range(len(net.bits)):
        first, end = net.first[net.flow_source[flow]], net.first[net.flow_source[flow] + 1]
        to, to_end = net.first[net.flow_target[flow]], net.first[net.flow_target[flow] + 1]
        amount = net.share[flow] * net.bits[flow]
        if net.heard[flow] == FORWARD:
            for task in range(first, end):
                here = net.slot_machine[placed[task]]
                there = net.slot_machine[placed[to + task - first]]
                if here != there:
                    sent[here] += gain[task] * amount
                    received[there] += gain[task] * amount
            continue
        count = 1 if net.heard[flow] == GLOBAL else to_end - to
        total = _by_machine(net, placed, gain, flow, count, tuples, listeners, near)
        for machine in range(machines):
            sent[machine] += tuples[machine] * (count - listeners[machine]) * amount
            received[machine] += listeners[machine] * max(total - tuples[machine], 0.0) * amount
    return sent, received


@kernel
def _by_machine(
    net: RateNet,
    placed: NDArray[np.int32],
    gain: Floats,
    flow: int,
    count: int,
    tuples: Floats,
    listeners: Floats,
    near: Floats,
) -> float:
    """Set the tuples that senders spread and the number of receivers, by machine; return the total spread."""
    clear(tuples)
    clear(listeners)
    total = 0.0
    to = net.first[net.flow_target[flow]]
    _count_near(net, placed, flow, near)
    for task in range(net.first[net.flow_source[flow]], net.first[net.flow_source[flow] + 1]):
        if near[net.slot_process[placed[task]]] == 0.0:
            tuples[net.slot_machine[placed[task]]] += gain[task]
            total += gain[task]
    for task in range(to, to + count):
        listeners[net.slot_machine[placed[task]]] += 1.0
    return total


@kernel
def link_rate(net: RateNet, placed: NDArray[np.int32], gain: Floats, ways: Ways) -> float:
    """Route every hop by the widest path; return the rate of the links, 0 if a hop has no path."""
    machines, place = len(net.machine_cpu), 0
    load = np.zeros(len(net.links.bandwidth))
    tuples, listeners, near = np.zeros(machines), np.zeros(machines), np.zeros(net.processes)
    pairs = np.zeros((machines, machines))
    for flow in range(len(net.bits)):
        first, end = net.first[net.flow_source[flow]], net.first[net.flow_source[flow] + 1]
        to, to_end = net.first[net.flow_target[flow]], net.first[net.flow_target[flow] + 1]
        for here in range(machines):
            clear(pairs[here])
        if net.heard[flow] == FORWARD:
            for task in range(first, end):
                pairs[net.slot_machine[placed[task]], net.slot_machine[placed[to + task - first]]] += gain[task]
        else:
            count = 1 if net.heard[flow] == GLOBAL else to_end - to
            _by_machine(net, placed, gain, flow, count, tuples, listeners, near)
            for here in range(machines):
                for there in range(machines):
                    pairs[here, there] = tuples[here] * listeners[there]
        for here in range(machines):
            for there in range(machines):
                ways.start[flow, here, there] = ways.end[flow, here, there] = place
                if here != there and pairs[here, there] * net.share[flow] > 0.0:
                    amount = pairs[here, there] * net.share[flow] * net.bits[flow]
                    _, path = widest_path(net.links, load, amount, here, there)
                    if len(path) == 0:
                        return 0.0
                    for link in path:
                        load[link] += amount
                        ways.wire[place] = link
                        place += 1
                    ways.end[flow, here, there] = place
    return _least_rate(net.links.bandwidth, load)


@kernel
def mean_delays(net: RateNet, placed: NDArray[np.int32]) -> Floats:  # noqa: C901
    """Return the mean delay in ms from source to sink, for placements [B, T] on a mesh.

    A receiver's delay is a sum over its senders, weighted by their tuples and their distances. Distances have four
    levels. So the sum over all senders, minus those on the same host, in the same process and on the same slot, is
    sufficient, and each of these is computed once per stream.
    """
    delay_ms, process, host = net.delay_ms, net.slot_process, net.slot_host
    by_host, by_process, by_slot = delay_ms[3] - delay_ms[2], delay_ms[2] - delay_ms[1], delay_ms[1] - delay_ms[0]
    found, delay = np.zeros(len(placed)), np.zeros(len(net.cpu))
    from_slot, from_host = np.zeros(len(process)), np.zeros(net.hosts)
    from_process, near_late, near = np.zeros(net.processes), np.zeros(net.processes), np.zeros(net.processes)
    for row in range(len(placed)):
        where, gain = placed[row], placed_gain(net, placed[row])
        clear(delay)
        for flow in net.order:
            first, end = net.first[net.flow_source[flow]], net.first[net.flow_source[flow] + 1]
            to, to_end = net.first[net.flow_target[flow]], net.first[net.flow_target[flow] + 1]
            if net.heard[flow] == FORWARD:
                for task in range(first, end):
                    other = to + task - first
                    if gain[other] > 0.0:
                        hop = _distance(where[task], where[other], process, host, delay_ms)
                        delay[other] += gain[task] * net.share[flow] * (delay[task] + hop) / gain[other]
                continue
            _count_near(net, where, flow, near)
            clear(from_slot)
            clear(from_process)
            clear(from_host)
            clear(near_late)
            late = 0.0
            for task in range(first, end):
                slot, here = where[task], process[where[task]]
                from_slot[slot] += gain[task]
                if near[here] > 0.0:
                    near_late[here] += gain[task] * (delay[task] + delay_ms[1])
                else:
                    late += gain[task] * (delay[task] + delay_ms[3])
                    from_process[here] += gain[task]
                    from_host[host[slot]] += gain[task]
            count = 1 if net.heard[flow] == GLOBAL else to_end - to
            for task in range(to, to + count):
                if gain[task] > 0.0:
                    slot, here = where[task], process[where[task]]
                    total = late - by_process * from_process[here] - by_host * from_host[host[slot]]
                    if near[here] > 0.0:
                        total += (near_late[here] - by_slot * from_slot[slot]) * count / near[here]
                    else:
                        total -= by_slot * from_slot[slot]
                    delay[task] += net.share[flow] * total / gain[task]
        at_sinks, weighted = 0.0, 0.0
        for component in range(len(net.sink)):
            if net.sink[component]:
                for task in range(net.first[component], net.first[component + 1]):
                    at_sinks += gain[task]
                    weighted += gain[task] * delay[task]
        found[row] = weighted / at_sinks if at_sinks > 0.0 else 0.0
    return found


@kernel
def _distance(here: int, there: int, process: Ints, host: Ints, delay_ms: Floats) -> float:
    """Return the delay between two slots."""
    if here == there:
        return float(delay_ms[0])
    if process[here] == process[there]:
        return float(delay_ms[1])
    return float(delay_ms[2] if host[here] == host[there] else delay_ms[3])
