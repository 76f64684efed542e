"""γ of SPARCLE's eq. (2) for groups of equivalent tasks, as kernels, and the ranking by it (Algorithm 2)."""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import part, stage
from penstock.model.taskgraph import Bools, Floats, Ints

EQUAL = 1e-12  # relative; closer rates differ only by rounding


class Demand(NamedTuple):
    """What the next task of each group needs; G groups, R resources."""

    task: Ints  # [G]
    left: Bools  # [G] whether there is one
    work: Floats  # [G] core-seconds per source tuple
    needs: Floats  # [G, R] per source tuple


class Supply(NamedTuple):
    """Capacities of machines; M machines."""

    cpu: Floats  # [M]
    load: Floats  # [M] core-seconds per source tuple
    slot_cpu: Floats  # [M]
    slot_load: Floats  # [G, M] of the least loaded slot with room
    capacity: Floats  # [M, R]
    used: Floats  # [M, R] per source tuple
    room: Bools  # [G, M]


@stage
def rank(demand: Demand, supply: Supply, network: Floats, best: Floats, where: Ints, falling: bool) -> int:
    """Return the group whose next task has the lowest γ on its best machine, ties by task number.

    `best` and `where` [G] are γ on the best machine and that machine, at the last call; `falling`: no γ has increased
    since. A group without room comes first.
    """
    chosen, lower, equal = -1, False, False
    for group in range(len(best)):
        if not demand.left[group]:
            continue
        machine = where[group]
        if not falling or machine < 0 or gamma(demand, supply, network, group, machine) != best[group]:
            best[group], where[group] = highest(demand, supply, network, group)
        if chosen >= 0:
            lower = best[group] < best[chosen] * (1 - EQUAL)
            equal = not lower and best[group] * (1 - EQUAL) <= best[chosen]
        if chosen < 0 or lower or (equal and demand.task[group] < demand.task[chosen]):
            chosen = group
    return chosen


@part
def highest(demand: Demand, supply: Supply, network: Floats, group: int) -> tuple[float, int]:
    """Return the highest γ of a group and its machine (Algorithm 2, line 15); -1 if no machine has room."""
    best, where = -1.0, -1
    for machine in range(len(supply.cpu)):
        rate = gamma(demand, supply, network, group, machine)
        if rate > best:
            best, where = rate, machine
    return best, where


@part
def gamma(demand: Demand, supply: Supply, network: Floats, group: int, machine: int) -> float:
    """Return γ of eq. (2); -1 without room, 0 without a route."""
    if not supply.room[group, machine]:
        return -1.0
    return min(float(network[group, machine]), processing_rate(demand, supply, group, machine))


@part
def processing_rate(demand: Demand, supply: Supply, group: int, machine: int) -> float:
    """Return the rate that a machine would allow with the next task of a group added."""
    rate, work = np.inf, demand.work[group]
    if supply.load[machine] + work > 0.0:
        rate = min(rate, supply.cpu[machine] / (supply.load[machine] + work))
    if supply.slot_load[group, machine] + work > 0.0:
        rate = min(rate, supply.slot_cpu[machine] / (supply.slot_load[group, machine] + work))
    for resource in range(supply.capacity.shape[1]):
        load = supply.used[machine, resource] + demand.needs[group, resource]
        if load > 0.0:
            rate = min(rate, supply.capacity[machine, resource] / load)
    return rate
