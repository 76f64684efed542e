"""A tree of clocks: the earliest of many events, when one of them changes at a time.

The leaves are times, and a node is the earlier of its two children. A change propagates from its leaf upwards until
nothing changes; the earliest event is found from the root downwards. Indices are unsigned, so that compiled code does
not check for negative ones.
"""

import numpy as np

from penstock.model.kernel import lean
from penstock.model.taskgraph import Floats


def new_clocks(leaves: int) -> Floats:
    """Return a tree with at least this number of leaves, all infinite. [2 leaves]"""
    return np.full(2 << max(1, (leaves - 1).bit_length()), np.inf)


@lean
def set_clock(clocks: Floats, leaf: int, time: float) -> None:
    """Set the time of a leaf."""
    node = (len(clocks) >> 1) + leaf
    clocks[np.uint32(node)] = time
    for _ in range(32):
        time = min(time, clocks[np.uint32(node ^ 1)])
        node >>= 1
        if node == 0 or clocks[np.uint32(node)] == time:
            break
        clocks[np.uint32(node)] = time


@lean
def first_clock(clocks: Floats) -> int:
    """Return the leaf with the earliest time; the lowest of equal ones."""
    size, node = len(clocks) >> 1, 1
    earliest = clocks[1]
    for _ in range(32):
        if node >= size:
            break
        node <<= 1
        if clocks[np.uint32(node)] != earliest:
            node += 1
    return node - size
