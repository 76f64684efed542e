"""Routes over a network: the traffic of each stream between two machines, and the widest path for it.

`route_hops` implements SPARCLE's Algorithm 1: hops are routed one after another, each on the path whose narrowest link
allows the highest rate with the hop added to the link's current load.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from penstock.model.kernel import kernel, part
from penstock.model.placement import Hop
from penstock.model.slotgraph import Links, Slots
from penstock.model.taskgraph import FORWARD, Floats, Flow, Ints, Tasks, sum_by

BITS = 8.0


def flow_matrix(tasks: Tasks, flow: Flow, place: Ints, places: int, process: Ints) -> Floats:
    """Return the traffic of a stream from place to place, in tuples per source tuple: [places, places].

    `place` and `process` locate every task. Tuples that a local stream sends within a process are excluded.
    """
    tuples, source, target = tasks.sent(flow, place)
    tuples = np.where(tasks.near(flow, process) > 0, 0.0, tuples)
    if flow.heard == FORWARD:
        matrix = np.zeros((places, places))
        np.add.at(matrix, (source, target), tuples)
        return matrix
    return np.outer(sum_by(source, tuples, places), sum_by(target, np.ones(len(target)), places))


def hop_bits(tasks: Tasks, slots: Slots, placed: Ints) -> dict[Hop, float]:
    """Return the bits per source tuple that every stream sends between two different machines, in a fixed order."""
    machine, process = slots.machine[placed], slots.process[placed]
    used, local = np.unique(machine, return_inverse=True)
    bits: dict[Hop, float] = {}
    tasks = tasks.placed(process)
    for flow in sorted(tasks.flows, key=lambda flow: flow.stream):
        tuples = flow_matrix(tasks, flow, local.astype(np.int32), len(used), process)
        np.fill_diagonal(tuples, 0.0)
        for a, b in np.argwhere(tuples > 0):  # an empty tuple needs a route as well
            bits[Hop(flow.stream, int(used[a]), int(used[b]))] = float(tuples[a, b] * flow.tuple_bytes * BITS)
    return bits


def card_bits(tasks: Tasks, slots: Slots, placed: Ints) -> tuple[Floats, Floats]:
    """Return the bits per source tuple that every machine sends to others and receives from others: [M] each."""
    machine, process = slots.machine[placed], slots.process[placed]
    out, into = np.zeros(slots.machines), np.zeros(slots.machines)
    tasks = tasks.placed(process)
    for flow in tasks.flows:
        tuples, source, target = tasks.sent(flow, machine)
        bits = np.where(tasks.near(flow, process) > 0, 0.0, tuples) * flow.tuple_bytes * BITS
        if flow.heard == FORWARD:
            away = np.where(source != target, bits, 0.0)
            out += sum_by(source, away, slots.machines)
            into += sum_by(target, away, slots.machines)
        else:
            from_here = sum_by(source, bits, slots.machines)
            heard_here = sum_by(target, np.ones(len(target)), slots.machines)
            out += from_here * (len(target) - heard_here)
            into += heard_here * (from_here.sum() - from_here)
    return out, np.maximum(into, 0.0)


def route_hops(tasks: Tasks, slots: Slots, links: Links, placed: Sequence[int]) -> Mapping[Hop, tuple[int, ...]] | Hop:
    """Return the links of every hop of a placement, or the first hop without a path."""
    bits = hop_bits(tasks, slots, np.asarray(placed, dtype=np.int32))
    load = np.zeros(len(links.bandwidth))
    routes: dict[Hop, tuple[int, ...]] = {}
    for hop, amount in bits.items():
        _, path = widest_path(links, load, amount, hop.source, hop.target)
        if not len(path):
            return hop
        load[path] += amount
        routes[hop] = tuple(int(link) for link in path)
    return routes


@kernel
def widest_tree(links: Links, load: Floats, bits: float, source: int, last: int) -> tuple[Floats, Ints, Ints]:
    """Return for every node the maximum rate at which `bits` more per tuple can reach it from `source`.

    The second and third results are the tail and the link of the arc by which each node is reached best (-1: not
    reached). Among equal rates the lowest node is settled first, and the path found first is kept. The search ends when
    `last` is settled; -1: at all nodes.
    """
    width, tail = np.empty(links.nodes), np.empty(links.nodes, dtype=np.int32)
    via, reached = np.empty(links.nodes, dtype=np.int32), np.empty(links.nodes, dtype=np.int32)
    set_widest(links, load, bits, source, last, width, tail, via, reached)
    return width, tail, via


@part
def set_widest(
    links: Links, load: Floats, bits: float, source: int, last: int, width: Floats, tail: Ints, via: Ints, reached: Ints
) -> None:
    """Set the tree of widest paths until `last` is settled; `reached` [V] is scratch space for unsettled nodes."""
    width[:] = 0.0
    tail[:] = -1
    via[:] = -1
    width[source] = np.inf
    reached[0], size = source, 1
    for _ in range(links.nodes):
        if size == 0:
            break
        place = 0
        for other in range(1, size):
            rate, highest = width[reached[other]], width[reached[place]]
            if rate > highest or (rate == highest and reached[other] < reached[place]):
                place = other
        node, best = reached[place], width[reached[place]]
        if node == last:
            break
        size -= 1
        reached[place] = reached[size]
        for arc in range(links.start[node], links.start[node + 1]):
            link, head = links.link[arc], links.head[arc]
            if width[head] >= best:
                continue  # settled, or as well off as this node
            rate = min(best, links.bandwidth[link] / (bits + load[link]))
            if rate > width[head]:
                if width[head] == 0.0:
                    reached[size], size = head, size + 1
                width[head], tail[head], via[head] = rate, node, link


@kernel
def widest_path(links: Links, load: Floats, bits: float, source: int, target: int) -> tuple[float, Ints]:
    """Return the rate of the widest path and its links in the order of travel; no links if there is no path."""
    width, tail, via = widest_tree(links, load, bits, source, target)
    path = np.empty(links.nodes, dtype=np.int32)
    return width[target], path[: list_links(tail, via, source, target, path)]


@part
def list_links(tail: Ints, via: Ints, source: int, target: int, path: Ints) -> int:
    """List the links of a tree from its root to a node in the order of travel, and return their number.

    There are none if there is no path. `path` has room for one entry per node.
    """
    length, node = 0, target
    for _ in range(len(tail)):
        if node == source or via[node] < 0:
            break
        path[length] = via[node]
        length, node = length + 1, tail[node]
    if node != source:
        return 0
    for step in range(length // 2):
        path[step], path[length - 1 - step] = path[length - 1 - step], path[step]
    return length


@kernel
def fewest_links(links: Links, source: int) -> Floats:
    """Return the minimum number of links with bandwidth from a node to every node, infinite if there is no path. [V]"""
    steps = np.empty(links.nodes)
    count_links(links, source, steps, np.empty(links.nodes, dtype=np.int32))
    return steps


@part
def count_links(links: Links, source: int, steps: Floats, queue: Ints) -> None:
    """Set the minimum number of links with bandwidth from a node to every node; `queue` [V] is scratch space."""
    steps[:] = np.inf
    steps[source] = 0.0
    queue[0] = source
    known = 1
    for position in range(links.nodes):
        if position == known:
            break
        node = queue[position]
        for arc in range(links.start[node], links.start[node + 1]):
            head = links.head[arc]
            if links.bandwidth[links.link[arc]] > 0.0 and steps[head] == np.inf:
                steps[head] = steps[node] + 1.0
                queue[known] = head
                known += 1
