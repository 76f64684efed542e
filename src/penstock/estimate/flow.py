"""TATA's estimate of throughput and delay: tuples flow until back-pressure has settled (TATA, Algorithm 1).

The algorithm as printed does not run; this is its working form. Each round has three steps. Every slot reclaims the cpu
that its tasks do not use, and divides its free cpu among them at equal rates. Tuples flow downstream in topological
order, and every task passes on at most its limit. Back-pressure propagates one hop upstream. The rounds end when the
sinks' rate rises by less than a threshold.

A task divides its tuples evenly among all tasks downstream of it. Fast branches count tuples that slow ones would have
held back. Delays are weighted as printed (line 29), by the sender's settled rate over the receiver's. If senders wait,
these weights do not sum to one, and the delay can exceed that of the longest path.

This module serves for comparison with the paper. Planning uses `saturation`.
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
    """The limit of a task, and the stopping criterion.

    task_cpu: the maximum cpu of a task, in core-seconds per second (100 in the authors' other file).
    threshold: the rounds end when the sinks' rate rises by less than this.
    """

    task_cpu: float = np.inf
    threshold: float = 0.01


TATA = FlowModel()


class FlowEstimate(NamedTuple):
    """The estimate for a placement."""

    throughput_tps: float  # source tuples per second
    delay_ms: float  # from source to sink, without processing


def flow_net(tasks: Tasks, slots: Slots, model: FlowModel = TATA) -> FlowNet:
    """Build the input of the kernels from a topology and a cluster."""
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
    """Estimate one placement, given the slot of every task."""
    throughput, delay = estimate_flows(net, np.asarray(placed, dtype=np.int32)[None, :])
    return FlowEstimate(float(throughput[0]), float(delay[0]))
