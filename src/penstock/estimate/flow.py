"""Throughput and delay of a placement by letting tuples flow until back-pressure has settled (TATA, Algorithm 1).

The algorithm as printed does not run; this is its working form. Repeat: every slot takes back what its tasks do not
use and shares what is free, the same rate to each; tuples flow down in topological order, every task passing on at
most what it may; back-pressure goes up. It stops when the sinks' rate rises by less than a threshold.

`FlowModel` holds what the paper leaves open or fixes otherwise than an operator would: `TATA` is the paper's reading,
`PLANNING` the one that `penstock plan` uses.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from penstock.model.kernel import kernel
from penstock.model.slotgraph import Slots
from penstock.model.taskgraph import Bools, Edges, Floats, Ints, Tasks
from penstock.model.topology import Grouping

UNLIMITED_TPS = 1e12  # the rate of a task that costs nothing
MAX_ROUNDS = 10_000
RIGID = (Grouping.FIELDS, Grouping.ALL, Grouping.DIRECT)  # a tuple's receiver is not the sender's to choose


@dataclass(frozen=True, slots=True)
class FlowModel:
    """How streams fork, what limits a task, how far back-pressure reaches, when to stop.

    copy: a fork copies every tuple to each of its streams, which carry `selectivity` tuples each and wait for the
        slowest; otherwise a task divides its tuples evenly over all tasks downstream of it, as in the paper.
    sustained: back-pressure reaches the sources within a round, keyed streams wait for their slowest receiver, and only
        what is then still sent counts. Otherwise it goes one hop a round and fast branches count what slow ones would
        have held back, as in the paper; and delays are weighted as printed (line 29), by the sender's settled rate over
        the receiver's: weights that do not sum to one where senders wait, so that the delay can exceed that of the
        longest path.
    task_cpu: the most cpu a task gets, in core-seconds a second (the authors' other file has 100 here).
    threshold: stop when the sinks' rate rises by less than this, or than this share of itself if `relative`.
    """

    copy: bool = True
    sustained: bool = True
    task_cpu: float = np.inf
    threshold: float = 1e-4
    relative: bool = True


PLANNING = FlowModel()
TATA = FlowModel(copy=False, sustained=False, threshold=0.01, relative=False)


class FlowNet(NamedTuple):
    """What the kernels read; T tasks, E edges by sender, S slots, M machines."""

    cpu: Floats  # [T] core-seconds a tuple
    source: Bools  # [T]
    sink: Bools  # [T]
    start: Ints  # [T + 1]
    target: Ints  # [E]
    share: Floats  # [E] tuples sent a tuple processed
    stream: Ints  # [E] edges of one sender and stream are neighbours
    rigid: Bools  # [E] whether the sender cannot give another receiver what this one does not take
    slot_cpu: Floats  # [S]
    slot_machine: Ints  # [S]
    slot_process: Ints  # [S]
    slot_host: Ints  # [S]
    machine_cpu: Floats  # [M] infinite where its slots cannot use more than its cores
    delay_ms: Floats  # [4]
    source_tuples: float  # source tuples a tuple that reaches a sink
    task_cpu: float
    copy: bool
    sustained: bool
    threshold: float
    relative: bool


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
        rigid=np.isin(
            edges.stream, [flow.stream for flow in tasks.flows if model.sustained and flow.grouping in RIGID]
        ),
        slot_cpu=slots.cpu,
        slot_machine=slots.machine,
        slot_process=slots.process,
        slot_host=slots.host,
        machine_cpu=np.where(every_slot <= slots.machine_cpu, np.inf, slots.machine_cpu),
        delay_ms=slots.delay_ms,
        source_tuples=1.0 / at_sinks if at_sinks > 0 else 0.0,
        task_cpu=model.task_cpu,
        copy=model.copy,
        sustained=model.sustained,
        threshold=model.threshold,
        relative=model.relative,
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
    rate, received = np.empty(len(net.cpu)), np.empty(len(net.cpu))
    sent, edge_ms = np.empty(len(net.target)), np.empty(len(net.target))
    for row in range(len(placed)):
        throughput[row] = settle(net, placed[row], rate, received, sent) * net.source_tuples
        if net.source_tuples == 0.0:  # nothing reaches a sink: count what leaves the sources
            for task in range(len(rate)):
                if net.source[task]:
                    throughput[row] += rate[task]
        level_delays(net, placed[row], edge_ms)
        delay[row] = mean_delay(net, rate, received, sent, edge_ms)
    return throughput, delay


@kernel
def settle(net: FlowNet, placed: NDArray[np.int32], rate: Floats, received: Floats, sent: Floats) -> float:
    """Let tuples flow until the sinks' rate no longer rises, and return that rate.

    Fills in every task's rate [T], what it receives [T] and what every edge carries [E], after back-pressure.
    """
    tasks = len(net.cpu)
    limit, inflow, taken = np.zeros(tasks), np.zeros(tasks), np.ones(tasks)
    slot_need, machine_need = _needs(net.cpu, net.slot_machine, placed, len(net.slot_cpu), len(net.machine_cpu))
    slot_free, machine_free = np.empty(len(net.slot_cpu)), np.empty(len(net.machine_cpu))
    rate[:] = 0.0
    at_sinks = 0.0
    for _ in range(MAX_ROUNDS):
        slot_free[:] = net.slot_cpu
        machine_free[:] = net.machine_cpu
        _share_out(net, placed, rate, slot_need, machine_need, slot_free, machine_free, limit)
        total = _flow_down(net, limit, rate, inflow)
        _push_back(net, inflow, taken, rate)
        if net.sustained:
            total = _flow_again(net, taken, rate, received, sent)
        rise, at_sinks = total - at_sinks, total
        if rise < (net.threshold * total if net.relative else net.threshold):
            break
    if not net.sustained:
        _as_printed(net, rate, received, sent)
    return at_sinks


@kernel
def _needs(
    cpu: Floats, slot_machine: Ints, placed: NDArray[np.int32], slots: int, machines: int
) -> tuple[Floats, Floats]:
    """Return the cost of one tuple of every task, added up by slot and by machine."""
    slot_need = np.zeros(slots)
    machine_need = np.zeros(machines)
    for task in range(len(cpu)):
        slot_need[placed[task]] += cpu[task]
        machine_need[slot_machine[placed[task]]] += cpu[task]
    return slot_need, machine_need


@kernel
def _share_out(
    net: FlowNet,
    placed: NDArray[np.int32],
    used: Floats,
    slot_need: Floats,
    machine_need: Floats,
    slot_free: Floats,
    machine_free: Floats,
    limit: Floats,
) -> None:
    """Set the rate that every task may reach: what it uses, and an equal part of what its slot has free.

    A slot has free what neither it nor its machine has used: its machine's other slots may have taken the cores.
    """
    for task in range(len(used)):
        slot_free[placed[task]] -= used[task] * net.cpu[task]
        machine_free[net.slot_machine[placed[task]]] -= used[task] * net.cpu[task]
    for task in range(len(used)):
        if net.cpu[task] == 0.0:
            limit[task] = UNLIMITED_TPS
        else:
            slot = placed[task]
            machine = net.slot_machine[slot]
            gain = min(slot_free[slot] / slot_need[slot], machine_free[machine] / machine_need[machine])
            limit[task] = min(used[task] + max(gain, 0.0), net.task_cpu / net.cpu[task])


@kernel
def _flow_down(net: FlowNet, limit: Floats, rate: Floats, inflow: Floats) -> float:
    """Let tuples flow from the sources, every task passing on what it may; return what reaches the sinks."""
    inflow[:] = 0.0
    at_sinks = 0.0
    for task in range(len(rate)):
        rate[task] = limit[task] if net.source[task] else min(limit[task], inflow[task])
        if net.sink[task]:
            at_sinks += rate[task]
        for edge in range(net.start[task], net.start[task + 1]):
            inflow[net.target[edge]] += rate[task] * net.share[edge]
    return at_sinks


@kernel
def _push_back(net: FlowNet, inflow: Floats, taken: Floats, rate: Floats) -> None:
    """Lower every task's rate to what its receivers take of it, and set the share of its inflow that each takes.

    Receivers on a flexible stream stand in for each other, so a sender feels their mean; on a rigid one it waits for
    the slowest. A task that copies waits for its slowest stream; one that divides its tuples feels the mean of all.
    """
    if not net.sustained:  # one hop: senders feel what their receivers take before these are slowed down themselves
        for task in range(len(rate)):
            taken[task] = rate[task] / inflow[task] if inflow[task] > 0.0 else 1.0
    for task in range(len(rate) - 1, -1, -1):
        worst, part, whole = 1.0, 0.0, 0.0
        for edge in range(net.start[task], net.start[task + 1]):
            if net.copy and edge > net.start[task] and net.stream[edge] != net.stream[edge - 1]:
                worst = min(worst, part / whole if whole > 0.0 else 1.0)
                part, whole = 0.0, 0.0
            accepted = taken[net.target[edge]]
            part += net.share[edge] * accepted
            whole += net.share[edge]
            if net.rigid[edge] and net.share[edge] > 0.0:
                worst = min(worst, accepted)
        if not net.sink[task]:
            rate[task] *= min(worst, part / whole if whole > 0.0 else 1.0)
        if net.sustained:
            taken[task] = rate[task] / inflow[task] if inflow[task] > 0.0 else 1.0


@kernel
def _flow_again(net: FlowNet, taken: Floats, rate: Floats, received: Floats, sent: Floats) -> float:
    """Let tuples flow at the rates that back-pressure left; return what reaches the sinks.

    A flexible stream gives every receiver the part that it takes, a rigid one gives all receivers theirs.
    """
    received[:] = 0.0
    at_sinks = 0.0
    for task in range(len(rate)):
        if not net.source[task]:
            rate[task] = min(rate[task], received[task])
        if net.sink[task]:
            at_sinks += rate[task]
        first = net.start[task]
        for _ in range(first, net.start[task + 1]):  # at most one stream an edge
            last, part, whole = first, 0.0, 0.0
            for edge in range(first, net.start[task + 1]):
                if net.copy and net.stream[edge] != net.stream[first]:
                    break
                part += net.share[edge] * taken[net.target[edge]]
                whole += net.share[edge]
                last = edge + 1
            for edge in range(first, last):
                target = net.target[edge]
                weight = 1.0 if net.rigid[edge] or part == 0.0 else taken[target] * whole / part
                sent[edge] = rate[task] * net.share[edge] * weight
                received[target] += sent[edge]
            first = last
            if first == net.start[task + 1]:
                break
    return at_sinks


@kernel
def _as_printed(net: FlowNet, rate: Floats, received: Floats, sent: Floats) -> None:
    """Set what line 29 of the paper weights delays by."""
    for task in range(len(rate)):
        received[task] = rate[task]
        for edge in range(net.start[task], net.start[task + 1]):
            sent[edge] = rate[task] * net.share[edge]


@kernel
def level_delays(net: FlowNet, placed: NDArray[np.int32], delay: Floats) -> None:
    """Fill in the delay of every edge by how far apart its two slots are."""
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


@kernel
def mean_delay(net: FlowNet, rate: Floats, received: Floats, sent: Floats, edge_ms: Floats) -> float:
    """Return the mean delay from source to sink over all paths, each weighted by the tuples that take it (line 29)."""
    delay = np.zeros(len(rate))
    at_sinks = 0.0
    weighted = 0.0
    for task in range(len(rate)):
        if net.sink[task]:
            at_sinks += rate[task]
            weighted += rate[task] * delay[task]
        for edge in range(net.start[task], net.start[task + 1]):
            target = net.target[edge]
            if received[target] > 0.0:
                delay[target] += sent[edge] * (delay[task] + edge_ms[edge]) / received[target]
    return weighted / at_sinks if at_sinks > 0.0 else 0.0
