"""The kernels of the flow estimator: see `flow` for what they compute.

The tasks of a component are alike but for where they are, so the kernels add up what a stream carries once for all its
receivers: a round takes time in proportion to tasks, not to the edges between them.

Two things make them what they are, both measured: taking an array out of a tuple, or passing one to another function,
costs as much as a whole round, so the inner loops stand in few long functions that work through a block of placements;
and indices are unsigned, since numba would test signed ones for being counted from the end.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel
from penstock.model.taskgraph import FORWARD, GLOBAL, SPREAD, Bools, Floats, Ints

Indices = NDArray[np.uint64]

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
def _settle(  # noqa: C901  one function, for speed: see the module's docstring
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
        _per_cost(cpu, where, per_slot)
        if net.crowded:
            _per_cost(cpu, slot_machine[where], per_machine)
        reached = 0.0
        for _ in range(MAX_ROUNDS):
            # Every slot takes back what its tasks do not use, and shares what is free.
            for slot in range(slots):
                gain[slot] = slot_cpu[slot]
            for task in range(tasks):
                gain[where[task]] -= rate[task] * cpu[task]
            for slot in range(slots):
                gain[slot] *= per_slot[slot]
            if net.crowded:
                _within_machines(where, cpu, rate, slot_machine, net.machine_cpu, per_machine, machine_free, gain)
            # Tuples flow down, every task passing on what it may.
            for component in range(components):
                level[component] = 0.0
            for task in range(tasks):
                extra[task] = 0.0
            before, reached = reached, 0.0
            for component in range(components):
                inflow = np.inf if source[component] else level[component]
                all_of_it, slowest = 0.0, np.inf
                for task in range(first[component], first[component + 1]):
                    limit = rate[task] + gain[where[task]] + bonus[task]
                    limit = cap[task] if limit > cap[task] else limit
                    own = inflow + extra[task]
                    own = limit if limit < own else own
                    rate[task] = own
                    all_of_it += own
                    slowest = own if own < slowest else slowest
                total[component], least[component] = all_of_it, slowest
                if sink[component]:
                    reached += all_of_it
                if not even[component]:
                    for task in range(first[component], first[component + 1]):
                        inflow = level[component] + extra[task]
                        taken[task] = rate[task] / inflow if inflow > 0.0 else 1.0
                for flow in range(start[component], start[component + 1]):
                    to = first[target[flow]]
                    if heard[flow] == SPREAD:
                        level[target[flow]] += all_of_it * share[flow]
                    elif heard[flow] == GLOBAL:
                        extra[to] += all_of_it * share[flow]
                    else:
                        for task in range(first[component], first[component + 1]):
                            extra[to + task - first[component]] += rate[task] * share[flow]
            # Back-pressure: all the way up, or one hop, where senders feel what receivers took before these slow down.
            if net.sustained:
                _slow_down(
                    True, first, start, target, heard, receivers, weight, rigid, sink, even, net.copy,
                    level, extra, total, least, taken, rate,
                )  # fmt: skip
                reached = _flow_again(
                    first, start, target, heard, receivers, share, rigid, source, sink, taken, rate, received[row],
                )  # fmt: skip
            elif net.copy:
                _slow_down(
                    False, first, start, target, heard, receivers, weight, rigid, sink, even, True,
                    level, extra, total, least, taken, rate,
                )  # fmt: skip
            else:
                for component in range(components):
                    if sink[component]:
                        continue
                    part, forwards = 0.0, False
                    for flow in range(start[component], start[component + 1]):
                        other = target[flow]
                        if heard[flow] == FORWARD:
                            forwards = True
                        elif even[other]:
                            part += weight[flow] * total[other] / (receivers[flow] * level[other])
                        else:
                            part += weight[flow] * _mean_taken(first[other], receivers[flow], taken)
                    for task in range(first[component], first[component + 1]):
                        own = part
                        if forwards:
                            for flow in range(start[component], start[component + 1]):
                                if heard[flow] == FORWARD:
                                    own += weight[flow] * taken[first[target[flow]] + task - first[component]]
                        rate[task] *= own
            if reached - before <= (net.threshold * reached if net.relative else net.threshold):
                break
        at_sinks[row] = reached
        if not net.sustained:
            received[row] = rate


@kernel
def _per_cost(cpu: Floats, place: NDArray[np.uint64], per: Floats) -> None:
    """Set for every place one over what a tuple of each task there costs together."""
    for number in range(len(per)):
        per[number] = 0.0
    for task in range(len(cpu)):
        per[place[task]] += cpu[task]
    for number in range(len(per)):
        per[number] = 1.0 / per[number] if per[number] > 0.0 else 0.0


@kernel
def _within_machines(
    where: NDArray[np.uint64],
    cpu: Floats,
    rate: Floats,
    slot_machine: Indices,
    machine_cpu: Floats,
    per_machine: Floats,
    machine_free: Floats,
    gain: Floats,
) -> None:
    """Keep what tasks gain within what their machine has free: its other slots may have taken the cores."""
    for machine in range(len(machine_free)):
        machine_free[machine] = machine_cpu[machine]
    for task in range(len(cpu)):
        machine_free[slot_machine[where[task]]] -= rate[task] * cpu[task]
    for slot in range(len(gain)):
        machine = slot_machine[slot]
        gain[slot] = min(gain[slot], max(machine_free[machine] * per_machine[machine], 0.0))


@kernel
def _mean_taken(first: int, count: float, taken: Floats) -> float:
    """Return the mean share that receivers take of what they hear."""
    mean = 0.0
    for task in range(first, first + np.uint64(count)):
        mean += taken[task] / count
    return mean


@kernel
def _slow_down(  # noqa: C901
    all_the_way: bool,
    first: Indices,
    start: Indices,
    target: Indices,
    heard: Ints,
    receivers: Floats,
    weight: Floats,
    rigid: Bools,
    sink: Bools,
    even: Bools,
    copy: bool,
    level: Floats,
    extra: Floats,
    total: Floats,
    least: Floats,
    taken: Floats,
    rate: Floats,
) -> None:
    """Lower the rates of all tasks but the sinks' to what their receivers take.

    Receivers on a flexible stream stand in for each other, so a sender feels their mean; on a rigid one it waits for
    the slowest. A task that copies waits for its slowest stream; one that divides its tuples feels the mean of all.
    `all_the_way` goes from the sinks up, so that a sender feels receivers that were slowed down themselves.
    """
    components = len(sink)
    for step in range(components):
        component = components - 1 - step if all_the_way else step
        slowest, part = 1.0, 0.0
        for flow in range(start[component], start[component + 1]):
            other = target[flow]
            if heard[flow] != FORWARD and weight[flow] > 0.0:
                mean, worst = 1.0, 1.0
                if not even[other]:
                    mean = _mean_taken(first[other], receivers[flow], taken)
                    for task in range(first[other], first[other] + np.uint64(receivers[flow])):
                        worst = min(worst, taken[task])
                elif level[other] > 0.0:
                    mean = total[other] / (receivers[flow] * level[other])
                    worst = least[other] / level[other]
                slowest = min(slowest, worst if rigid[flow] else mean)
                part += weight[flow] * mean
        all_of_it, low = 0.0, np.inf
        for task in range(first[component], first[component + 1]):
            own_slowest, own = slowest, part
            for flow in range(start[component], start[component + 1]):
                if heard[flow] == FORWARD and weight[flow] > 0.0:
                    partner = taken[first[target[flow]] + task - first[component]]
                    own_slowest = min(own_slowest, partner)
                    own += weight[flow] * partner
            if not sink[component]:
                rate[task] *= own_slowest if copy else own
            all_of_it += rate[task]
            low = min(low, rate[task])
        if all_the_way:
            total[component], least[component] = all_of_it, low
            for task in range(first[component], first[component + 1]):
                inflow = level[component] + extra[task]
                taken[task] = rate[task] / inflow if inflow > 0.0 else 1.0


@kernel
def _flow_again(
    first: Indices,
    start: Indices,
    target: Indices,
    heard: Ints,
    receivers: Floats,
    share: Floats,
    rigid: Bools,
    source: Bools,
    sink: Bools,
    taken: Floats,
    rate: Floats,
    received: Floats,
) -> float:
    """Let tuples flow at the rates that back-pressure left; return what reaches the sinks.

    A flexible stream gives every receiver the part that it takes, a rigid one gives all receivers theirs.
    """
    for task in range(len(rate)):
        received[task] = 0.0
    at_sinks = 0.0
    for component in range(len(source)):
        sent = 0.0
        for task in range(first[component], first[component + 1]):
            if not source[component]:
                rate[task] = min(rate[task], received[task])
            sent += rate[task]
        if sink[component]:
            at_sinks += sent
        for flow in range(start[component], start[component + 1]):
            to = first[target[flow]]
            if heard[flow] == FORWARD:
                for task in range(first[component], first[component + 1]):
                    received[to + task - first[component]] += rate[task] * share[flow]
            else:
                mean = _mean_taken(to, receivers[flow], taken)
                for task in range(to, to + np.uint64(receivers[flow])):
                    fair = 1.0 if rigid[flow] or mean == 0.0 else taken[task] / mean
                    received[task] += sent * share[flow] * fair
    return at_sinks


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
                mean = 1.0 if evenly else _mean_taken(to, receivers[flow], taken)
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
