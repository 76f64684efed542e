"""The steps of a round of the flow estimator; `flow` describes the algorithm, and `flow_kernels` calls them.

Their arrays are separate parameters, because unpacking these from a tuple costs as much as a step. The steps of every
round are inlined in the kernel that calls them, so no array is passed.
"""

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel, part
from penstock.model.taskgraph import FORWARD, GLOBAL, SPREAD, Bools, Floats, Ints

Indices = NDArray[np.uint64]


@kernel
def per_cost(cpu: Floats, place: NDArray[np.uint64], per: Floats) -> None:
    """Set for every place the reciprocal of the total cost of one tuple of each of its tasks."""
    for number in range(len(per)):
        per[number] = 0.0
    for task in range(len(cpu)):
        per[place[task]] += cpu[task]
    for number in range(len(per)):
        per[number] = 1.0 / per[number] if per[number] > 0.0 else 0.0


@part
def share_out(where: Indices, cpu: Floats, rate: Floats, slot_cpu: Floats, per_slot: Floats, gain: Floats) -> None:
    """Set for every slot the rate that each of its tasks gains from the slot's unused cpu."""
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
    """Limit the gains of tasks to the free cpu of their machine, whose other slots may occupy the cores."""
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
    taken: Floats,
    rate: Floats,
) -> float:
    """Pass tuples downstream, at most its limit by each task; return the rate that reaches the sinks."""
    for component in range(len(source)):
        level[component] = 0.0
    for task in range(len(rate)):
        extra[task] = 0.0
    reached = 0.0
    for component in range(len(source)):
        inflow = np.inf if source[component] else level[component]
        all_of_it = 0.0
        for task in range(first[component], first[component + 1]):
            limit = rate[task] + gain[where[task]] + bonus[task]
            limit = cap[task] if limit > cap[task] else limit
            own = inflow + extra[task]
            own = limit if limit < own else own
            rate[task] = own
            all_of_it += own
        total[component] = all_of_it
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
    """Return the mean fraction of their input that receivers accept."""
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
    """Multiply the rates of tasks, except sinks, by the mean fraction that their receivers accepted, one hop up."""
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
