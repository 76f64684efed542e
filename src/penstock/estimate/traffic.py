"""The traffic of a placement between machines and between processes, in bytes per source tuple."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from penstock.model.slotgraph import Slots
from penstock.model.taskgraph import FORWARD, Ints, Tasks, sum_by


class Traffic(NamedTuple):
    """Bytes per source tuple that leave a machine, a process, a task."""

    machines: float
    processes: float  # including those between machines
    total: float


def traffic(tasks: Tasks, slots: Slots, placed: ArrayLike) -> Traffic:
    """Return the traffic of a placement; time and memory grow with tasks and slots, not with edges."""
    slot = np.asarray(placed, dtype=np.int32)
    process = slots.process[slot]
    tasks = tasks.placed(process)
    total = _inside(tasks, np.zeros(tasks.number, dtype=np.int32), 1, process)
    machines = total - _inside(tasks, slots.machine[slot], slots.machines, process)
    processes = total - _inside(tasks, process, int(slots.process[-1]) + 1, process)
    return Traffic(max(machines, 0.0), max(processes, 0.0), total)


def _inside(tasks: Tasks, place: Ints, places: int, process: Ints) -> float:
    """Return the bytes per source tuple with sender and receiver in one place; places hold whole processes."""
    inside = 0.0
    for flow in tasks.flows:
        tuples, source, target = tasks.sent(flow, place)
        near = tasks.near(flow, process) > 0
        if flow.heard == FORWARD:
            both = float(tuples[source == target].sum())
        else:
            spread = np.where(near, 0.0, tuples)
            both = float(sum_by(source, spread, places) @ sum_by(target, np.ones(len(target)), places))
            both += float(tuples[near].sum()) * len(target)
        inside += both * flow.tuple_bytes
    return inside
