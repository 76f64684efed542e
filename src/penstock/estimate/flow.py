"""TATA's estimate of throughput and delay: tuples flow until back-pressure has settled (TATA, Algorithm 1).

The algorithm as printed does not run; this is its working form. Repeat: every slot takes back what its tasks do not
use and shares what is free, the same rate to each; tuples flow down in topological order, every task passing on at
most what it may; back-pressure goes one hop up. It stops when the sinks' rate rises by less than a threshold. A task
divides its tuples evenly over all tasks downstream of it. Fast branches count what slow ones would have held back, and
delays are weighted as printed (line 29), by the sender's settled rate over the receiver's: weights that do not sum to
one where senders wait, so that the delay can exceed that of the longest path.

It is here for comparison with the paper. Planning asks `throughput`.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from penstock.estimate.flow_kernels import FlowNet, estimate_flows
from penstock.model.slotgraph import Slots
from penstock.model.taskgraph import SPREAD, Tasks, sum_by

UNLIMITED_TPS = 1e12  # the rate of a task that costs nothing


@dataclass(frozen=True, slots=True)
class FlowModel:
    """What limits a task, when to stop.

    task_cpu: the most cpu a task gets, in core-seconds a second (the authors' other file has 100 here).
    threshold: stop when the sinks' rate rises by less than this.
    """

    task_cpu: float = np.inf
    threshold: float = 0.01


TATA = FlowModel()


class FlowEstimate(NamedTuple):
    """What a placement gives."""

    throughput_tps: float  # source tuples a second
    delay_ms: float  # on the way from source to sink, without processing


def flow_net(tasks: Tasks, slots: Slots, model: FlowModel = TATA) -> FlowNet:
    """Gather what the kernels read of a topology and a cluster."""
    components = len(tasks.position)
    heard = np.array([flow.heard for flow in tasks.flows], dtype=np.int32)
    sender = np.array([flow.source for flow in tasks.flows], dtype=np.int32)
    target = np.array([flow.target for flow in tasks.flows], dtype=np.int32)
    receivers = np.where(heard == SPREAD, np.diff(tasks.first)[target], 1).astype(np.float64)
    share = 1.0 / sum_by(sender, receivers, components)[sender]
    sent = sum_by(sender, share * receivers, components)[sender]
    every_slot = sum_by(slots.machine, slots.cpu, slots.machines)
    crowded = every_slot > slots.machine_cpu * (1 + 1e-9)
    costs = tasks.cpu > 0
    return FlowNet(
        first=tasks.first.astype(np.uint64),
        start=np.concatenate([[0], np.cumsum(np.bincount(sender, minlength=components))]).astype(np.uint64),
        target=target.astype(np.uint64),
        heard=heard,
        receivers=receivers,
        share=share,
        weight=np.divide(share * receivers, sent, out=np.zeros(len(share)), where=sent > 0),
        source=tasks.source[tasks.first[:-1]],
        sink=tasks.sink[tasks.first[:-1]],
        even=~np.isin(np.arange(components), target[heard != SPREAD]),
        cpu=tasks.cpu,
        bonus=np.where(costs, 0.0, UNLIMITED_TPS),
        cap=np.where(costs, np.minimum(model.task_cpu / np.where(costs, tasks.cpu, 1.0), UNLIMITED_TPS), UNLIMITED_TPS),
        slot_cpu=slots.cpu,
        slot_machine=slots.machine.astype(np.uint64),
        slot_process=slots.process.astype(np.uint64),
        slot_host=slots.host.astype(np.uint64),
        machine_cpu=np.where(crowded, slots.machine_cpu, np.inf),
        crowded=bool(crowded.any()),
        delay_ms=slots.delay_ms,
        threshold=model.threshold,
    )


def estimate_flow(net: FlowNet, placed: ArrayLike) -> FlowEstimate:
    """Estimate one placement: a slot for every task."""
    throughput, delay = estimate_flows(net, np.asarray(placed, dtype=np.int32)[None, :])
    return FlowEstimate(float(throughput[0]), float(delay[0]))
