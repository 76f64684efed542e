"""The outcome of a simulation: response times, costs, backlogs, fairness, queueing times."""

from typing import NamedTuple

import numpy as np

from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.sim.slotted.state import DONE, DUE, NONE, REAL, SlotCounts


class SlotSeries(NamedTuple):
    """One value per slot, including the warm-up. [S] each"""

    cost: Floats  # Θ(t)
    backlog: Floats  # h(t)
    longest: Longs  # maximum length of an out-queue at the end of the slot
    fairness: Floats  # Jain's index of the lengths of out-queues; NaN if all are empty


class SlottedResult(NamedTuple):
    """Means over the slots after the warm-up, and over the tuples that arrived in them.

    A tuple's response time is the number of slots from its arrival until everything that follows from it was served; 0
    if it was served before it arrived. A tuple that is unfinished at the end counts with its age.
    """

    response: float  # slots
    response_p99: float
    response_max: float
    tuples: int  # that arrived
    unfinished: int  # of these
    cost: float  # Θ, per slot
    backlog: float  # h, mean
    queued_in: float  # mean
    queued_out: float  # mean
    longest: int  # maximum length of an out-queue
    fairness: float  # mean of Jain's index over slots in which a tuple waited
    queueing: float  # mean slots per tuple in an out-queue, over all slots
    hops: int  # tuples served, over all slots
    dropped: int  # predicted, never sent and never arrived, over all slots
    responses: Longs  # [tuples] each, in order of task and arrival
    series: SlotSeries


def measure(arrived: Longs, roots: Longs, counts: SlotCounts, warm_up: int, beta: float) -> SlottedResult:
    """Summarise a simulation."""
    slots = arrived.shape[1]
    due, done = roots[:, DUE], roots[:, DONE]
    counted = (roots[:, REAL] != 0) & (due >= warm_up)
    finished = done != NONE
    responses = np.maximum(0, np.where(finished, done, slots) - due)[counted]
    after = slice(warm_up, slots)
    backlog = counts.queued_in + beta * counts.queued_out  # (12)
    fairness = counts.fairness[after]
    waited = fairness[~np.isnan(fairness)]
    return SlottedResult(
        response=float(responses.mean()) if len(responses) else 0.0,
        response_p99=float(np.percentile(responses, 99)) if len(responses) else 0.0,
        response_max=float(responses.max(initial=0)),
        tuples=len(responses),
        unfinished=int((~finished[counted]).sum()),
        cost=float(counts.cost[after].mean()),
        backlog=float(backlog[after].mean()),
        queued_in=float(counts.queued_in[after].mean()),
        queued_out=float(counts.queued_out[after].mean()),
        longest=int(counts.longest[after].max(initial=0)),
        fairness=float(waited.mean()) if len(waited) else 1.0,
        queueing=float(counts.waited.sum() / max(1, counts.left.sum())),
        hops=int(counts.hops[0]),
        dropped=int(counts.dropped[0]),
        responses=responses,
        series=SlotSeries(counts.cost, backlog, counts.longest, counts.fairness),
    )
