"""Widest paths from many machines, cached while they are valid: the repeated query of SPARCLE's eq. (2).

Loads on links only grow while tasks are placed one after another. A link outside a tree of widest paths cannot enter it
by getting slower, so a tree is recomputed only after one of its own links has been charged.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel, lean, part, stage
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Bools, Floats, Ints


class Trees(NamedTuple):
    """Trees in array form; K of them, V nodes, M machines."""

    root: Ints  # [K]
    bits: Floats  # [K] per source tuple, of the transport to be routed
    towards: Bools  # [K] paths lead to the root, not from it
    users: Ints  # [K] number of users
    stale: Bools  # [K] a link of it has been charged since it was computed
    renewed: Bools  # [K] whether it was recomputed the last time
    width: Floats  # [K, V] rate of the widest path
    tail: Ints  # [K, V] next node on the path to the root, -1: none
    via: Ints  # [K, V] link to that node, -1: none
    following: Ints  # [K] another tree of the same root and direction, -1: none
    newest: Ints  # [2, M] the newest of them, by direction and root, -1: none
    filled: Ints  # [1] number of trees


@kernel
def no_trees(size: int, nodes: int, machines: int) -> Trees:
    """Allocate arrays for trees."""
    return Trees(
        np.zeros(size, dtype=np.int32),
        np.zeros(size),
        np.zeros(size, dtype=np.bool_),
        np.zeros(size, dtype=np.int32),
        np.zeros(size, dtype=np.bool_),
        np.zeros(size, dtype=np.bool_),
        np.empty((size, nodes)),
        np.empty((size, nodes), dtype=np.int32),
        np.empty((size, nodes), dtype=np.int32),
        np.full(size, -1, dtype=np.int32),
        np.full((2, machines), -1, dtype=np.int32),
        np.zeros(1, dtype=np.int32),
    )


@kernel
def with_room(trees: Trees, more: int) -> Trees:
    """Return trees with room for more."""
    size = trees.filled[0]
    if size + more <= len(trees.root):
        return trees
    grown = no_trees(2 * (size + more), trees.width.shape[1], trees.newest.shape[1])
    copy_trees(trees, grown)
    return grown


@stage
def copy_trees(trees: Trees, grown: Trees) -> None:
    """Copy trees to larger arrays."""
    grown.filled[0] = trees.filled[0]
    for direction in range(2):
        for root in range(trees.newest.shape[1]):
            grown.newest[direction, root] = trees.newest[direction, root]
    for tree in range(trees.filled[0]):
        grown.root[tree], grown.bits[tree], grown.towards[tree] = (
            trees.root[tree],
            trees.bits[tree],
            trees.towards[tree],
        )
        grown.users[tree], grown.stale[tree] = trees.users[tree], trees.stale[tree]
        grown.following[tree] = trees.following[tree]
        for node in range(trees.width.shape[1]):
            grown.width[tree, node], grown.tail[tree, node] = trees.width[tree, node], trees.tail[tree, node]
            grown.via[tree, node] = trees.via[tree, node]


@kernel
def reverse(links: Links) -> Links:
    """Return the same links with every arc reversed, so that a tree from a node has the best paths to it."""
    start = np.zeros(links.nodes + 1, dtype=np.int32)
    head, link = np.empty_like(links.head), np.empty_like(links.link)
    for arc in range(len(head)):
        start[links.head[arc] + 1] += 1
    for node in range(links.nodes):
        start[node + 1] += start[node]
    filled = start.copy()
    for node in range(links.nodes):
        for arc in range(links.start[node], links.start[node + 1]):
            place = filled[links.head[arc]]
            head[place], link[place] = node, links.link[arc]
            filled[links.head[arc]] += 1
    return Links(links.nodes, links.bandwidth, links.latency_ms, start, head, link)


@part
def use_tree(trees: Trees, towards: bool, root: int, bits: float) -> int:
    """Return the number of a tree for a new user; there must be room for another."""
    direction = 1 if towards else 0
    number = trees.newest[direction, root]
    for _ in range(trees.filled[0]):
        if number < 0 or trees.bits[number] == bits:
            break
        number = trees.following[number]
    if number < 0:
        number = trees.filled[0]
        trees.filled[0] += 1
        trees.root[number], trees.bits[number], trees.towards[number] = root, bits, towards
        trees.following[number], trees.newest[direction, root] = trees.newest[direction, root], number
    if trees.users[number] == 0:  # new, or not kept current while it had no user
        trees.stale[number] = True
    trees.users[number] += 1
    return int(number)


@part
def renew_trees(
    trees: Trees, charged: Bools, links: Links, back: Links, load: Floats, rates: Floats, nodes: NDArray[np.int32]
) -> None:
    """Recompute the used trees with a link that has been charged; `rates` and `nodes` are scratch space for a heap."""
    for tree in range(trees.filled[0]):
        trees.renewed[tree] = False
        if trees.users[tree] == 0:
            continue
        stale = trees.stale[tree]
        for node in range(links.nodes):
            if stale:
                break
            stale = trees.via[tree, node] >= 0 and charged[trees.via[tree, node]]
        if stale:
            arcs = back if trees.towards[tree] else links
            width, tail, via = trees.width[tree], trees.tail[tree], trees.via[tree]
            grow_tree(arcs, load, trees.bits[tree], int(trees.root[tree]), -1, width, tail, via, rates, nodes)
            trees.stale[tree], trees.renewed[tree] = False, True


@lean
def grow_tree(
    links: Links,
    load: Floats,
    bits: float,
    root: int,
    last: int,
    width: Floats,
    tail: Ints,
    via: Ints,
    rates: Floats,
    nodes: NDArray[np.int32],
) -> None:
    """Set the widest path between a root and every node: Algorithm 1 with a heap, for its widths.

    Nodes further than `last` are left out; -1: none is.
    `rates` and `nodes` are scratch space for a heap with one more entry than there are arcs.
    """
    width[:] = 0.0
    tail[:] = -1
    via[:] = -1
    width[root] = np.inf
    rates[0], nodes[0] = np.inf, root
    size = 1
    for _ in range(len(links.head) + 1):
        if size == 0 or nodes[0] == last:
            break
        best, node = rates[0], nodes[0]
        size -= 1
        sink(rates, nodes, size)
        if best < width[node]:
            continue  # a wider path to it was found after this one was put on the heap
        for arc in range(links.start[node], links.start[node + 1]):
            link, head = links.link[arc], links.head[arc]
            if width[head] >= best:
                continue  # no link could improve that
            rate = min(best, links.bandwidth[link] / (bits + load[link]))
            if rate > width[head]:
                width[head], tail[head], via[head] = rate, node, link
                rise(rates, nodes, size, rate, head)
                size += 1


@part
def rise(rates: Floats, nodes: NDArray[np.int32], size: int, rate: float, node: int) -> None:
    """Add an entry to a heap of `size` entries whose first has the highest rate."""
    place = size
    for _ in range(64):  # levels
        above = (place - 1) // 2
        if place == 0 or rates[above] >= rate:
            break
        rates[place], nodes[place] = rates[above], nodes[above]
        place = above
    rates[place], nodes[place] = rate, node


@part
def sink(rates: Floats, nodes: NDArray[np.int32], size: int) -> None:
    """Remove the first entry of a heap, of which `size` are left: the last one is moved to its new position."""
    rate, node = rates[size], nodes[size]
    place = 0
    for _ in range(64):  # levels
        below = 2 * place + 1
        if below + 1 < size and rates[below + 1] > rates[below]:
            below += 1
        if below >= size or rates[below] <= rate:
            break
        rates[place], nodes[place] = rates[below], nodes[below]
        place = below
    rates[place], nodes[place] = rate, node
