"""What a task exchanges with the tasks already placed: stream by stream, and at least, with those further off.

SPARCLE's eq. (2) looks beyond neighbours: whatever lies between task i and a placed task i' that it can reach, at least
one transport of the graph G(i, i') between them will cross from one machine to the other. Tasks of one component are
alike, so reachability and the smallest transport are worked out between components, and the tasks of a component
on one machine count as one partner with as many times the bits; nothing here grows with the edges between tasks.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.routes import BITS
from penstock.model.taskgraph import Bools, Floats, Flow, Ints, Tasks
from penstock.model.topology import Grouping
from penstock.policies.api import PlacementView

NO_PARTNER = -1
ALL_TASKS = -2


class Between(NamedTuple):
    """The graphs between components; C components."""

    bits: Floats  # [C, C] of the smallest transport from a task of one to a task of the other; infinite: no way
    aligned: Bools  # [C, C] every stream on the way is forward: task k reaches task k only


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


def smallest_between(tasks: Tasks, closed: Bools | None = None) -> Between:
    """Find between any two components the smallest transport on any way, as bits between a pair of tasks.

    No way leads through the components that are `closed` [C], only to and from them.
    """
    components = len(tasks.position)
    bits = np.full((components, components), np.inf)
    reached = np.eye(components, dtype=np.bool_)
    aligned = np.ones((components, components), dtype=np.bool_)
    for flow in sorted(tasks.flows, key=lambda flow: -flow.source):  # whatever is further down is known by then
        beyond = reached[flow.target]
        if closed is not None and closed[flow.target]:
            beyond = np.arange(components) == flow.target
        through = np.minimum(bits[flow.target], pair_bits(tasks, flow))
        bits[flow.source] = np.where(beyond, np.minimum(bits[flow.source], through), bits[flow.source])
        aligned[flow.source] &= ~beyond | (aligned[flow.target] & (flow.grouping is Grouping.FORWARD))
        reached[flow.source] |= beyond
    return Between(bits, aligned & np.isfinite(bits))


def pair_bits(tasks: Tasks, flow: Flow) -> float:
    """Return the bits a source tuple from one task to one task along a stream, of the least busy of its senders."""
    gain = tasks.gain[tasks.first[flow.source] : tasks.first[flow.source + 1]]
    return float(np.min(gain, where=gain > 0, initial=gain.max()) * flow.share * flow.tuple_bytes * BITS)
