"""Traffic of the tasks placed so far, as kernels: routes, loads of links and of cards.

A hop keeps its first route. On a full mesh a transport is charged to the network cards of its sender and receiver.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel, part, stage
from penstock.model.routes import count_links, list_links, set_widest
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.placement.partial_placement import Capacities, Placed, Scratch, Workload, set_exchange


class Traffic(NamedTuple):
    """Bits per source tuple so far; L links, M machines."""

    load: Floats  # [L]
    sent: Floats  # [M] by cards
    received: Floats  # [M]
    steps: Floats  # [2, M, V] minimum number of links from machines to nodes, forwards and backwards
    known: Bools  # [2, M] for which machines


class Hops(NamedTuple):
    """The routes so far; H hops, F streams."""

    stream: Ints  # [H]
    source: Ints  # [H] machine
    target: Ints  # [H]
    first: Ints  # [H + 1] the links of hop h are first[h] .. first[h + 1]
    following: Ints  # [H] another hop of the same stream, -1: none
    newest: Ints  # [F] the newest hop, -1: none
    links: Ints  # of one hop after another, in the order of travel
    filled: Ints  # [1] number of hops


def no_traffic(capacities: Capacities, near: bool) -> Traffic:
    """Allocate arrays for traffic; `near`: detours will be needed."""
    machines = len(capacities.cpu)
    far = machines if near and capacities.routed else 0
    return Traffic(
        np.empty(len(capacities.links.bandwidth)),
        np.empty(machines),
        np.empty(machines),
        np.empty((2, far, capacities.links.nodes)),
        np.empty((2, far), dtype=np.bool_),
    )


@part
def clear_traffic(traffic: Traffic) -> None:
    """Reset the traffic to 0."""
    traffic.load[:], traffic.sent[:], traffic.received[:], traffic.known[:] = 0.0, 0.0, 0.0, False


@kernel
def no_hops(hops: int, links: int, flows: int) -> Hops:
    """Allocate arrays for hops and links."""
    return Hops(
        np.empty(hops, dtype=np.int32),
        np.empty(hops, dtype=np.int32),
        np.empty(hops, dtype=np.int32),
        np.zeros(hops + 1, dtype=np.int32),
        np.empty(hops, dtype=np.int32),
        np.full(flows, -1, dtype=np.int32),
        np.empty(links, dtype=np.int32),
        np.zeros(1, dtype=np.int32),
    )


@stage
def charge_links(
    traffic: Traffic,
    hops: Hops,
    workload: Workload,
    placed: Placed,
    links: Links,
    room: Scratch,
    task: int,
    machine: int,
) -> None:
    """Route the hops between a task on a machine and its placed neighbours, stream by stream, and charge their links.

    Call this before the task is placed, with room for `most_hops` more hops.
    """
    bits = room.bits
    component = workload.component[task]
    for flow in workload.streams.listed:
        sends = workload.streams.source[flow] == component
        if not sends and workload.streams.target[flow] != component:
            continue
        stream = workload.streams.number[flow]
        set_exchange(workload, placed, flow, task, sends, bits)
        for other in range(len(bits)):
            if bits[other] > 0.0 and other != machine:
                source, target = (machine, other) if sends else (other, machine)
                hop = find_hop(hops, stream, source, target)
                if hop < 0:
                    set_widest(
                        links, traffic.load, bits[other], source, target, room.width, room.tail, room.via, room.reached
                    )
                    hop = add_hop(hops, stream, source, target, room.tail, room.via)
                for at in range(hops.first[hop], hops.first[hop + 1]):
                    traffic.load[hops.links[at]] += bits[other]


@part
def most_hops(workload: Workload, placed: Placed, task: int) -> int:
    """Return the maximum number of hops between a task and its placed neighbours."""
    component, most = workload.component[task], 0
    for flow in workload.streams.listed:
        source, target = workload.streams.source[flow], workload.streams.target[flow]
        if source == component or target == component:
            other = target if source == component else source
            for machine in range(placed.tasks_on.shape[1]):
                most += 1 if placed.tasks_on[other, machine] > 0.0 else 0
    return most


@part
def find_hop(hops: Hops, stream: int, source: int, target: int) -> int:
    """Return the number of a hop that has a route, -1 if it has none."""
    hop = hops.newest[stream]
    for _ in range(hops.filled[0]):
        if hop < 0 or (hops.source[hop] == source and hops.target[hop] == target):
            break
        hop = hops.following[hop]
    return int(hop)


@kernel
def with_hops(hops: Hops, more: int, nodes: int) -> Hops:
    """Return hops with room for more, each with fewer links than there are nodes, in larger arrays if needed."""
    size, last = hops.filled[0], hops.first[hops.filled[0]]
    if size + more <= len(hops.stream) and last + more * nodes <= len(hops.links):
        return hops
    grown = no_hops(2 * (size + more), 2 * (last + more * nodes), len(hops.newest))
    copy_hops(hops, grown)
    return grown


@stage
def copy_hops(hops: Hops, grown: Hops) -> None:
    """Copy hops to larger arrays."""
    grown.filled[0] = hops.filled[0]
    for stream in range(len(hops.newest)):
        grown.newest[stream] = hops.newest[stream]
    for hop in range(hops.filled[0]):
        grown.stream[hop], grown.source[hop], grown.target[hop] = hops.stream[hop], hops.source[hop], hops.target[hop]
        grown.following[hop], grown.first[hop + 1] = hops.following[hop], hops.first[hop + 1]
    for at in range(hops.first[hops.filled[0]]):
        grown.links[at] = hops.links[at]


@part
def add_hop(hops: Hops, stream: int, source: int, target: int, tail: Ints, via: Ints) -> int:
    """Add a hop with its route in a tree, and return its number; there must be room for another."""
    hop = hops.filled[0]
    first = hops.first[hop]
    hops.stream[hop], hops.source[hop], hops.target[hop] = stream, source, target
    hops.first[hop + 1] = first + list_links(tail, via, source, target, hops.links[first:])
    hops.following[hop], hops.newest[stream] = hops.newest[stream], hop
    hops.filled[0] = hop + 1
    return int(hop)


@stage
def charge_cards(traffic: Traffic, workload: Workload, placed: Placed, bits: Floats, task: int, machine: int) -> None:
    """Charge the cards of both ends of what a task on a machine exchanges with its placed neighbours.

    `bits` [M] is scratch space.
    """
    for sends in (True, False):
        near, far = (traffic.sent, traffic.received) if sends else (traffic.received, traffic.sent)
        ends = workload.streams.source if sends else workload.streams.target
        for flow in workload.streams.listed:
            if ends[flow] == workload.component[task]:
                set_exchange(workload, placed, flow, task, sends, bits)
                total = 0.0
                for other in range(len(bits)):
                    total += bits[other]
                    far[other] += bits[other]
                near[machine] += total - bits[machine]
                far[machine] -= bits[machine]


@stage
def set_detours(
    traffic: Traffic, workload: Workload, placed: Placed, links: Links, back: Links, room: Scratch, task: int
) -> None:
    """Set the detour of its neighbours' transports for a task on each machine: `room.detour`.

    Bits × minimum number of links; on a mesh, the bits that would leave or reach the machine.
    """
    bits, detour, routed = room.bits, room.detour, traffic.steps.shape[1] > 0
    detour[:] = 0.0
    for sends in (True, False):
        ends = workload.streams.source if sends else workload.streams.target
        for flow in workload.streams.listed:
            if ends[flow] != workload.component[task]:
                continue
            set_exchange(workload, placed, flow, task, sends, bits)
            for other in range(len(bits)):
                if not routed:
                    detour[other] += bits[other]
                elif bits[other] > 0.0:
                    direction = 1 if sends else 0
                    steps = traffic.steps[direction, other]
                    if not traffic.known[direction, other]:
                        count_links(back if sends else links, other, steps, room.reached)
                        traffic.known[direction, other] = True
                    for machine in range(len(bits)):
                        detour[machine] += bits[other] * steps[machine]
    if not routed:
        everywhere = 0.0
        for machine in range(len(bits)):
            everywhere += detour[machine]
        for machine in range(len(bits)):
            detour[machine] = everywhere - detour[machine]
