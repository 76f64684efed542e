"""The tables of a simulation: tuples in lists, roots, what is counted.

A tuple is a row of `Tuples`; a list is a head, a tail and a size, so that a queue may grow without bound and many
tuples change queues at once. A *root* is a tuple that comes from outside, or was predicted to; all that follows from it
carries its number.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs, System
from penstock.model.taskgraph import Bools, Floats

NONE = -1


class Tuples(NamedTuple):
    """Tuples in the system, and free rows in a list of their own; P rows."""

    root: Longs  # [P]
    lane: Longs  # [P] down which it came; of a tuple of a source: none
    since: Longs  # [P] the slot in which it came to the queue that it is in
    after: Longs  # [P] the next one in its list


class Lists(NamedTuple):
    """Lists of tuples; N of them."""

    head: Longs  # [N]
    tail: Longs  # [N]
    size: Longs  # [N]


class Roots(NamedTuple):
    """Tuples from outside, in order of task and slot; R of them."""

    due: Longs  # [R] the slot in which it arrives
    real: Bools  # [R] whether it does; otherwise it was only predicted
    pending: Longs  # [R] tuples in the system that follow from it
    done: Longs  # [R] the slot in which the last of them was processed; NONE: not yet


class Feed(NamedTuple):
    """When the roots of every task become known; S slots."""

    first: Longs  # [T, S + 1] the roots of task t due in slot s are first[t, s] .. first[t, s + 1]
    known: Longs  # [T, S] how many of them are predicted, the leading ones
    lead: Longs  # [T] W, slots ahead


class Counts(NamedTuple):
    """What is recorded of every slot, [S] each, and of the whole, [1]."""

    cost: Floats  # Θ(t), (11)
    queued_in: Longs  # ΣQ_in at the beginning of a slot
    queued_out: Longs  # ΣQ_out
    longest: Longs  # the longest out-queue at the end of a slot
    fairness: Floats  # Jain's index of out-queue lengths; of empty ones not a number
    waited: Floats  # [Q] slots that tuples waited in an out-queue
    left: Longs  # [Q] tuples that left it
    hops: Longs  # [1] tuples served
    dropped: Longs  # [1] predicted tuples that were not sent and did not come


class State(NamedTuple):
    """Everything that changes."""

    tuples: Tuples
    free: Longs  # [2] the first free row, and how many there are
    inbox: Lists  # [T] Q_in
    flying: Lists  # [T] sent in the last slot: X(t - 1)
    landing: Lists  # [T] sent in this slot: X(t)
    outbox: Lists  # [Q] Q_out; of a source Q_rem(t, 0)
    ahead: Lists  # [Q] of a source: the Σ Q_rem(t, w) over w > 0
    served: Floats  # [T] fractions of service carried over
    made: Floats  # [Q] fractions of tuples carried over
    roots: Roots


def grown(state: State) -> State:
    """Return the same state with twice the room for tuples."""
    rows = len(state.tuples.root)
    more = np.arange(rows + 1, 2 * rows + 1, dtype=np.int64)
    more[-1] = state.free[0]
    after = np.concatenate([state.tuples.after, more])
    root, lane, since = (np.concatenate([old, np.zeros_like(old)]) for old in state.tuples[:3])
    free = np.array([rows, state.free[1] + rows], dtype=np.int64)
    return state._replace(tuples=Tuples(root, lane, since, after), free=free)


def empty_lists(number: int) -> Lists:
    """Return lists with nothing in them."""
    head, tail = (np.full(number, NONE, dtype=np.int64) for _ in range(2))
    return Lists(head, tail, np.zeros(number, dtype=np.int64))


def empty_state(system: System, roots: Roots, rows: int) -> State:
    """Return the state at the beginning, with room for so many tuples at once."""
    after = np.arange(1, rows + 1, dtype=np.int64)
    after[-1] = NONE
    root, lane, since = (np.zeros(rows, dtype=np.int64) for _ in range(3))
    tasks, queues = system.tasks, len(system.emits)
    return State(
        tuples=Tuples(root, lane, since, after),
        free=np.array([0, rows], dtype=np.int64),
        inbox=empty_lists(tasks),
        flying=empty_lists(tasks),
        landing=empty_lists(tasks),
        outbox=empty_lists(queues),
        ahead=empty_lists(queues),
        served=np.zeros(tasks),
        made=np.zeros(queues),
        roots=roots,
    )


@kernel
def push(tuples: Tuples, lists: Lists, number: int, row: int) -> None:
    """Put a tuple at the end of a list."""
    tuples.after[row] = NONE
    if lists.size[number] == 0:
        lists.head[number] = row
    else:
        tuples.after[lists.tail[number]] = row
    lists.tail[number] = row
    lists.size[number] += 1


@kernel
def pop(tuples: Tuples, lists: Lists, number: int) -> int:
    """Take the first tuple of a list that is not empty."""
    row = lists.head[number]
    lists.head[number] = tuples.after[row]
    lists.size[number] -= 1
    return row


@kernel
def append(tuples: Tuples, source: Lists, target: Lists, number: int) -> None:
    """Put all of one list behind another."""
    if source.size[number] == 0:
        return
    if target.size[number] == 0:
        target.head[number] = source.head[number]
    else:
        tuples.after[target.tail[number]] = source.head[number]
    target.tail[number] = source.tail[number]
    target.size[number] += source.size[number]
    source.head[number] = source.tail[number] = NONE
    source.size[number] = 0


@kernel
def take(tuples: Tuples, free: Longs) -> int:
    """Return a free row; there is one."""
    row = free[0]
    free[0] = tuples.after[row]
    free[1] -= 1
    return row


@kernel
def release(tuples: Tuples, free: Longs, row: int) -> None:
    """Give a row back."""
    tuples.after[row] = free[0]
    free[0] = row
    free[1] += 1
