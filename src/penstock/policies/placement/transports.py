"""Traffic between tasks: the streams in array form, and the minimum traffic between tasks that are not neighbours.

SPARCLE's eq. (2) looks beyond neighbours: whatever lies between task i and a placed task i' that it can reach, at least
one transport of the graph G(i, i') between them has to cross from one machine to the other. Tasks of one component are
equivalent, so reachability and the smallest transport are computed between components, and the tasks of a component on
one machine count as one partner with a multiple of the bits; nothing here grows with the edges between tasks.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel, part
from penstock.model.routes import BITS
from penstock.model.taskgraph import FORWARD, Bools, Floats, Ints, Tasks


class Between(NamedTuple):
    """The graphs between components; C components."""

    bits: Floats  # [C, C] of the smallest transport from a task of one to a task of the other; infinite: no path
    aligned: Bools  # [C, C] every stream on the path is forward: task k reaches task k only


class Streams(NamedTuple):
    """The streams between components in array form; F of them, by ascending source."""

    source: Ints  # [F] component
    target: Ints  # [F]
    heard: Ints  # [F] SPREAD, FORWARD or GLOBAL
    number: Ints  # [F] position in the topology
    listed: Ints  # [F] the streams as the topology lists them
    share: Floats  # [F] tuples from a task to each task it sends to, per tuple processed
    tuple_bytes: Floats  # [F]


def streams_of(tasks: Tasks) -> Streams:
    """Return the streams of an application in array form."""
    whole = [(flow.source, flow.target, flow.heard, flow.stream) for flow in tasks.flows]
    sizes = [(flow.share, flow.tuple_bytes) for flow in tasks.flows]
    source, target, heard, number = np.ascontiguousarray(np.array(whole, dtype=np.int32).reshape(-1, 4).T)
    share, tuple_bytes = np.ascontiguousarray(np.array(sizes, dtype=np.float64).reshape(-1, 2).T)
    listed = np.empty(len(whole), dtype=np.int32)
    listed[number] = np.arange(len(whole))
    return Streams(source, target, heard, number, listed, share, tuple_bytes)


@kernel
def find_between(streams: Streams, first: Ints, gain: Floats, closed: Bools) -> Between:
    """Find the smallest transport between any two components.

    Paths lead to and from the components that are `closed` [C], not through them.
    """
    shape = len(closed), len(closed)
    between = Between(np.empty(shape), np.empty(shape, dtype=np.bool_))
    set_between(between, streams, first, gain, closed, np.empty(shape, dtype=np.bool_))
    return between


@part
def set_between(between: Between, streams: Streams, first: Ints, gain: Floats, closed: Bools, reached: Bools) -> None:
    """Set the smallest transport between any two components; `reached` [C, C] is scratch space."""
    components, bits, aligned = len(closed), between.bits, between.aligned
    bits[:], aligned[:], reached[:] = np.inf, True, False
    for component in range(components):
        reached[component, component] = True
    for flow in range(len(streams.source) - 1, -1, -1):  # everything downstream is known by then
        source, target = streams.source[flow], streams.target[flow]
        forward, least = streams.heard[flow] == FORWARD, pair_bits(streams, flow, first, gain)
        for beyond in range(components):
            if beyond == target or (reached[target, beyond] and not closed[target]):
                bits[source, beyond] = min(bits[source, beyond], bits[target, beyond], least)
                aligned[source, beyond] &= aligned[target, beyond] and forward
                reached[source, beyond] = True
    for component in range(components):
        for beyond in range(components):
            aligned[component, beyond] &= bits[component, beyond] < np.inf


@part
def pair_bits(streams: Streams, flow: int, first: Ints, gain: Floats) -> float:
    """Return the bits per source tuple from one task to one task over a stream, for its least busy sender."""
    least, most = np.inf, 0.0
    for sender in range(first[streams.source[flow]], first[streams.source[flow] + 1]):
        most = max(most, gain[sender])
        if gain[sender] > 0.0:
            least = min(least, gain[sender])
    return float(min(least, most) * streams.share[flow] * streams.tuple_bytes[flow] * BITS)
