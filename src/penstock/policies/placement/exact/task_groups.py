"""Groups of interchangeable tasks: only their number in each place matters.

Tasks of one component are interchangeable unless a stream distinguishes them: a global stream selects the first, a
forward stream joins each to its own partner. If the network does not matter, all tasks of equal cost are.
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from penstock.model.routes import BITS
from penstock.model.taskgraph import Ints
from penstock.model.topology import Grouping
from penstock.policies.api import PlacementView


class Group(NamedTuple):
    """Interchangeable tasks."""

    tasks: tuple[int, ...]
    pin: int  # machine, -1: free
    memory_mb: float  # of one task
    work: float  # of one task, core-seconds per source tuple
    needs: tuple[float, ...]  # of one task, other resources per source tuple


class Exchange(NamedTuple):
    """What each task of one group sends to each task of another over a stream."""

    stream: int  # position in the topology's streams
    source: int  # group
    target: int  # group
    bits: float  # from one task to one task, per source tuple


def group_tasks(view: PlacementView, wired: bool) -> tuple[Group, ...]:
    """Group the tasks; `wired`: it matters with whom they exchange tuples."""
    tasks = view.tasks
    apart = _distinguished_tasks(view) if wired else frozenset()
    rivals = frozenset() if view.conflicts is None else frozenset(np.flatnonzero(view.conflicts.any(axis=0)).tolist())
    members: dict[Hashable, list[int]] = {}
    for task in range(tasks.number):
        what = (view.work[task], tasks.memory_mb[task], *(tasks.needs[task] * tasks.gain[task]), view.pins[task])
        whom = (tasks.component[task], tasks.gain[task], task if task in apart else -1) if wired else ()
        own = tasks.component[task] if tasks.component[task] in rivals else -1  # rivals of others are distinct
        members.setdefault((*what, *whom, own), []).append(task)
    return tuple(
        Group(
            tasks=tuple(alike),
            pin=int(view.pins[alike[0]]),
            memory_mb=float(tasks.memory_mb[alike[0]]),
            work=float(view.work[alike[0]]),
            needs=tuple((tasks.needs[alike[0]] * tasks.gain[alike[0]]).tolist()),
        )
        for alike in members.values()
    )


def exchanges(view: PlacementView, groups: tuple[Group, ...]) -> tuple[Exchange, ...]:
    """Return what wired groups send each other, without streams that send nothing."""
    tasks = view.tasks
    group_of = _group_of(groups, tasks.number)
    found = []
    for flow in tasks.flows:
        senders, receivers = np.array(tasks.of(flow.source)), np.array(tasks.of(flow.target))
        if flow.grouping is Grouping.FORWARD:
            pairs = dict.fromkeys(zip(senders.tolist(), receivers.tolist(), strict=True))
        else:
            heard = receivers[:1] if flow.grouping is Grouping.GLOBAL else receivers
            speaker, listener = _one_of_each(group_of, senders), _one_of_each(group_of, heard)
            pairs = dict.fromkeys((a, b) for a in speaker for b in listener)
        for sender, receiver in pairs:
            bits = float(tasks.gain[sender] * flow.share * flow.tuple_bytes * BITS)
            if bits > 0:
                found.append(Exchange(flow.stream, int(group_of[sender]), int(group_of[receiver]), bits))
    return tuple(found)


def _distinguished_tasks(view: PlacementView) -> frozenset[int]:
    """Return the tasks that a stream treats differently from others of their component."""
    tasks = view.tasks
    apart: set[int] = set()
    for flow in tasks.flows:
        if flow.grouping is Grouping.FORWARD:
            apart.update(tasks.of(flow.source), tasks.of(flow.target))
        elif flow.grouping is Grouping.GLOBAL:
            apart.add(int(tasks.first[flow.target]))
    return frozenset(apart)


def _group_of(groups: tuple[Group, ...], tasks: int) -> Ints:
    group_of = np.empty(tasks, dtype=np.int32)
    for number, group in enumerate(groups):
        group_of[list(group.tasks)] = number
    return group_of


def _one_of_each(group_of: Ints, tasks: Ints) -> list[int]:
    _, first = np.unique(group_of[tasks], return_index=True)
    return [int(task) for task in tasks[first]]
