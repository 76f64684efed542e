"""Equivalent tasks, and the placed tasks that they reach: the terms in the second half of SPARCLE's eq. (2).

Tasks of a component are equivalent unless forward streams give each its own partner, so γ is computed for groups of
equivalent tasks. If the transports between a task and the placed tasks around it are rated together, only those placed
tasks count that can be reached through tasks not placed yet, because what lies beyond them is already routed.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel, part, stage
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.placement.partial_placement import Placed, Scratch, Workload
from penstock.policies.placement.transports import Between, set_between


class Groups(NamedTuple):
    """Groups of equivalent tasks that are not pinned; G of them, ordered by their first tasks."""

    of: Ints  # [T] a task's group, -1: pinned
    following: Ints  # [T] the next task of the same group, -1: none
    task: Ints  # [G] the first that is not placed, -1: none
    left: Bools  # [G] whether there is one
    component: Ints  # [G]
    number: Ints  # [G] of the first task within its component
    receives: Bools  # [G] whether they receive tuples


class Partners(NamedTuple):
    """The groups that exchange tuples with a placed task and its equals on its machine; arrays for all groups."""

    group: Ints  # [G]
    each: Floats  # [G] bits per source tuple, at least, with each of the placed tasks
    number: Floats  # [G] of placed tasks on the machine
    paired: Bools  # [G] whether the placed task is the only one of its component that is reached


@kernel
def group_equivalent(workload: Workload, between: Between) -> Groups:
    """Return groups of the tasks that are not pinned: of a component, with equal gain and no partner of their own."""
    number = len(workload.component)
    of, following = np.full(number, -1, dtype=np.int32), np.full(number, -1, dtype=np.int32)
    first, last = np.empty(number, dtype=np.int32), np.empty(number, dtype=np.int32)
    groups = 0
    for task in range(number):
        if workload.pin[task] >= 0:
            continue
        component = workload.component[task]
        single = workload.first[component + 1] - workload.first[component] > 1 and has_partners(between, component)
        found = -1 if single else groups - 1
        for _ in range(groups):
            if found < 0 or workload.component[first[found]] != component:
                found = -1
                break
            if workload.gain[first[found]] == workload.gain[task]:
                break
            found -= 1
        if found < 0:
            first[groups], found, groups = task, groups, groups + 1
        else:
            following[last[found]] = task
        of[task], last[found] = found, task
    first = first[:groups].copy()
    component = workload.component[first]
    left, receives = np.ones(groups, dtype=np.bool_), workload.gain[first] > 0.0
    return Groups(of, following, first, left, component, first - workload.first[component], receives)


@part
def has_partners(between: Between, component: int) -> bool:
    """Return whether the tasks of a component have partners of their own anywhere."""
    for other in range(len(between.aligned)):
        if between.aligned[component, other] or between.aligned[other, component]:
            return True
    return False


def no_partners(groups: int) -> Partners:
    """Allocate arrays for partners."""
    return Partners(
        np.empty(groups, dtype=np.int32), np.empty(groups), np.empty(groups), np.empty(groups, dtype=np.bool_)
    )


@part
def advance_group(groups: Groups, placed: Placed, task: int) -> None:
    """Record that a task is placed: its group's next task follows."""
    group = groups.of[task]
    if group >= 0:
        following = groups.task[group]
        for _ in range(len(groups.of)):
            if following < 0 or placed.machine[following] < 0:
                break
            following = groups.following[following]
        groups.task[group], groups.left[group] = following, following >= 0


@part
def update_reach(workload: Workload, placed: Placed, task: int, between: Between, room: Scratch) -> bool:
    """Return whether placing a task changed which other tasks are reached, beyond adding some.

    If so, `between` is updated: nothing is reached through a component whose tasks are all placed.
    """
    for component in range(len(room.closed)):
        room.closed[component] = True
        for other in range(workload.first[component], workload.first[component + 1]):
            room.closed[component] &= placed.machine[other] >= 0
    if not room.closed[workload.component[task]]:
        return False
    set_between(between, workload.streams, workload.first, workload.gain, room.closed, room.reachable)
    return True


@stage
def list_one_of_each(workload: Workload, placed: Placed, between: Between, room: Scratch) -> int:
    """List one placed task of every component on every machine, or all if tasks have partners of their own.

    Returns their number.
    """
    number = 0
    room.seen[:] = -1
    for component in range(len(workload.first) - 1):
        every = has_partners(between, component)
        for task in range(workload.first[component], workload.first[component + 1]):
            machine = placed.machine[task]
            if machine >= 0 and (every or room.seen[machine] != component):
                room.seen[machine] = component
                room.listed[number] = task
                number += 1
    return number


@stage
def find_partners(
    partners: Partners, groups: Groups, between: Between, workload: Workload, placed: Placed, task: int, sends: bool
) -> int:
    """List the remaining groups that send to a placed task, or that it sends to, and return their number.

    Directly, or through others.
    """
    component, found = workload.component[task], 0
    here = placed.tasks_on[component, placed.machine[task]]
    for group in range(len(groups.component)):
        source, target = (groups.component[group], component) if sends else (component, groups.component[group])
        each, paired = between.bits[source, target], between.aligned[source, target]
        if not (groups.left[group] and groups.receives[group] and 0.0 < each < np.inf):
            continue
        count = 1.0 if paired else here
        if count > 0.0 and (not paired or groups.number[group] == task - workload.first[component]):
            partners.group[found], partners.each[found] = group, each
            partners.number[found], partners.paired[found] = count, paired
            found += 1
    return found
