"""Search for a higher bottleneck rate (SPARCLE, eq. (1a)) with moves, swaps and new routes, as kernels.

The search space is a slot for every task and an order of streams. Given these, every hop in turn takes the route with
the least added load among those that keep a wanted rate, and the widest path if there is none: of many routes that are
good enough, the shortest leaves most to the following hops. Of equal rates, the placement with less total load is
better (the sum of fourth powers, dominated by the busiest elements), so that the search can leave a plateau.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.instance import keeps_apart
from penstock.model.kernel import kernel
from penstock.model.placement import MEMORY_SLACK
from penstock.model.routes import BITS
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import FORWARD, GLOBAL, Bools, Floats, Ints
from penstock.policies.api import PlacementView

NO_ROUTE = -1.0
LINK_COST = 1e-3  # cost of a link, in loads: of equal routes the shorter is better


class Problem(NamedTuple):
    """Constants for rating a placement; T tasks, C components, F flows, S slots, M machines, R resources."""

    work: Floats  # [T] core-seconds per source tuple
    needs: Floats  # [T, R] per source tuple
    memory: Floats  # [T] MB
    gain: Floats  # [T] tuples processed per source tuple
    pin: Ints  # [T] machine, -1: free
    free: Ints  # tasks that are not pinned
    first: Ints  # [C + 1] first task of each component
    component: Ints  # [T]
    conflicts: Bools  # [C, C] components that may not share a machine; empty if all may
    stream: Ints  # [F] ascending
    flow_source: Ints  # [F] sending component
    flow_target: Ints  # [F]
    heard: Ints  # [F] SPREAD, FORWARD or GLOBAL
    bits: Floats  # [F] to each receiver per tuple processed
    slot_machine: Ints  # [S]
    slot_first: Ints  # [M + 1]
    slot_cpu: Floats  # [S]
    slot_memory: Floats  # [S]
    cpu: Floats  # [M]
    machine_memory: Floats  # [M]
    card: Floats  # [2, M] bits per second that it sends and receives
    capacity: Floats  # [M, R]
    links: Links
    routed: bool
    carded: bool


class Scratch(NamedTuple):
    """Scratch space for rating one placement; V nodes, L links."""

    slot_load: Floats  # [S]
    slot_used: Floats  # [S] MB
    load: Floats  # [M]
    used: Floats  # [M] MB
    needed: Floats  # [M, R]
    sent: Floats  # [M] bits
    received: Floats  # [M]
    carried: Floats  # [L] bits
    tuples: Floats  # [M] processed by senders of a flow
    heard: Floats  # [M] receivers of a flow
    senders: Ints  # [M] machines that have any
    receivers: Ints  # [M]
    cost: Floats  # [V] of the route to a node
    tail: Ints  # [V] previous node
    via: Ints  # [V] link from there
    done: Bools  # [V]


class RouteLog(NamedTuple):
    """The routes of a placement, as far as they fit; H hops."""

    filled: Ints  # [2] hops, and their links
    hops: Ints  # [H, 4] flow, source, target, number of links
    links: Ints  # of one hop after another, each from its target back to its source


def problem_of(view: PlacementView) -> Problem:
    """Collect the constants for rating placements."""
    tasks, slots = view.tasks, view.slots
    flows = sorted((flow for flow in tasks.flows if flow.share > 0), key=lambda flow: flow.stream)
    return Problem(
        work=view.work,
        needs=tasks.needs * tasks.gain[:, None],
        memory=tasks.memory_mb,
        gain=tasks.gain,
        pin=view.pins,
        free=np.flatnonzero(view.pins < 0).astype(np.int32),
        first=tasks.first,
        component=tasks.component,
        conflicts=np.zeros((0, 0), dtype=np.bool_) if view.conflicts is None else view.conflicts,
        stream=np.array([flow.stream for flow in flows], dtype=np.int32),
        flow_source=np.array([flow.source for flow in flows], dtype=np.int32),
        flow_target=np.array([flow.target for flow in flows], dtype=np.int32),
        heard=np.array([flow.heard for flow in flows], dtype=np.int32),
        bits=np.array([flow.share * flow.tuple_bytes * BITS for flow in flows], dtype=np.float64),
        slot_machine=slots.machine,
        slot_first=slots.first,
        slot_cpu=slots.cpu,
        slot_memory=slots.memory_mb * (1 + MEMORY_SLACK),
        cpu=slots.machine_cpu,
        machine_memory=slots.machine_memory_mb * (1 + MEMORY_SLACK),
        card=slots.machine_network,
        capacity=slots.capacity,
        links=view.links,
        routed=view.cluster.routed,
        carded=not view.cluster.routed and bool(np.isfinite(slots.machine_network).any()),
    )


def log_of(hops: int, links: int) -> RouteLog:
    """Allocate arrays for hops and links."""
    return RouteLog(np.zeros(2, dtype=np.int32), np.zeros((hops, 4), dtype=np.int32), np.zeros(links, dtype=np.int32))


def scratch_of(problem: Problem) -> Scratch:
    """Allocate scratch space."""
    slots, machines = len(problem.slot_cpu), len(problem.cpu)
    nodes = problem.links.nodes
    return Scratch(
        slot_load=np.zeros(slots),
        slot_used=np.zeros(slots),
        load=np.zeros(machines),
        used=np.zeros(machines),
        needed=np.zeros(problem.capacity.shape),
        sent=np.zeros(machines),
        received=np.zeros(machines),
        carried=np.zeros(len(problem.links.bandwidth)),
        tuples=np.zeros(machines),
        heard=np.zeros(machines),
        senders=np.zeros(machines, dtype=np.int32),
        receivers=np.zeros(machines, dtype=np.int32),
        cost=np.zeros(nodes),
        tail=np.zeros(nodes, dtype=np.int32),
        via=np.zeros(nodes, dtype=np.int32),
        done=np.zeros(nodes, dtype=np.bool_),
    )


@kernel
def rate(
    problem: Problem, scratch: Scratch, log: RouteLog, placed: Ints, order: Ints, wanted: float, floor: float
) -> tuple[float, float]:
    """Return the rate of a placement and the sum of its elements' loads to the fourth power.

    `order` [F] is the routing order of flows, which try to keep the rate `wanted`. Rating stops as soon as a placement
    is known to be below `floor`; one without room or route gets NO_WAY.
    """
    lowest, powers = rate_machines(problem, scratch, placed)
    if lowest < floor or not (problem.routed or problem.carded):
        return lowest, powers
    lowest = min(lowest, exchange(problem, scratch, log, placed, order, wanted, floor))
    if lowest < floor:
        return lowest, np.inf
    if problem.routed:
        return lowest, powers + add_up(scratch.carried, problem.links.bandwidth)[1]
    for direction, bits in enumerate((scratch.sent, scratch.received)):
        by_card, more = add_up(bits, problem.card[direction])
        lowest, powers = min(lowest, by_card), powers + more
    return lowest, powers


@kernel
def add_up(load: Floats, capacity: Floats) -> tuple[float, float]:
    """Return the lowest rate of elements, and the sum of their loads to the fourth power."""
    stress, powers = 0.0, 0.0
    for element in range(len(load)):
        if load[element] > 0.0:
            own = load[element] / capacity[element]
            stress, powers = max(stress, own), powers + own**4
    return 1.0 / stress if stress > 0.0 else np.inf, powers


@kernel
def rate_machines(problem: Problem, scratch: Scratch, placed: Ints) -> tuple[float, float]:
    """Return the rate of slots, machines and resources; NO_WAY if tasks lack memory or resources, or conflict."""
    if problem.conflicts.shape[0] > 0:
        rows = placed.reshape((1, -1))
        if not keeps_apart(problem.conflicts, problem.component, problem.slot_machine, len(problem.cpu), rows)[0]:
            return NO_ROUTE, np.inf
    scratch.slot_load[:] = 0.0
    scratch.slot_used[:] = 0.0
    scratch.load[:] = 0.0
    scratch.used[:] = 0.0
    scratch.needed[:] = 0.0
    for task in range(len(placed)):
        slot = placed[task]
        machine = problem.slot_machine[slot]
        scratch.slot_load[slot] += problem.work[task]
        scratch.slot_used[slot] += problem.memory[task]
        scratch.load[machine] += problem.work[task]
        scratch.used[machine] += problem.memory[task]
        if (
            scratch.slot_used[slot] > problem.slot_memory[slot]
            or scratch.used[machine] > problem.machine_memory[machine]
        ):
            return NO_ROUTE, np.inf
        for resource in range(problem.needs.shape[1]):
            scratch.needed[machine, resource] += problem.needs[task, resource]
            if problem.needs[task, resource] > 0.0 and problem.capacity[machine, resource] <= 0.0:
                return NO_ROUTE, np.inf
    by_slot, _ = add_up(scratch.slot_load, problem.slot_cpu)
    lowest, powers = add_up(scratch.load, problem.cpu)
    for resource in range(problem.needs.shape[1]):
        own, more = add_up(scratch.needed[:, resource], problem.capacity[:, resource])
        lowest, powers = min(lowest, own), powers + more
    return min(lowest, by_slot), powers


@kernel
def exchange(
    problem: Problem, scratch: Scratch, log: RouteLog, placed: Ints, order: Ints, wanted: float, floor: float
) -> float:
    """Charge all hops to links or cards, and return the rate that links allow."""
    scratch.carried[:] = 0.0
    scratch.sent[:] = 0.0
    scratch.received[:] = 0.0
    log.filled[:] = 0
    lowest = np.inf
    for flow in order:
        senders, receivers = gather(problem, scratch, placed, flow)
        for at in range(senders):
            for to in range(receivers):
                here, there = scratch.senders[at], scratch.receivers[to]
                pairs = scratch.tuples[here] * scratch.heard[there]
                if problem.heard[flow] == FORWARD:
                    pairs = forward_pairs(problem, placed, flow, here, there)
                if here != there and pairs > 0.0 and lowest >= floor:
                    bits = pairs * problem.bits[flow]
                    if problem.routed:
                        lowest = min(lowest, route_hop(problem.links, scratch, bits, here, there, wanted))
                        log_route(log, scratch, flow, here, there)
                    else:
                        scratch.sent[here] += bits
                        scratch.received[there] += bits
        scratch.tuples[scratch.senders[:senders]] = 0.0
        scratch.heard[scratch.receivers[:receivers]] = 0.0
        if lowest < floor:
            break
    return lowest


@kernel
def gather(problem: Problem, scratch: Scratch, placed: Ints, flow: int) -> tuple[int, int]:
    """List the machines of a flow's senders and receivers; return the number of each."""
    senders, receivers = 0, 0
    source, target = problem.flow_source[flow], problem.flow_target[flow]
    for task in range(problem.first[source], problem.first[source + 1]):
        machine = problem.slot_machine[placed[task]]
        if problem.gain[task] > 0.0:
            if scratch.tuples[machine] == 0.0:
                scratch.senders[senders] = machine
                senders += 1
            scratch.tuples[machine] += problem.gain[task]
    last = problem.first[target] + 1 if problem.heard[flow] == GLOBAL else problem.first[target + 1]
    for task in range(problem.first[target], last):
        machine = problem.slot_machine[placed[task]]
        if scratch.heard[machine] == 0.0:
            scratch.receivers[receivers] = machine
            receivers += 1
        scratch.heard[machine] += 1.0
    return senders, receivers


@kernel
def forward_pairs(problem: Problem, placed: Ints, flow: int, here: int, there: int) -> float:
    """Return the tuples that a forward flow's senders on one machine have for their partners on another."""
    first, to = problem.first[problem.flow_source[flow]], problem.first[problem.flow_target[flow]]
    tuples = 0.0
    for task in range(first, problem.first[problem.flow_source[flow] + 1]):
        if problem.slot_machine[placed[task]] == here and problem.slot_machine[placed[to + task - first]] == there:
            tuples += problem.gain[task]
    return tuples


@kernel
def route_hop(links: Links, scratch: Scratch, bits: float, here: int, there: int, wanted: float) -> float:
    """Route a hop, charge its links and return the minimum rate on them; NO_WAY if there is no route."""
    if wanted < np.inf:
        find_cheapest(links, scratch, bits, here, there, wanted)
    if wanted == np.inf or scratch.via[there] < 0:
        find_widest(links, scratch, bits, here, there)
    if scratch.via[there] < 0:
        return NO_ROUTE
    lowest, node = np.inf, there
    for _ in range(links.nodes):
        if node == here:
            break
        link = scratch.via[node]
        scratch.carried[link] += bits
        if scratch.carried[link] > 0.0:
            lowest = min(lowest, links.bandwidth[link] / scratch.carried[link])
        node = scratch.tail[node]
    return lowest


@kernel
def find_cheapest(links: Links, scratch: Scratch, bits: float, here: int, there: int, wanted: float) -> None:
    """Find the route that adds the least load, over links that keep the wanted rate."""
    cost, tail, via, done = scratch.cost, scratch.tail, scratch.via, scratch.done
    cost[:] = np.inf
    via[:] = -1
    done[:] = False
    cost[here] = 0.0
    for _ in range(links.nodes):
        node, least = -1, np.inf
        for candidate in range(links.nodes):
            if not done[candidate] and cost[candidate] < least:
                node, least = candidate, cost[candidate]
        if node < 0 or node == there:
            break
        done[node] = True
        for arc in range(links.start[node], links.start[node + 1]):
            link, head = links.link[arc], links.head[arc]
            carried = scratch.carried[link] + bits
            if links.bandwidth[link] > 0.0 and links.bandwidth[link] >= wanted * carried and not done[head]:
                further = least + carried * wanted / links.bandwidth[link] + LINK_COST
                if further < cost[head]:
                    cost[head], tail[head], via[head] = further, node, link


@kernel
def find_widest(links: Links, scratch: Scratch, bits: float, here: int, there: int) -> None:
    """Find the route whose narrowest link allows most (Algorithm 1)."""
    width, tail, via, done = scratch.cost, scratch.tail, scratch.via, scratch.done
    width[:] = 0.0
    via[:] = -1
    done[:] = False
    width[here] = np.inf
    for _ in range(links.nodes):
        node, best = -1, 0.0
        for candidate in range(links.nodes):
            if not done[candidate] and width[candidate] > best:
                node, best = candidate, width[candidate]
        if node < 0 or node == there:
            break
        done[node] = True
        for arc in range(links.start[node], links.start[node + 1]):
            link, head = links.link[arc], links.head[arc]
            own = min(best, links.bandwidth[link] / (scratch.carried[link] + bits))
            if own > width[head] and not done[head]:
                width[head], tail[head], via[head] = own, node, link


@kernel
def log_route(log: RouteLog, scratch: Scratch, flow: int, here: int, there: int) -> None:
    """Record the route just laid if there is room; count it in any case."""
    length, node = 0, there
    for _ in range(len(scratch.via)):
        if node == here or scratch.via[node] < 0:
            break
        if log.filled[1] + length < len(log.links):
            log.links[log.filled[1] + length] = scratch.via[node]
        length, node = length + 1, scratch.tail[node]
    if log.filled[0] < len(log.hops):
        hop = log.hops[log.filled[0]]
        hop[0], hop[1], hop[2], hop[3] = flow, here, there, length
    log.filled[0] += 1
    log.filled[1] += length
