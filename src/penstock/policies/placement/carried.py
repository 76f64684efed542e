"""What the tasks placed so far send over the network, as kernels: routes, the load of links, the load of cards.

A hop keeps the route that it was given when it first carried something. On a full mesh a transport is charged to the
network card it leaves by and the one it arrives by.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.routes import fewest_links, widest_path
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.placement.partly_placed import Asked, Offered, Placed, exchanged


class Carried(NamedTuple):
    """Bits a source tuple, so far; L links, M machines."""

    load: Floats  # [L]
    sent: Floats  # [M] by cards
    received: Floats  # [M]
    steps: Floats  # [2, M, M] the fewest links between machines, forwards and backwards
    known: Bools  # [2, M] for which machines


class Hops(NamedTuple):
    """The routes taken so far; H hops, F streams."""

    stream: Ints  # [H]
    source: Ints  # [H] machine
    target: Ints  # [H]
    first: Ints  # [H + 1] the links of hop h are first[h] .. first[h + 1]
    following: Ints  # [H] another hop of the same stream, -1: none
    newest: Ints  # [F] the first of them, -1: none
    links: Ints  # of one hop after another, in the order of travel
    filled: Ints  # [1] how many hops there are


@kernel
def nothing_carried(offered: Offered, near: bool) -> Carried:
    """Return that nothing is carried; `near`: detours will be asked for."""
    machines = len(offered.cpu)
    far = machines if near and offered.routed else 0
    return Carried(
        np.zeros(len(offered.links.bandwidth)),
        np.zeros(machines),
        np.zeros(machines),
        np.empty((2, far, far)),
        np.zeros((2, far), dtype=np.bool_),
    )


@kernel
def no_hops(hops: int, links: int, flows: int) -> Hops:
    """Make room for so many hops and links."""
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


@kernel
def charge_links(
    carried: Carried, hops: Hops, asked: Asked, placed: Placed, links: Links, task: int, machine: int
) -> Hops:
    """Route the hops between a task on a machine and its placed neighbours, stream by stream, and charge their links.

    To be called before the task is placed. Returns the hops, in larger arrays where there were too many.
    """
    bits = np.empty(placed.tasks_on.shape[1])
    component = asked.component[task]
    for flow in asked.streams.listed:
        sends = asked.streams.source[flow] == component
        if not sends and asked.streams.target[flow] != component:
            continue
        stream = asked.streams.number[flow]
        exchanged(asked, placed, flow, task, sends, bits)
        for other in range(len(bits)):
            if bits[other] > 0.0 and other != machine:
                source, target = (machine, other) if sends else (other, machine)
                hop = find_hop(hops, stream, source, target)
                if hop < 0:
                    _, path = widest_path(links, carried.load, bits[other], source, target)
                    hop = hops.filled[0]
                    hops = with_hop(hops, stream, source, target, path)
                for link in hops.links[hops.first[hop] : hops.first[hop + 1]]:
                    carried.load[link] += bits[other]
    return hops


@kernel
def find_hop(hops: Hops, stream: int, source: int, target: int) -> int:
    """Return the number of a hop that has a route, -1 where it has none."""
    hop = hops.newest[stream]
    for _ in range(hops.filled[0]):
        if hop < 0 or (hops.source[hop] == source and hops.target[hop] == target):
            break
        hop = hops.following[hop]
    return int(hop)


@kernel
def with_hop(hops: Hops, stream: int, source: int, target: int, path: Ints) -> Hops:
    """Return the hops and another one."""
    size = hops.filled[0]
    last = hops.first[size] + len(path)
    if size == len(hops.stream) or last > len(hops.links):
        grown = no_hops(2 * size + 1, 2 * last, len(hops.newest))
        grown.stream[:size], grown.source[:size] = hops.stream[:size], hops.source[:size]
        grown.target[:size], grown.following[:size] = hops.target[:size], hops.following[:size]
        grown.first[: size + 1], grown.newest[:] = hops.first[: size + 1], hops.newest
        grown.links[: hops.first[size]] = hops.links[: hops.first[size]]
        hops = grown
    hops.stream[size], hops.source[size], hops.target[size] = stream, source, target
    hops.links[hops.first[size] : last] = path
    hops.following[size], hops.newest[stream] = hops.newest[stream], size
    hops.first[size + 1], hops.filled[0] = last, size + 1
    return hops


@kernel
def charge_cards(carried: Carried, asked: Asked, placed: Placed, task: int, machine: int) -> None:
    """Charge the cards of both ends of what a task on a machine exchanges with its placed neighbours."""
    bits = np.empty(placed.tasks_on.shape[1])
    for sends in (True, False):
        near, far = (carried.sent, carried.received) if sends else (carried.received, carried.sent)
        ends = asked.streams.source if sends else asked.streams.target
        for flow in asked.streams.listed:
            if ends[flow] == asked.component[task]:
                exchanged(asked, placed, flow, task, sends, bits)
                near[machine] += bits.sum() - bits[machine]
                far += bits
                far[machine] -= bits[machine]


@kernel
def detours(carried: Carried, asked: Asked, placed: Placed, links: Links, back: Links, task: int) -> Floats:
    """Return what its neighbours' transports would take of the network with a task on each machine. [M]

    Bits × links by the fewest links; on a mesh, the bits that would leave or reach the machine.
    """
    bits, total = np.empty(placed.tasks_on.shape[1]), np.zeros(placed.tasks_on.shape[1])
    for sends in (True, False):
        ends = asked.streams.source if sends else asked.streams.target
        for flow in asked.streams.listed:
            if ends[flow] != asked.component[task]:
                continue
            exchanged(asked, placed, flow, task, sends, bits)
            if not len(carried.steps[0]):
                total += bits
                continue
            for other in range(len(bits)):
                if bits[other] > 0.0:
                    way = 1 if sends else 0
                    if not carried.known[way, other]:
                        carried.steps[way, other] = fewest_links(back if sends else links, other)[: len(bits)]
                        carried.known[way, other] = True
                    total += bits[other] * carried.steps[way, other]
    return total if len(carried.steps[0]) else total.sum() - total
