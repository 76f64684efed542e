"""The steps of a round of the flow estimator: see `flow` for what they compute, `flow_kernels` for what calls them.

They take the arrays that they need one by one, as taking these out of a tuple costs as much as a step. Those of every
round are written out in the kernel that calls them, so that nothing is handed over.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel, part
from penstock.model.taskgraph import FORWARD, GLOBAL, SPREAD, Bools, Floats, Ints

Indices = NDArray[np.uint64]


@kernel
def per_cost(cpu: Floats, place: NDArray[np.uint64], per: Floats) -> None:
    """Set for every place one over what a tuple of each task there costs together."""
    for number in range(len(per)):
        per[number] = 0.0
    for task in range(len(cpu)):
        per[place[task]] += cpu[task]
    for number in range(len(per)):
        per[number] = 1.0 / per[number] if per[number] > 0.0 else 0.0


@part
def share_out(where: Indices, cpu: Floats, rate: Floats, slot_cpu: Floats, per_slot: Floats, gain: Floats) -> None:
    """Have every slot take back what its tasks do not use, and share what is free: set what each of them gains."""
    for slot in range(len(gain)):
        gain[slot] = slot_cpu[slot]
    for task in range(len(cpu)):
        gain[where[task]] -= rate[task] * cpu[task]
    for slot in range(len(gain)):
        gain[slot] *= per_slot[slot]


@kernel
def within_machines(
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


@part
def flow_down(
    first: Indices,
    start: Indices,
    target: Indices,
    heard: Ints,
    share: Floats,
    source: Bools,
    sink: Bools,
    even: Bools,
    bonus: Floats,
    cap: Floats,
    where: Indices,
    gain: Floats,
    level: Floats,
    extra: Floats,
    total: Floats,
    least: Floats,
    taken: Floats,
    rate: Floats,
) -> float:
    """Let tuples flow down, every task passing on what it may; return what reaches the sinks."""
    for component in range(len(source)):
        level[component] = 0.0
    for task in range(len(rate)):
        extra[task] = 0.0
    reached = 0.0
    for component in range(len(source)):
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
    return reached


@kernel
def mean_taken(first: int, count: float, taken: Floats) -> float:
    """Return the mean share that receivers take of what they hear."""
    mean = 0.0
    for task in range(first, first + np.uint64(count)):
        mean += taken[task] / count
    return mean


@part
def feel_receivers(
    first: Indices,
    start: Indices,
    target: Indices,
    heard: Ints,
    receivers: Floats,
    weight: Floats,
    sink: Bools,
    even: Bools,
    level: Floats,
    total: Floats,
    taken: Floats,
    rate: Floats,
) -> None:
    """Lower the rates of all tasks but the sinks' to the mean of what their receivers took, one hop up."""
    for component in range(len(sink)):
        if sink[component]:
            continue
        mean, forwards = 0.0, False
        for flow in range(start[component], start[component + 1]):
            other = target[flow]
            if heard[flow] == FORWARD:
                forwards = True
            elif even[other]:
                mean += weight[flow] * total[other] / (receivers[flow] * level[other])
            else:
                mean += weight[flow] * mean_taken(first[other], receivers[flow], taken)
        for task in range(first[component], first[component + 1]):
            own = mean
            if forwards:
                for flow in range(start[component], start[component + 1]):
                    if heard[flow] == FORWARD:
                        own += weight[flow] * taken[first[target[flow]] + task - first[component]]
            rate[task] *= own


@kernel
def slow_down(  # noqa: C901
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
                    mean = mean_taken(first[other], receivers[flow], taken)
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
def flow_again(
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
                mean = mean_taken(to, receivers[flow], taken)
                for task in range(to, to + np.uint64(receivers[flow])):
                    fair = 1.0 if rigid[flow] or mean == 0.0 else taken[task] / mean
                    received[task] += sent * share[flow] * fair
    return at_sinks
