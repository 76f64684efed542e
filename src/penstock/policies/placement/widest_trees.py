"""Widest paths from many machines, kept for as long as they are right: what SPARCLE's eq. (2) asks again and again.

Loads on links only ever grow while tasks are placed one after another. A link that is not in a tree of widest paths
cannot get into it by growing worse, so a tree is made anew only after one of its own links has been charged.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Bools, Floats, Ints


class Kept(NamedTuple):
    """Trees in array form; K of them, V nodes."""

    root: Ints  # [K]
    bits: Floats  # [K] a source tuple, of the transport that looks for a way
    towards: Bools  # [K] the ways lead to the root, not from it
    users: Ints  # [K] how many want it
    stale: Bools  # [K] a link of it has been charged since it was made
    width: Floats  # [K, V] rate of the widest path
    tail: Ints  # [K, V] next node on the way to the root, -1: none
    via: Ints  # [K, V] link to that node, -1: none


class Trees:
    """Trees of widest paths over links whose loads grow."""

    def __init__(self, links: Links, back: Links, load: Floats) -> None:
        """Look at `load` [L], whoever changes it; `back` are the links with every arc turned round."""
        self._links, self._back, self._load = links, back, load
        self._numbers: dict[tuple[bool, int, float], int] = {}
        self._seen = load.copy()
        self.charged = load > 0  # between the last two refreshments
        self.kept = _empty(16, links.nodes)

    def take(self, towards: bool, root: int, bits: float) -> int:
        """Return the number of a tree that somebody wants from now on."""
        key = towards, root, bits
        number = self._numbers.setdefault(key, len(self._numbers))
        if number == len(self.kept.root):
            self._grow()
        if not self.kept.users[number]:  # new, or not kept up while nobody wanted it
            self.kept.root[number], self.kept.bits[number], self.kept.towards[number] = root, bits, towards
            self.kept.stale[number] = True
        self.kept.users[number] += 1
        return number

    def drop(self, number: int) -> None:
        """Note that somebody does not want a tree any more."""
        self.kept.users[number] -= 1

    def refresh(self) -> Bools:
        """Make anew all trees in use that are not right any more, and return which these were. [K]"""
        self.charged = self._load > self._seen
        self._seen = self._load.copy()
        return renew(self.kept, len(self._numbers), self.charged, self._links, self._back, self._load)

    def _grow(self) -> None:
        more = _empty(2 * len(self.kept.root), self._links.nodes)
        for name, old in self.kept._asdict().items():
            getattr(more, name)[: len(old)] = old
        self.kept = more


def _empty(size: int, nodes: int) -> Kept:
    return Kept(
        root=np.zeros(size, dtype=np.int32),
        bits=np.zeros(size),
        towards=np.zeros(size, dtype=np.bool_),
        users=np.zeros(size, dtype=np.int32),
        stale=np.zeros(size, dtype=np.bool_),
        width=np.zeros((size, nodes)),
        tail=np.full((size, nodes), -1, dtype=np.int32),
        via=np.full((size, nodes), -1, dtype=np.int32),
    )


@kernel
def renew(kept: Kept, number: int, charged: Bools, links: Links, back: Links, load: Floats) -> Bools:
    """Make anew the trees in use with a link that has been charged; return which."""
    renewed = np.zeros(len(kept.root), dtype=np.bool_)
    rates = np.empty(len(links.head) + 1)
    nodes = np.empty(len(links.head) + 1, dtype=np.int32)
    for tree in range(number):
        if kept.users[tree] == 0:
            continue
        stale = kept.stale[tree]
        for node in range(links.nodes):
            if stale:
                break
            stale = kept.via[tree, node] >= 0 and charged[kept.via[tree, node]]
        if stale:
            arcs = back if kept.towards[tree] else links
            width, tail, via = kept.width[tree], kept.tail[tree], kept.via[tree]
            grow_tree(arcs, load, kept.bits[tree], kept.root[tree], -1, width, tail, via, rates, nodes)
            kept.stale[tree] = False
            renewed[tree] = True
    return renewed


@kernel
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

    Nodes further off than `last` are left out; -1: none is.
    `rates` and `nodes` are room for a heap of as many entries as there are arcs, and one.
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
            continue  # a wider way to it was found after this one was put on the heap
        for arc in range(links.start[node], links.start[node + 1]):
            link, head = links.link[arc], links.head[arc]
            rate = min(best, links.bandwidth[link] / (bits + load[link]))
            if rate > width[head]:
                width[head], tail[head], via[head] = rate, node, link
                rise(rates, nodes, size, rate, head)
                size += 1


@kernel
def rise(rates: Floats, nodes: NDArray[np.int32], size: int, rate: float, node: int) -> None:
    """Put an entry on a heap of `size` entries whose first has the highest rate."""
    place = size
    for _ in range(64):  # levels
        above = (place - 1) // 2
        if place == 0 or rates[above] >= rate:
            break
        rates[place], nodes[place] = rates[above], nodes[above]
        place = above
    rates[place], nodes[place] = rate, node


@kernel
def sink(rates: Floats, nodes: NDArray[np.int32], size: int) -> None:
    """Take the first entry off a heap, of which `size` are left: the last one finds a new place."""
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
