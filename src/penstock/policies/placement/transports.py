"""What a task exchanges with the tasks already placed: stream by stream, and at least, with those further off.

SPARCLE's eq. (2) looks beyond neighbours: whatever lies between task i and a placed task i' that it can reach, at least
one transport of the graph G(i, i') between them will cross from one machine to the other. Tasks of one component are
alike, so reachability and the smallest transport are worked out between components, and the tasks of a component
on one machine count as one partner with as many times the bits; nothing here grows with the edges between tasks.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel, part
from penstock.model.routes import BITS
from penstock.model.taskgraph import FORWARD, Bools, Floats, Flow, Ints, Tasks
from penstock.model.topology import Grouping
from penstock.policies.api import PlacementView

NO_PARTNER = -1
ALL_TASKS = -2


class Between(NamedTuple):
    """The graphs between components; C components."""

    bits: Floats  # [C, C] of the smallest transport from a task of one to a task of the other; infinite: no way
    aligned: Bools  # [C, C] every stream on the way is forward: task k reaches task k only


class Streams(NamedTuple):
    """The streams between components in array form; F of them, by ascending source."""

    source: Ints  # [F] component
    target: Ints  # [F]
    heard: Ints  # [F] SPREAD, FORWARD or GLOBAL
    number: Ints  # [F] position in the topology
    listed: Ints  # [F] the streams as the topology lists them
    share: Floats  # [F] tuples from a task to each task it sends to, a tuple processed
    tuple_bytes: Floats  # [F]


class Reach(NamedTuple):
    """The placed tasks that a task can reach in one direction; C components, M machines."""

    bits: Floats  # [C] a source tuple, at least, to each reachable task of a component; 0: nothing
    partner: Ints  # [C] machine of the only task it reaches, NO_PARTNER if that is not placed, or ALL_TASKS
    tasks_on: Floats  # [C, M] placed tasks that take part


class Transports:
    """Bits a source tuple between a task and the tasks on each machine."""

    def __init__(self, view: PlacementView) -> None:
        tasks = view.tasks
        components = len(tasks.position)
        by_stream = sorted(tasks.flows, key=lambda flow: flow.stream)
        self._tasks = tasks
        self._machine = np.full(tasks.number, NO_PARTNER, dtype=np.int32)
        self.tasks_on = np.zeros((components, view.slots.machines))  # placed tasks that get tuples
        self._gain_on = np.zeros((components, view.slots.machines))
        self._out = [[flow for flow in by_stream if flow.source == c] for c in range(components)]
        self._in = [[flow for flow in by_stream if flow.target == c] for c in range(components)]
        self.between = smallest_between(tasks)
        finite = np.where(np.isfinite(self.between.bits), self.between.bits, 0.0)
        self._down, self._down_aligned = finite, self.between.aligned
        self._up, self._up_aligned = np.ascontiguousarray(finite.T), np.ascontiguousarray(self.between.aligned.T)

    def put(self, task: int, machine: int) -> None:
        """Note that a task is on a machine."""
        gain = self._tasks.gain[task]
        self._machine[task] = machine
        if gain > 0:  # a task that gets no tuples exchanges none
            self.tasks_on[self._tasks.component[task], machine] += 1
            self._gain_on[self._tasks.component[task], machine] += gain

    def sent(self, task: int) -> list[tuple[int, Floats]]:
        """Return for every stream that leaves a task its number and the bits to the tasks on every machine. [M]"""
        tasks = self._tasks
        found = []
        for flow in self._out[tasks.component[task]]:
            a_pair = tasks.gain[task] * flow.share * flow.tuple_bytes * BITS
            partner = self._only_receiver(flow, task)
            found.append((flow.stream, a_pair * (self.tasks_on[flow.target] if partner < 0 else self._at(partner))))
        return found

    def received(self, task: int) -> list[tuple[int, Floats]]:
        """Return for every stream that leads to a task its number and the bits from the tasks on every machine. [M]"""
        tasks = self._tasks
        found = []
        for flow in self._in[tasks.component[task]]:
            a_tuple = flow.share * flow.tuple_bytes * BITS
            number = task - int(tasks.first[flow.target])
            if flow.grouping is Grouping.FORWARD:
                partner = int(tasks.first[flow.source]) + number
                found.append((flow.stream, tasks.gain[partner] * a_tuple * self._at(partner)))
            elif flow.grouping is not Grouping.GLOBAL or number == 0:
                found.append((flow.stream, a_tuple * self._gain_on[flow.source]))
        return found

    def downstream(self, task: int) -> Reach:
        """Return the placed tasks that a task sends to, directly or through others."""
        return self._reach(task, self._down, self._down_aligned)

    def upstream(self, task: int) -> Reach:
        """Return the placed tasks that send to a task, directly or through others."""
        return self._reach(task, self._up, self._up_aligned)

    def _reach(self, task: int, bits: Floats, aligned: Bools) -> Reach:
        tasks = self._tasks
        component = tasks.component[task]
        same_number = np.minimum(tasks.first[:-1] + (task - tasks.first[component]), tasks.number - 1)
        partner = np.where(aligned[component], self._machine[same_number], np.int32(ALL_TASKS))
        return Reach(bits[component] * (tasks.gain[task] > 0), partner, self.tasks_on)

    def _only_receiver(self, flow: Flow, task: int) -> int:
        if flow.grouping is Grouping.FORWARD:
            return int(self._tasks.first[flow.target] + task - self._tasks.first[flow.source])
        return int(self._tasks.first[flow.target]) if flow.grouping is Grouping.GLOBAL else NO_PARTNER

    def _at(self, task: int) -> Floats:
        where = np.zeros(self.tasks_on.shape[1])
        if self._machine[task] >= 0:
            where[self._machine[task]] = 1.0
        return where


def streams_of(tasks: Tasks) -> Streams:
    """Return the streams of an application in array form."""
    whole = [(flow.source, flow.target, flow.heard, flow.stream) for flow in tasks.flows]
    sizes = [(flow.share, flow.tuple_bytes) for flow in tasks.flows]
    source, target, heard, number = np.ascontiguousarray(np.array(whole, dtype=np.int32).reshape(-1, 4).T)
    share, tuple_bytes = np.ascontiguousarray(np.array(sizes, dtype=np.float64).reshape(-1, 2).T)
    listed = np.empty(len(whole), dtype=np.int32)
    listed[number] = np.arange(len(whole))
    return Streams(source, target, heard, number, listed, share, tuple_bytes)


def smallest_between(tasks: Tasks) -> Between:
    """Find between any two components the smallest transport on any way, as bits between a pair of tasks."""
    return find_between(streams_of(tasks), tasks.first, tasks.gain, np.zeros(len(tasks.position), dtype=np.bool_))


@kernel
def find_between(streams: Streams, first: Ints, gain: Floats, closed: Bools) -> Between:
    """Find the smallest transport between any two components.

    No way leads through the components that are `closed` [C], only to and from them.
    """
    shape = len(closed), len(closed)
    between = Between(np.empty(shape), np.empty(shape, dtype=np.bool_))
    set_between(between, streams, first, gain, closed, np.empty(shape, dtype=np.bool_))
    return between


@part
def set_between(between: Between, streams: Streams, first: Ints, gain: Floats, closed: Bools, reached: Bools) -> None:
    """Set the smallest transport between any two components; `reached` [C, C] is room to note who reaches whom."""
    components, bits, aligned = len(closed), between.bits, between.aligned
    bits[:], aligned[:], reached[:] = np.inf, True, False
    for component in range(components):
        reached[component, component] = True
    for flow in range(len(streams.source) - 1, -1, -1):  # whatever is further down is known by then
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
    """Return the bits a source tuple from one task to one task along a stream, of the least busy of its senders."""
    least, most = np.inf, 0.0
    for sender in range(first[streams.source[flow]], first[streams.source[flow] + 1]):
        most = max(most, gain[sender])
        if gain[sender] > 0.0:
            least = min(least, gain[sender])
    return float(min(least, most) * streams.share[flow] * streams.tuple_bytes[flow] * BITS)
