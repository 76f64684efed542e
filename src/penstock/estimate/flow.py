"""Throughput and delay of a placement by letting tuples flow until back-pressure has settled (TATA, Algorithm 1).

The algorithm as printed does not run; this is its working form. Repeat: every slot takes back what its tasks do not
use and shares what is free, the same rate to each; tuples flow down in topological order, every task passing on at
most what it may; back-pressure goes one hop up. It stops when the sinks' rate rises by less than a threshold.

`FlowModel` holds what the paper leaves open or fixes otherwise than an operator would; `TATA` is the paper's reading,
`PLANNING` the one that `penstock plan` uses.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.model.kernel import kernel
from penstock.model.slotgraph import Slots
from penstock.model.taskgraph import Bools, Edges, Floats, Ints, Tasks

UNLIMITED_TPS = 1e12  # the rate of a task that costs nothing
MAX_ROUNDS = 10_000


@dataclass(frozen=True, slots=True)
class FlowModel:
    """How streams fork, what limits a task, when to stop, how delays are averaged.

    copy: a fork copies every tuple to each of its streams, which carry `selectivity` tuples each and wait for the
        slowest; otherwise a task divides its tuples evenly over all tasks downstream of it, as in the paper.
    task_cpu: the most cpu a task gets, in core-seconds a second (the authors' other file has 100 here).
    threshold: stop when the sinks' rate rises by less than this, or than this share of itself if `relative`.
    published_delay: weight each incoming edge by the sender's settled rate over the receiver's, as printed (line 29).
        Where a slow task makes its senders wait, those weights do not sum to one, and the delay can exceed that of
        the longest path. Otherwise edges are weighted by the tuples that they carry.
    """

    copy: bool = True
    task_cpu: float = np.inf
    threshold: float = 1e-4
    relative: bool = True
    published_delay: bool = False


PLANNING = FlowModel()
TATA = FlowModel(copy=False, threshold=0.01, relative=False, published_delay=True)


class FlowNet(NamedTuple):
    """What the kernels read; T tasks, E edges by sender, S slots, M machines."""

    cpu: Floats  # [T] core-seconds a tuple
    source: Bools  # [T]
    sink: Bools  # [T]
    start: Ints  # [T + 1]
    target: Ints  # [E]
    share: Floats  # [E] tuples sent a tuple processed
    stream: Ints  # [E] edges of one sender and stream are neighbours
    slot_cpu: Floats  # [S]
    slot_machine: Ints  # [S]
    slot_process: Ints  # [S]
    slot_host: Ints  # [S]
    machine_cpu: Floats  # [M] infinite where its slots cannot use more than its cores
    delay_ms: Floats  # [4]
    source_tuples: float  # source tuples a tuple that reaches a sink
    task_cpu: float
    copy: bool
    threshold: float
    relative: bool
    published_delay: bool


class FlowEstimate(NamedTuple):
    """What a placement gives."""

    throughput_tps: float  # source tuples a second
    delay_ms: float  # on the way from source to sink, without processing


def flow_net(tasks: Tasks, edges: Edges, slots: Slots, model: FlowModel = PLANNING) -> FlowNet:
    """Gather what the kernels read of a topology and a cluster."""
    degree = np.diff(edges.start)
    every_slot = np.bincount(slots.machine, slots.cpu)
    at_sinks = float(tasks.gain[tasks.sink].sum()) if model.copy else 1.0
    return FlowNet(
        cpu=tasks.cpu,
        source=tasks.source,
        sink=tasks.sink,
        start=edges.start,
        target=edges.target,
        share=edges.share if model.copy else 1.0 / np.repeat(degree, degree),
        stream=edges.stream,
        slot_cpu=slots.cpu,
        slot_machine=slots.machine,
        slot_process=slots.process,
        slot_host=slots.host,
        machine_cpu=np.where(every_slot <= slots.machine_cpu, np.inf, slots.machine_cpu),
        delay_ms=slots.delay_ms,
        source_tuples=1.0 / at_sinks if at_sinks > 0 else 0.0,
        task_cpu=model.task_cpu,
        copy=model.copy,
        threshold=model.threshold,
        relative=model.relative,
        published_delay=model.published_delay,
    )


def estimate_flow(net: FlowNet, placed: ArrayLike) -> FlowEstimate:
    """Estimate one placement: a slot for every task."""
    throughput, delay = estimate_flows(net, np.asarray(placed, dtype=np.int32)[None, :])
    return FlowEstimate(float(throughput[0]), float(delay[0]))


@kernel
def estimate_flows(net: FlowNet, placed: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """Estimate many placements at once: `placed` is [B, T]; the results are tuples a second and ms, each [B]."""
    throughput = np.empty(len(placed))
    delay = np.empty(len(placed))
    for row in range(len(placed)):
        at_sinks, offered, settled, inflow = settle(net, placed[row])
        throughput[row] = at_sinks * net.source_tuples
        if net.source_tuples == 0.0:  # nothing reaches a sink: count what leaves the sources
            for task in range(len(settled)):
                if net.source[task]:
                    throughput[row] += settled[task]
        delay[row] = mean_delay(net, offered, settled, inflow, level_delays(net, placed[row]))
    return throughput, delay


@kernel
def settle(net: FlowNet, placed: NDArray[np.int32]) -> tuple[float, Floats, Floats, Floats]:
    """Let tuples flow until the sinks' rate no longer rises.

    Returns that rate, and for every task its rate before and after the last round of back-pressure and its inflow.
    """
    tasks = len(net.cpu)
    offered = np.zeros(tasks)
    current = np.zeros(tasks)
    inflow = np.zeros(tasks)
    slot_need, machine_need = _needs(net, placed)
    at_sinks = 0.0
    for _ in range(MAX_ROUNDS):
        limit = _share_out(net, placed, current, slot_need, machine_need)
        inflow[:] = 0.0
        total = 0.0
        for task in range(tasks):
            offered[task] = limit[task] if net.source[task] else min(limit[task], inflow[task])
            if net.sink[task]:
                total += offered[task]
            for edge in range(net.start[task], net.start[task + 1]):
                inflow[net.target[edge]] += offered[task] * net.share[edge]
        for task in range(tasks):
            current[task] = offered[task] if net.sink[task] else offered[task] * _accepted(net, task, offered, inflow)
        rise, at_sinks = total - at_sinks, total
        if rise < (net.threshold * total if net.relative else net.threshold):
            break
    return at_sinks, offered, current, inflow


@kernel
def _needs(net: FlowNet, placed: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """Return the cost of one tuple of every task, added up by slot and by machine."""
    slot_need = np.zeros(len(net.slot_cpu))
    machine_need = np.zeros(len(net.machine_cpu))
    for task in range(len(net.cpu)):
        slot_need[placed[task]] += net.cpu[task]
        machine_need[net.slot_machine[placed[task]]] += net.cpu[task]
    return slot_need, machine_need


@kernel
def _share_out(
    net: FlowNet, placed: NDArray[np.int32], current: Floats, slot_need: Floats, machine_need: Floats
) -> Floats:
    """Return the rate that every task may reach: what it uses, and an equal part of what its slot has free.

    A slot has free what neither it nor its machine has used: its machine's other slots may have taken the cores.
    """
    slot_free = net.slot_cpu.copy()
    machine_free = net.machine_cpu.copy()
    for task in range(len(current)):
        slot_free[placed[task]] -= current[task] * net.cpu[task]
        machine_free[net.slot_machine[placed[task]]] -= current[task] * net.cpu[task]
    limit = np.empty(len(current))
    for task in range(len(current)):
        slot = placed[task]
        machine = net.slot_machine[slot]
        if net.cpu[task] == 0.0:
            limit[task] = UNLIMITED_TPS
        else:
            gain = min(slot_free[slot] / slot_need[slot], machine_free[machine] / machine_need[machine])
            limit[task] = min(current[task] + max(gain, 0.0), net.task_cpu / net.cpu[task])
    return limit


@kernel
def _accepted(net: FlowNet, task: int, offered: Floats, inflow: Floats) -> float:
    """Return the share of a task's output that its receivers take: of all edges, if copied of the slowest stream."""
    worst = 1.0
    taken = 0.0
    sent = 0.0
    for edge in range(net.start[task], net.start[task + 1]):
        if net.copy and edge > net.start[task] and net.stream[edge] != net.stream[edge - 1]:
            worst = min(worst, taken / sent if sent > 0.0 else 1.0)
            taken, sent = 0.0, 0.0
        target = net.target[edge]
        sent += net.share[edge]
        taken += net.share[edge] * (offered[target] / inflow[target] if inflow[target] > 0.0 else 1.0)
    return min(worst, taken / sent if sent > 0.0 else 1.0)


@kernel
def level_delays(net: FlowNet, placed: NDArray[np.int32]) -> Floats:
    """Return the delay of every edge by how far apart its two slots are."""
    delay = np.empty(len(net.target))
    for task in range(len(net.cpu)):
        here = placed[task]
        for edge in range(net.start[task], net.start[task + 1]):
            there = placed[net.target[edge]]
            if here == there:
                delay[edge] = net.delay_ms[0]
            elif net.slot_process[here] == net.slot_process[there]:
                delay[edge] = net.delay_ms[1]
            elif net.slot_host[here] == net.slot_host[there]:
                delay[edge] = net.delay_ms[2]
            else:
                delay[edge] = net.delay_ms[3]
    return delay


@kernel
def mean_delay(net: FlowNet, offered: Floats, settled: Floats, inflow: Floats, edge_ms: Floats) -> float:
    """Return the mean delay from source to sink over all paths, each weighted by the tuples that take it (line 29)."""
    tasks = len(net.cpu)
    delay = np.zeros(tasks)
    at_sinks = 0.0
    weighted = 0.0
    for task in range(tasks):
        if net.sink[task]:
            at_sinks += settled[task]
            weighted += settled[task] * delay[task]
        for edge in range(net.start[task], net.start[task + 1]):
            target = net.target[edge]
            sent = (settled[task] if net.published_delay else offered[task]) * net.share[edge]
            received = settled[target] if net.published_delay else inflow[target]
            if received > 0.0:
                delay[target] += sent * (delay[task] + edge_ms[edge]) / received
    return weighted / at_sinks if at_sinks > 0.0 else 0.0
