"""How much a placement sends between machines and between processes, in bytes a source tuple."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from penstock.model.slotgraph import Slots
from penstock.model.taskgraph import Ints, Tasks
from penstock.model.topology import Grouping


class Traffic(NamedTuple):
    """Bytes a source tuple that leave a machine, a process, a task."""

    machines: float
    processes: float  # between machines included
    total: float


def traffic(tasks: Tasks, slots: Slots, placed: ArrayLike) -> Traffic:
    """Return what a placement sends; time and memory grow with tasks and slots, not with edges."""
    slot = np.asarray(placed, dtype=np.int32)
    total = _inside(tasks, np.zeros(tasks.number, dtype=np.int32), 1)
    machines = total - _inside(tasks, slots.machine[slot], slots.machines)
    processes = total - _inside(tasks, slots.process[slot], int(slots.process[-1]) + 1)
    return Traffic(max(machines, 0.0), max(processes, 0.0), total)


def _inside(tasks: Tasks, place: Ints, places: int) -> float:
    """Return the bytes a source tuple whose sender and receiver are in one place."""
    inside = 0.0
    for flow in tasks.flows:
        sender, receiver = tasks.of(flow.source), tasks.of(flow.target)
        sent = tasks.gain[sender.start : sender.stop] * flow.share * flow.tuple_bytes
        source, target = place[sender.start : sender.stop], place[receiver.start : receiver.stop]
        match flow.grouping:
            case Grouping.FORWARD:
                inside += float(sent[source == target].sum())
            case Grouping.GLOBAL:
                inside += float(sent[source == target[0]].sum())
            case _:
                inside += float(np.bincount(source, sent, places) @ np.bincount(target, minlength=places))
    return inside
