"""How strongly a task is drawn to each machine by the tasks already there: the bytes they would exchange.

Tasks of one component are alike, so it is enough to know how many of each component are on each machine; nothing here
grows with the number of edges between tasks.
"""

import numpy as np

from penstock.model.taskgraph import Floats
from penstock.model.topology import Grouping
from penstock.policies.api import PlacementView


class Affinity:
    """Bytes a source tuple between a task and the tasks placed on each machine."""

    def __init__(self, view: PlacementView) -> None:
        components = len(view.tasks.position)
        self._view = view
        self._machine = np.full(view.tasks.number, -1, dtype=np.int64)
        self._tasks_on = np.zeros((components, view.slots.machines))  # how many of a component
        self._gain_on = np.zeros((components, view.slots.machines))  # what those process a source tuple
        self._out = [[flow for flow in view.tasks.flows if flow.source == c] for c in range(components)]
        self._in = [[flow for flow in view.tasks.flows if flow.target == c] for c in range(components)]

    def put(self, task: int, machine: int) -> None:
        """Note that a task is on a machine."""
        component = self._view.tasks.component[task]
        self._machine[task] = machine
        self._tasks_on[component, machine] += 1
        self._gain_on[component, machine] += self._view.tasks.gain[task]

    def pull(self, task: int) -> Floats:
        """Return what a task would exchange with the tasks on every machine. [M]"""
        tasks = self._view.tasks
        component = int(tasks.component[task])
        number = task - int(tasks.first[component])
        bytes_to = np.zeros(self._view.slots.machines)
        for flow in self._out[component]:
            a_pair = tasks.gain[task] * flow.share * flow.tuple_bytes
            if flow.grouping is Grouping.FORWARD or flow.grouping is Grouping.GLOBAL:
                partner = int(tasks.first[flow.target]) + (number if flow.grouping is Grouping.FORWARD else 0)
                self._add(bytes_to, partner, a_pair)
            else:
                bytes_to += a_pair * self._tasks_on[flow.target]
        for flow in self._in[component]:
            a_tuple = flow.share * flow.tuple_bytes
            if flow.grouping is Grouping.FORWARD:
                partner = int(tasks.first[flow.source]) + number
                self._add(bytes_to, partner, tasks.gain[partner] * a_tuple)
            elif flow.grouping is not Grouping.GLOBAL or number == 0:
                bytes_to += a_tuple * self._gain_on[flow.source]
        return bytes_to

    def _add(self, bytes_to: Floats, partner: int, amount: float) -> None:
        if self._machine[partner] >= 0:
            bytes_to[self._machine[partner]] += amount


def task_traffic(view: PlacementView) -> Floats:
    """Return the bytes a source tuple that each task sends and receives. [T]"""
    tasks = view.tasks
    amount = np.zeros(tasks.number)
    for flow in tasks.flows:
        sender, receiver = tasks.of(flow.source), tasks.of(flow.target)
        a_tuple = tasks.gain[sender.start : sender.stop] * flow.share * flow.tuple_bytes
        fan_out = 1 if flow.grouping in (Grouping.FORWARD, Grouping.GLOBAL) else len(receiver)
        amount[sender.start : sender.stop] += a_tuple * fan_out
        if flow.grouping is Grouping.FORWARD:
            amount[receiver.start : receiver.stop] += a_tuple
        elif flow.grouping is Grouping.GLOBAL:
            amount[receiver.start] += a_tuple.sum()
        else:
            amount[receiver.start : receiver.stop] += a_tuple.sum()
    return amount
