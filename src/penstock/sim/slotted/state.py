"""The tables of a simulation: tuples in lists, roots, counters; and the check that each tuple is in one place.

A tuple is a row, and lists link rows, so that a queue may grow without bound and many tuples change queues at once. A
*root* is a tuple that arrives from outside, or was predicted to; everything that follows from it carries its number.
There are few, two-dimensional tables, because compiled code counts references to every array argument.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel, lean
from penstock.model.slotted import Longs, SlottedSystem
from penstock.model.taskgraph import Floats
from penstock.policies.tuples.lanes import Lanes

NONE = -1

ROOT, LANE, SINCE, AFTER = range(4)
"""Columns of a tuple: its root; its last lane; the slot in which it entered its queue; the next in its list."""

HEAD, TAIL, SIZE = range(3)
"""Columns of a list."""

DUE, REAL, PENDING, DONE = range(4)
"""Columns of a root: the slot in which it arrives; whether it arrives or was only predicted; the number of tuples in
the system that follow from it; the slot in which the last of them was processed."""


class SlottedState(NamedTuple):
    """The mutable state; T tasks, Q out-queues, P rows for tuples, R roots.

    The lists are, in this order: the in-queues [T]; tuples sent to each task in the previous slot, X(t - 1) [T]; those
    sent in this slot, X(t) [T]; the out-queues, of a source Q_rem(t, 0) [Q]; a source's predicted tuples, the sum of
    Q_rem(t, w) over w > 0 [Q].
    """

    rows: Longs  # [P, 4]
    free: Longs  # [2] the first free row, and the number of free rows
    lists: Longs  # [3T + 2Q, 3]
    served: Floats  # [T] fractions of service carried over
    made: Floats  # [Q] fractions of tuples carried over
    roots: Longs  # [R, 4]


class RootArrivals(NamedTuple):
    """The times at which the roots of every task become known; S slots."""

    first: Longs  # [T, S + 1] the roots of task t due in slot s are first[t, s] .. first[t, s + 1]
    known: Longs  # [T, S] the number of them that are predicted, which come first
    lead: Longs  # [T] W, slots ahead


class SlotCounts(NamedTuple):
    """Counters of every slot, [S] each, of every queue, and of the whole."""

    cost: Floats  # Θ(t), (11)
    queued_in: Longs  # ΣQ_in at the start of a slot
    queued_out: Longs  # ΣQ_out
    longest: Longs  # maximum length of an out-queue at the end of a slot
    fairness: Floats  # Jain's index of out-queue lengths; NaN if all are empty
    waited: Floats  # [Q] slots that tuples waited in an out-queue
    left: Longs  # [Q] tuples that left it
    hops: Longs  # [1] tuples served
    dropped: Longs  # [1] predicted tuples that were never sent and never arrived


def new_slotted_state(system: SlottedSystem, roots: Longs, rows: int) -> SlottedState:
    """Return the initial state, with capacity for `rows` simultaneous tuples."""
    tasks, queues = system.tasks, len(system.emits)
    lists = np.zeros((3 * tasks + 2 * queues, 3), dtype=np.int64)
    lists[:, HEAD] = lists[:, TAIL] = NONE
    table = np.zeros((rows, 4), dtype=np.int64)
    table[:, AFTER] = np.arange(1, rows + 1)
    table[-1, AFTER] = NONE
    return SlottedState(table, np.array([0, rows], dtype=np.int64), lists, np.zeros(tasks), np.zeros(queues), roots)


def grown(state: SlottedState) -> SlottedState:
    """Return the same state with twice the capacity for tuples."""
    rows = len(state.rows)
    more = np.zeros_like(state.rows)
    more[:, AFTER] = np.arange(rows + 1, 2 * rows + 1)
    more[-1, AFTER] = state.free[0]
    free = np.array([rows, state.free[1] + rows], dtype=np.int64)
    return state._replace(rows=np.concatenate([state.rows, more]), free=free)


@lean
def push(rows: Longs, lists: Longs, number: int, row: int) -> None:
    """Append a tuple to a list."""
    rows[row, AFTER] = NONE
    if lists[number, SIZE] == 0:
        lists[number, HEAD] = row
    else:
        rows[lists[number, TAIL], AFTER] = row
    lists[number, TAIL] = row
    lists[number, SIZE] += 1


@lean
def pop(rows: Longs, lists: Longs, number: int) -> int:
    """Remove the first tuple of a non-empty list."""
    row: int = lists[number, HEAD]
    lists[number, HEAD] = rows[row, AFTER]
    lists[number, SIZE] -= 1
    return row


@lean
def join(rows: Longs, lists: Longs, number: int, head: int, last: int, amount: int) -> None:
    """Append linked tuples to a list."""
    if lists[number, SIZE] == 0:
        lists[number, HEAD] = head
    else:
        rows[lists[number, TAIL], AFTER] = head
    lists[number, TAIL] = last
    lists[number, SIZE] += amount


@lean
def append(rows: Longs, lists: Longs, source: int, target: int) -> None:
    """Append one list to another."""
    if lists[source, SIZE] > 0:
        join(rows, lists, target, lists[source, HEAD], lists[source, TAIL], lists[source, SIZE])
        lists[source, SIZE] = 0


@lean
def take_row(rows: Longs, free: Longs) -> int:
    """Return a free row; there must be one."""
    row: int = free[0]
    free[0] = rows[row, AFTER]
    free[1] -= 1
    return row


@lean
def free_row(rows: Longs, free: Longs, row: int) -> None:
    """Release a row."""
    rows[row, AFTER] = free[0]
    free[0] = row
    free[1] += 1


FAULTS = (
    "",
    "the length of a list is wrong",
    "a tuple is in two lists",
    "a tuple is in no list",
    "the number of tuples that follow from a root is wrong",
    "the number of outstanding tuples of a lane is wrong",
)


@kernel
def first_fault(system: SlottedSystem, state: SlottedState, lanes: Lanes) -> int:
    """Return 0 if all tuples are accounted for, otherwise the index in FAULTS of what is wrong."""
    rows, lists, tasks = state.rows, state.lists, len(system.source)
    seen = np.zeros(len(rows), dtype=np.bool_)
    following = np.zeros(len(state.roots), dtype=np.int64)
    in_flight = np.zeros(len(lanes.outstanding))
    for number in range(len(lists) + 1):
        free = number == len(lists)
        row, last = (state.free[0], NONE) if free else (lists[number, HEAD], NONE)
        for _ in range(state.free[1] if free else lists[number, SIZE]):
            if row == NONE:
                return 1
            if seen[row]:
                return 2
            seen[row] = True
            if not free:
                following[rows[row, ROOT]] += 1
            if number < 3 * tasks:
                in_flight[rows[row, LANE]] += 1.0
            last, row = row, rows[row, AFTER]
        if not free and last != NONE and last != lists[number, TAIL]:
            return 1
    if not seen.all():
        return 3
    if (following != state.roots[:, PENDING]).any():
        return 4
    return 5 if (in_flight != lanes.outstanding).any() else 0
