"""Delays hop by hop, for networks with a delay per hop: the plain form of the sums in the flow kernels."""

import numpy as np

from penstock.model.slotgraph import Slots
from penstock.model.taskgraph import Edges, Floats, Ints, Tasks


def slot_delays(slots: Slots, here: Ints, there: Ints) -> Floats:
    """Return the delay between pairs of slots, which depends on their distance."""
    same = [here == there, slots.process[here] == slots.process[there], slots.host[here] == slots.host[there]]
    return np.select(same, list(slots.delay_ms[:3]), slots.delay_ms[3])


def even_delay(tasks: Tasks, edges: Edges, edge_ms: Floats) -> float:
    """Return the mean delay from source to sink with evenly split streams, given the delay of every edge."""
    delay = np.zeros(tasks.number)
    sent = tasks.gain[edges.source] * edges.share
    for task in range(tasks.number):  # in ascending order every task follows its senders
        out = slice(edges.start[task], edges.start[task + 1])
        target = edges.target[out]
        weight = np.divide(sent[out], tasks.gain[target], out=np.zeros(len(target)), where=tasks.gain[target] > 0)
        np.add.at(delay, target, weight * (delay[task] + edge_ms[out]))
    at_sinks = tasks.gain[tasks.sink]
    return float(at_sinks @ delay[tasks.sink] / at_sinks.sum()) if at_sinks.sum() > 0 else 0.0
