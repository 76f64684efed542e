"""Affinity of a task to a place: the bytes it would exchange with the tasks already there.

A place is a machine, a process or any other group of slots. What two tasks exchange depends only on their components,
so nothing here stores the edges between tasks.
"""

import numpy as np

from penstock.model.taskgraph import Floats, Flow, Ints
from penstock.model.topology import Grouping
from penstock.policies.api import PlacementView


class Affinity:
    """Bytes per source tuple between a task and the tasks in each place; default: places are machines."""

    def __init__(self, view: PlacementView, places: int | None = None) -> None:
        components = len(view.tasks.position)
        self._tasks = view.tasks
        self._places = view.slots.machines if places is None else places
        self._place = np.full(view.tasks.number, self._places, dtype=np.int64)  # one past the last: in no place
        self._out: list[list[Flow]] = [[] for _ in range(components)]
        self._in: list[list[Flow]] = [[] for _ in range(components)]
        for flow in view.tasks.flows:
            self._out[flow.source].append(flow)
            self._in[flow.target].append(flow)

    def put(self, task: int, place: int) -> None:
        """Record the place of a task."""
        self._place[task] = place

    def pull(self, task: int) -> Floats:
        """Return what a task would exchange with the tasks in each place: [places]."""
        tasks, place = self._tasks, self._place
        component = int(tasks.component[task])
        number = task - int(tasks.first[component])
        bytes_to = np.zeros(self._places + 1)
        for flow in self._out[component]:
            a_pair = tasks.gain[task] * flow.share * flow.tuple_bytes
            first, last = tasks.first[flow.target], tasks.first[flow.target + 1]
            if flow.grouping is Grouping.FORWARD or flow.grouping is Grouping.GLOBAL:
                bytes_to[place[first + (number if flow.grouping is Grouping.FORWARD else 0)]] += a_pair
            else:
                np.add.at(bytes_to, place[first:last], a_pair)
        for flow in self._in[component]:
            a_tuple = flow.share * flow.tuple_bytes
            first, last = tasks.first[flow.source], tasks.first[flow.source + 1]
            if flow.grouping is Grouping.FORWARD:
                bytes_to[place[first + number]] += tasks.gain[first + number] * a_tuple
            elif flow.grouping is not Grouping.GLOBAL or number == 0:
                np.add.at(bytes_to, place[first:last], tasks.gain[first:last] * a_tuple)
        return bytes_to[:-1]


def task_traffic(view: PlacementView) -> Floats:
    """Return the bytes per source tuple that each task sends and receives. [T]"""
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


def busiest_first(view: PlacementView) -> Ints:
    """Return the tasks by descending traffic, ties by number, pinned tasks first."""
    return np.lexsort((-task_traffic(view), view.pins < 0)).astype(np.int32)
