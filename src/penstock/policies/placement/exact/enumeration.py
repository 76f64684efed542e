"""Enumerate all different placements: of those that differ only by interchangeable parts, the first in order.

The first in lexicographic order follows simple rules: interchangeable tasks are in ascending slots, and of
interchangeable slots (in one process, in processes or machines of equal make) each is used only if those before it are.
Every prefix that follows the rules can be continued, so longer prefixes are never fewer.
"""

from collections.abc import Hashable
from math import comb

import numpy as np
from numpy.typing import NDArray

from penstock.model.taskgraph import Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.exact.task_groups import group_tasks

CHUNK = 16_384  # prefixes extended at a time


def placements(view: PlacementView, limit: int) -> NDArray[np.int16] | None:
    """Return every placement that pins allow, up to symmetry, [N, T]; None if there are more than `limit`."""
    if view.slots.number > np.iinfo(np.int16).max:
        return None
    alike_before, slot_before = _alike_before(view), _slot_before(view)
    found = np.zeros((1, 0), dtype=np.int16)
    for task in range(view.tasks.number):
        longer: list[NDArray[np.int16]] = []
        for first in range(0, len(found), CHUNK):
            prefix = found[first : first + CHUNK]
            allowed = _used_or_next(prefix, slot_before) & _pinned(view, task)
            if alike_before[task] >= 0:
                allowed &= np.arange(view.slots.number) >= prefix[:, alike_before[task], None]
            row, slot = np.nonzero(allowed)
            limit_left = limit - sum(map(len, longer))
            if len(row) > limit_left:
                return None
            longer.append(np.column_stack([prefix[row], slot.astype(np.int16)]))
        found = np.concatenate(longer)
    return found


def count_up_to_tasks(view: PlacementView) -> float:
    """Return the number of different placements if only tasks are interchangeable, slots are not."""
    slots = np.diff(view.slots.first)
    total = 1.0
    for group in group_tasks(view, wired=True):
        open_to_it = int(slots[group.pin] if group.pin >= 0 else slots.sum())
        total *= float(comb(open_to_it + len(group.tasks) - 1, len(group.tasks)))
    return total


def _used_or_next(prefix: NDArray[np.int16], slot_before: Ints) -> NDArray[np.bool_]:
    """Return the slots that may be used next: used ones, and those whose required predecessor is used. [N, S]"""
    used = np.zeros((len(prefix), len(slot_before)), dtype=np.bool_)
    used[:, -1] = True  # stands for "no predecessor"
    used[np.arange(len(prefix))[:, None], prefix] = True
    may: NDArray[np.bool_] = (used | used[:, slot_before])[:, :-1]
    return may


def _pinned(view: PlacementView, task: int) -> NDArray[np.bool_]:
    """Return the slots that a task's pin allows. [S]"""
    pin = view.pins[task]
    allowed: NDArray[np.bool_] = (view.slots.machine == pin) | (pin < 0)
    return allowed


def _alike_before(view: PlacementView) -> Ints:
    """Return for every task its last equivalent predecessor, -1 if there is none. [T]"""
    before = np.full(view.tasks.number, -1, dtype=np.int32)
    for group in group_tasks(view, wired=True):
        before[list(group.tasks[1:])] = group.tasks[:-1]
    return before


def _slot_before(view: PlacementView) -> Ints:
    """Return for every slot one that must be used first: of its process, an equal process, an equal machine. [S + 1]

    If there is none, it is the number of slots.
    """
    slots = view.slots
    before = np.full(slots.number + 1, slots.number, dtype=np.int32)
    seen: dict[Hashable, int] = {}
    for machine in range(slots.machines):
        first, last = int(slots.first[machine]), int(slots.first[machine + 1])
        starts = [s for s in range(first, last) if s == first or slots.process[s] != slots.process[s - 1]]
        sizes = np.diff([*starts, last])
        before[first + 1 : last] = np.arange(first, last - 1)
        before[starts] = slots.number
        for process in range(1, len(starts)):
            if sizes[process] == sizes[process - 1]:
                before[starts[process]] = starts[process - 1]
        make = _make(view, machine)
        before[first] = seen.get(make, slots.number)
        seen[make] = first
    return before


def _make(view: PlacementView, machine: int) -> Hashable:
    """Return the properties that interchangeable machines have in common."""
    host = view.slots.host[view.slots.first[:-1]]
    if view.cluster.routed or machine in view.pins or np.count_nonzero(host == host[machine]) > 1:
        return machine
    made = view.cluster.machines[machine]
    size = (made.cores, made.speed, made.memory_mb, made.slots, made.slot_memory_mb, made.processes, made.card_mbps)
    return (*size, *sorted(made.resources.items()), *sorted(made.labels))
