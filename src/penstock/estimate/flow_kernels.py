"""The kernels of TATA's estimator; `flow` describes the algorithm.

The tasks of a component differ only in their slots, so the kernels sum the tuples of a stream once for all of its
receivers. The time per round is proportional to the number of tasks, not of edges.

Two measurements determine the structure. Unpacking an array from a tuple, or passing one to another function, costs as
much as a whole round. Therefore few functions process a block of placements, and the steps of a round are written out
(`flow_rounds`). Indices are unsigned, because numba would check signed ones for negative values.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.estimate.flow_rounds import Indices, feel_receivers, flow_down, per_cost, share_out, within_machines
from penstock.model.kernel import kernel
from penstock.model.taskgraph import FORWARD, Bools, Floats, Ints

MAX_ROUNDS = 10_000
BLOCK = 64  # placements per block


class FlowNet(NamedTuple):
    """The input of the kernels; T tasks, C components, F flows by sender, S slots, P processes, H hosts, M machines."""

    first: Indices  # [C + 1] first task of each component
    start: Indices  # [C + 1] the flows that component c sends are start[c] .. start[c + 1]
    target: Indices  # [F] receiving component
    heard: Ints  # [F] SPREAD, FORWARD or GLOBAL
    receivers: Floats  # [F] number of tasks that receive from each sender
    share: Floats  # [F] tuples to each of them per processed tuple
    weight: Floats  # [F] the stream's fraction of all tuples that a task sends
    source: Bools  # [C]
    sink: Bools  # [C]
    even: Bools  # [C] whether its tasks have equal input: it receives no forward or global stream
    cpu: Floats  # [T] core-seconds per tuple
    bonus: Floats  # [T] rate that a task may process beyond its share of cpu: unlimited if a tuple costs nothing
    cap: Floats  # [T] maximum rate that a task may process
    slot_cpu: Floats  # [S]
    slot_machine: Indices  # [S]
    slot_process: Indices  # [S]
    slot_host: Indices  # [S]
    machine_cpu: Floats  # [M] infinite if its slots cannot use more than its cores
    crowded: bool  # whether any machine has more slots than cores
    delay_ms: Floats  # [4]
    threshold: float


@kernel
def estimate_flows(net: FlowNet, placed: NDArray[np.int32]) -> tuple[Floats, Floats]:
    """Estimate placements [B, T]; return tuples per second and ms: [B], [B]."""
    throughput = np.empty(len(placed))
    delay = np.empty(len(placed))
    tasks, block = len(net.cpu), min(BLOCK, len(placed))
    where = np.empty((block, tasks), dtype=np.uint64)
    rate = np.empty((block, tasks))
    for begin in range(0, len(placed), block):
        rows = min(block, len(placed) - begin)
        for row in range(rows):
            for task in range(tasks):
                where[row, task] = placed[begin + row, task]
        _settle(net, where[:rows], rate, throughput[begin:])
        _delays(net, where[:rows], rate, delay[begin:])
    return throughput, delay


@kernel
def _settle(net: FlowNet, placed: NDArray[np.uint64], rates: Floats, at_sinks: Floats) -> None:
    """Run rounds until the sinks' rate stops rising, for every row of `placed`; set this rate and the tasks' rates."""
    first, start, target, heard, share, weight = net.first, net.start, net.target, net.heard, net.share, net.weight
    source, sink, even, receivers = net.source, net.sink, net.even, net.receivers
    cpu, bonus, cap, slot_cpu, slot_machine = net.cpu, net.bonus, net.cap, net.slot_cpu, net.slot_machine
    tasks, components, slots = len(cpu), len(source), len(slot_cpu)
    level, total, taken = np.zeros(components), np.zeros(components), np.ones(tasks)
    extra, gain, per_slot = np.zeros(tasks), np.zeros(slots), np.zeros(slots)
    per_machine, machine_free = np.zeros(len(net.machine_cpu)), np.zeros(len(net.machine_cpu))
    for row in range(len(placed)):
        where, rate = placed[row], rates[row]
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
                where, gain, level, extra, total, taken, rate,
            )  # fmt: skip
            # Back-pressure, one hop: senders see the rates of their receivers before these slow down.
            feel_receivers(first, start, target, heard, receivers, weight, sink, even, level, total, taken, rate)
            if reached - before <= net.threshold:
                break
        at_sinks[row] = reached


@kernel
def _delays(net: FlowNet, placed: NDArray[np.uint64], rates: Floats, mean_ms: Floats) -> None:  # noqa: C901
    """Set the mean delay from source to sink over all paths, each weighted by the tuples that take it (line 29).

    A receiver's delay is a sum over its senders, weighted by their tuples and their distances. Distances have four
    levels. So the sum over all senders, minus those on the same host, in the same process and on the same slot, is
    sufficient, and each of these is computed once per stream.
    """
    first, start, target, heard, share = net.first, net.start, net.target, net.heard, net.share
    receivers, sink, delay_ms = net.receivers, net.sink, net.delay_ms
    process, host = net.slot_process, net.slot_host
    by_host, by_process, by_slot = delay_ms[3] - delay_ms[2], delay_ms[2] - delay_ms[1], delay_ms[1] - delay_ms[0]
    from_slot, delay = np.zeros(len(process)), np.zeros(len(net.cpu))
    from_process, from_host = np.zeros(process.max() + 1), np.zeros(host.max() + 1)
    for row in range(len(placed)):
        where, rate = placed[row], rates[row]
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
                        if rate[other] > 0.0:
                            hop = _distance(where[task], where[other], process, host, delay_ms)
                            delay[other] += rate[task] * share[flow] * (delay[task] + hop) / rate[other]
                    continue
                late = 0.0
                for task in range(begin, end):
                    late += rate[task] * (delay[task] + delay_ms[3])
                    from_slot[where[task]] += rate[task]
                    from_process[process[where[task]]] += rate[task]
                    from_host[host[where[task]]] += rate[task]
                for task in range(to, to + np.uint64(receivers[flow])):
                    if rate[task] > 0.0:
                        slot = where[task]
                        sooner = by_slot * from_slot[slot] + by_process * from_process[process[slot]]
                        sooner += by_host * from_host[host[slot]]
                        delay[task] += share[flow] * (late - sooner) / rate[task]
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
