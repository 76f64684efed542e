"""The kernels of the flow estimator: see `flow` for what they compute.

The tasks of a component are alike but for where they are, so the kernels add up what a stream carries once for all its
receivers: a round takes time in proportion to tasks, not to the edges between them.

Two things make them what they are, both measured: taking an array out of a tuple, or passing one to another function,
costs as much as a whole round, so few functions work through a block of placements, with the steps of a round written
out (`flow_rounds`); and indices are unsigned, since numba would test signed ones for being counted from the end.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.flow_rounds import (
    Indices,
    feel_receivers,
    flow_again,
    flow_down,
    mean_taken,
    per_cost,
    share_out,
    slow_down,
    within_machines,
)
from penstock.model.kernel import kernel
from penstock.model.taskgraph import FORWARD, Bools, Floats, Ints

MAX_ROUNDS = 10_000
BLOCK = 64  # placements worked through together


class FlowNet(NamedTuple):
    """What the kernels read; T tasks, C components, F flows by sender, S slots, P processes, H hosts, M machines."""

    first: Indices  # [C + 1] first task of each component
    start: Indices  # [C + 1] the flows that component c sends are start[c] .. start[c + 1]
    target: Indices  # [F] receiving component
    heard: Ints  # [F] SPREAD, FORWARD or GLOBAL
    receivers: Floats  # [F] how many tasks hear each sender
    share: Floats  # [F] tuples to each of them a tuple processed
    weight: Floats  # [F] the stream's part in what a task sends on all its streams
    rigid: Bools  # [F] whether the sender cannot give another receiver what one does not take
    source: Bools  # [C]
    sink: Bools  # [C]
    even: Bools  # [C] whether its tasks all hear the same: no forward or global stream leads there
    cpu: Floats  # [T] core-seconds a tuple
    bonus: Floats  # [T] what a task may process beyond its share of cpu: without end where a tuple costs nothing
    cap: Floats  # [T] what a task may process at most
    slot_cpu: Floats  # [S]
    slot_machine: Indices  # [S]
    slot_process: Indices  # [S]
    slot_host: Indices  # [S]
    machine_cpu: Floats  # [M] infinite where its slots cannot use more than its cores
    crowded: bool  # whether any machine has more slots than cores
    delay_ms: Floats  # [4]
    source_tuples: float  # source tuples a tuple that reaches a sink
    copy: bool
    sustained: bool
    threshold: float
    relative: bool


@kernel
def estimate_flows(net: FlowNet, placed: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """Estimate many placements at once: `placed` is [B, T]; the results are tuples a second and ms, each [B]."""
    throughput = np.empty(len(placed))
    delay = np.empty(len(placed))
    tasks, block = len(net.cpu), min(BLOCK, len(placed))
    where = np.empty((block, tasks), dtype=np.uint64)
    rate, received, taken = np.empty((block, tasks)), np.empty((block, tasks)), np.ones((block, tasks))
    at_sinks = np.empty(block)
    for begin in range(0, len(placed), block):
        rows = min(block, len(placed) - begin)
        for row in range(rows):
            for task in range(tasks):
                where[row, task] = placed[begin + row, task]
        _settle(net, where[:rows], rate, received, taken, at_sinks)
        _delays(net, where[:rows], rate, received, taken, delay[begin:])
        for row in range(rows):
            # Several sources need not keep the ratio of their loads: where back-pressure reaches them, count them.
            counted = net.sustained or net.source_tuples == 0.0
            throughput[begin + row] = _from_sources(net, rate[row]) if counted else at_sinks[row] * net.source_tuples
    return throughput, delay


@kernel
def _from_sources(net: FlowNet, rate: Floats) -> float:
    total = 0.0
    for component in range(len(net.source)):
        if net.source[component]:
            total += rate[net.first[component] : net.first[component + 1]].sum()
    return total


@kernel
def _settle(
    net: FlowNet, placed: NDArray[np.uint64], rates: Floats, received: Floats, takens: Floats, at_sinks: Floats
) -> None:
    """Let tuples flow until the sinks' rate no longer rises, for every row of `placed`.

    Sets that rate, and for every task its rate and what it receives after back-pressure, and the share that it takes.
    """
    first, start, target, heard, share, weight = net.first, net.start, net.target, net.heard, net.share, net.weight
    source, sink, even, rigid, receivers = net.source, net.sink, net.even, net.rigid, net.receivers
    cpu, bonus, cap, slot_cpu, slot_machine = net.cpu, net.bonus, net.cap, net.slot_cpu, net.slot_machine
    tasks, components, slots = len(cpu), len(source), len(slot_cpu)
    level, total, least = np.zeros(components), np.zeros(components), np.zeros(components)
    extra, gain, per_slot = np.zeros(tasks), np.zeros(slots), np.zeros(slots)
    per_machine, machine_free = np.zeros(len(net.machine_cpu)), np.zeros(len(net.machine_cpu))
    for row in range(len(placed)):
        where, rate, taken = placed[row], rates[row], takens[row]
        rate[:] = 0.0
        per_cost(cpu, where, per_slot)
        if net.crowded:
            per_cost(cpu, slot_machine[where], per_machine)
        reached = 0.0
        for _ in range(MAX_ROUNDS):
            share_out(where, cpu, rate, slot_cpu, per_slot, gain)
            if net.crowded:
                within_machines(where, cpu, rate, slot_machine, net.machine_cpu, per_machine, machine_free, gain)
            before = reached
            reached = flow_down(
                first, start, target, heard, share, source, sink, even, bonus, cap,
                where, gain, level, extra, total, least, taken, rate,
            )  # fmt: skip
            # Back-pressure: all the way up, or one hop, where senders feel what receivers took before these slow down.
            if net.sustained:
                slow_down(
                    True, first, start, target, heard, receivers, weight, rigid, sink, even, net.copy,
                    level, extra, total, least, taken, rate,
                )  # fmt: skip
                reached = flow_again(
                    first, start, target, heard, receivers, share, rigid, source, sink, taken, rate, received[row],
                )  # fmt: skip
            elif net.copy:
                slow_down(
                    False, first, start, target, heard, receivers, weight, rigid, sink, even, True,
                    level, extra, total, least, taken, rate,
                )  # fmt: skip
            else:
                feel_receivers(
                    first, start, target, heard, receivers, weight, sink, even, level, total, taken, rate,
                )  # fmt: skip
            if reached - before <= (net.threshold * reached if net.relative else net.threshold):
                break
        at_sinks[row] = reached
        if not net.sustained:
            received[row] = rate


@kernel
def _delays(  # noqa: C901
    net: FlowNet, placed: NDArray[np.uint64], rates: Floats, received: Floats, takens: Floats, mean_ms: Floats
) -> None:
    """Set the mean delay from source to sink over all paths, each weighted by the tuples that take it (line 29).

    A receiver's delay is a sum over its senders of what each sends and how far off it is. Distances have four levels,
    so the sum is what all send, less what is sent from the same host, process and slot, each added up once a stream.
    """
    first, start, target, heard, share = net.first, net.start, net.target, net.heard, net.share
    receivers, rigid, sink, delay_ms = net.receivers, net.rigid, net.sink, net.delay_ms
    process, host = net.slot_process, net.slot_host
    by_host, by_process, by_slot = delay_ms[3] - delay_ms[2], delay_ms[2] - delay_ms[1], delay_ms[1] - delay_ms[0]
    from_slot, delay = np.zeros(len(process)), np.zeros(len(net.cpu))
    from_process, from_host = np.zeros(process.max() + 1), np.zeros(host.max() + 1)
    for row in range(len(placed)):
        where, rate, reaches, taken = placed[row], rates[row], received[row], takens[row]
        at_sinks, weighted = 0.0, 0.0
        for task in range(len(delay)):
            delay[task] = 0.0
        for component in range(len(sink)):
            begin, end = first[component], first[component + 1]
            if sink[component]:
                for task in range(begin, end):
                    at_sinks += rate[task]
                    weighted += rate[task] * delay[task]
            for flow in range(start[component], start[component + 1]):
                to = first[target[flow]]
                if heard[flow] == FORWARD:
                    for task in range(begin, end):
                        other = to + task - begin
                        if reaches[other] > 0.0:
                            hop = _distance(where[task], where[other], process, host, delay_ms)
                            delay[other] += rate[task] * share[flow] * (delay[task] + hop) / reaches[other]
                    continue
                late = 0.0
                for task in range(begin, end):
                    late += rate[task] * (delay[task] + delay_ms[3])
                    from_slot[where[task]] += rate[task]
                    from_process[process[where[task]]] += rate[task]
                    from_host[host[where[task]]] += rate[task]
                evenly = rigid[flow] or not net.sustained
                mean = 1.0 if evenly else mean_taken(to, receivers[flow], taken)
                for task in range(to, to + np.uint64(receivers[flow])):
                    if reaches[task] > 0.0:
                        slot = where[task]
                        sooner = by_slot * from_slot[slot] + by_process * from_process[process[slot]]
                        sooner += by_host * from_host[host[slot]]
                        fair = 1.0 if evenly or mean == 0.0 else taken[task] / mean
                        delay[task] += share[flow] * fair * (late - sooner) / reaches[task]
                for task in range(begin, end):
                    from_slot[where[task]] = 0.0
                    from_process[process[where[task]]] = 0.0
                    from_host[host[where[task]]] = 0.0
        mean_ms[row] = weighted / at_sinks if at_sinks > 0.0 else 0.0


@kernel
def _distance(here: int, there: int, process: Indices, host: Indices, delay_ms: Floats) -> float:
    """Return the delay between two slots."""
    if here == there:
        return float(delay_ms[0])
    if process[here] == process[there]:
        return float(delay_ms[1])
    return float(delay_ms[2] if host[here] == host[there] else delay_ms[3])
