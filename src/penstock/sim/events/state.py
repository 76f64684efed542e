"""The tables of a simulation: tuples in lists, roots, tasks, slots, machines, pipes, and counters.

A tuple is a row. Lists link rows, so that queues need no storage of their own. Tuples that are sent together form a
*frame*, a chain of rows identified by its first. A *root* is a source tuple; everything that follows from it carries
its number. There are few, two-dimensional tables, because compiled code counts references to every array argument.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import lean
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.sim.events.clocks import new_clocks
from penstock.sim.events.layout import Layout
from penstock.sim.events.system import Small, TwinSystem

NONE = -1
CAME = -1  # replaces a frame's position on its path: the frame has arrived and waits for earlier ones
ROWS = 1 << 12  # initial capacity in tuples and roots

EMITTED, SENT, ARRIVED, EXIT = range(4)
"""Times of a tuple: entered the out-queue; left it; entered the in-queue, or, for a source tuple, was due; leaves the
pipe that its frame is in (for a frame's first)."""

ROOT, LANE, AFTER, ID, LAST, SIZE, STEP, NEXT = range(8)
"""Numbers of a tuple: its root; its lane; the next row in its list; its number if it is traced, else 0; and for a
frame's first: the frame's last row, the number of rows, its position on its path, the next frame."""

PARENT, MACHINE = range(2)
"""Of a traced tuple: the number of its parent, and the machine that sent it."""

PENDING, OWNER, FOLLOWED, LOST, ONWARD = range(5)
"""Of a root: the number of tuples in the system that follow from it; its source task; its number if it is traced, else
0; whether a part of it was lost; the next free one."""

HEAD, TAIL, COUNT = range(3)
"""Of a list."""

CREDITS, CONSUMED, TAKEN, AWAITED, LATEST = range(5)
"""Of a lane: tuples that it may send; processed ones without returned credit; those whose service started; the first
and the last frame of its chain (`chains`), NONE without a chain."""

BACKLOG, TURN, ONE, OTHER = range(4)
"""Of an out-queue: waiting tuples; the next lane in turn; the lanes of the first tuple's key, while it waits."""

FIRST_ARRIVAL, UNTIL, BLOCKED_SINCE, BUSY, WAITED, BLOCKED = range(6)
"""Of a task: arrival of its first waiting tuple; end of its suspension; since when a full queue blocks it; s in
service; s that tuples waited; s blocked."""

SERVING, ALIVE, PROCESSED, GIVEN, STARTED = range(5)
"""Of a task: whether it is in service; a source's tuples in flight; processed, emitted and started tuples."""

SINCE, ATTAINED, USED = range(3)
"""Of a machine: the time of its last event; the service attained by a task that was always present; core-seconds."""

FREE_ROW, ROWS_LEFT, FREE_ROOT, ROOTS_LEFT, LAST_ID, NEXT_DUE, OFFERED, EMITTED_ROOTS, COMPLETED, LOST_ROOTS, HOPS = (
    range(11)
)
LATENCIES, HOP_RECORDS, ROOT_RECORDS, DONE_RECORDS = range(11, 15)
"""Of the simulation: the free entries; the last number of a traced tuple; the next source tuple due; counters; the
used part of each buffer."""

ALARM, DUE = range(2)
PIPES = 2
"""Leaves of the tree of clocks: the end of a suspension, the next source tuple, then the pipes, then the machines."""


class TwinState(NamedTuple):
    """The mutable state; P rows, R roots, T tasks, Q out-queues, E lanes, S slots, M machines, L pipes."""

    times: Floats  # [P, 4]
    rows: Small  # [P, 8]
    before: Small  # [P] of a frame's first, in a pipe whose latency varies: the previous frame, if any
    kin: Longs  # [P, 2]
    due: Floats  # [R]
    roots: Small  # [R, 5]
    lists: Small  # [T + Q + E + L, 3] in-queues, out-queues (not bound), lanes, pipes (of frames)
    lanes: Longs  # [E, 5]
    transfer: Floats  # [E] s from out-queue to start of service, sum
    queues: Longs  # [Q, 4]
    carried: Floats  # [Q] fractions of tuples carried over
    task: Floats  # [T, 6]
    tasks: Longs  # [T, 5]
    serving: Small  # [S, 2] the row and the task in service, NONE if idle
    started: Floats  # [S]
    machine: Floats  # [M, 3]
    busy: Small  # [M] slots in service
    ends: Floats  # [S] attained service at which services end, by machine, the latest first
    order: Small  # [S] their slots
    card: Floats  # [cards] when each is free
    clocks: Floats  # [2 leaves] a tree
    counts: Longs  # [15]
    touched: Small  # lanes that may send: their number, then the lanes
    dealt: Small  # out-queues that may bind, likewise
    kicked: Small  # slots that may start, likewise
    varied: Small  # frames whose latency must be drawn, likewise
    latencies: Floats  # of completed trees
    hop_times: Floats  # [H, 5]
    hop_numbers: Longs  # [H, 6]
    root_times: Floats  # [H, 4] due, emitted; due, finished
    root_numbers: Longs  # [H, 4] number, task; number, task


class Dues(NamedTuple):
    """Source tuples in order of their due times; N of them."""

    times: Floats  # [N]
    task: Small  # [N]
    followed: Small  # [N] whether each is traced
    waited_s: float  # how long each has waited when it becomes due


def new_twin_state(system: TwinSystem, layout: Layout, turns: Longs, rng: np.random.Generator) -> TwinState:
    """Return the initial state; turns: of out-queues."""
    tasks, queues, lanes, slots = system.tasks, len(system.bound), len(system.queue), len(layout.machine)
    machines, pipes = len(layout.cores), len(layout.card)
    rows = max(ROWS, 4 * system.most)
    lists = np.full((tasks + queues + lanes + pipes, 3), NONE, dtype=np.int32)
    lists[:, COUNT] = 0
    lane = np.zeros((lanes, 5), dtype=np.int64)
    lane[:, CREDITS] = system.window
    lane[:, AWAITED] = lane[:, LATEST] = NONE
    queue = np.zeros((queues, 4), dtype=np.int64)
    queue[:, TURN] = turns
    queue[:, ONE] = NONE
    task = np.zeros((tasks, 6))
    task[:, FIRST_ARRIVAL] = np.inf
    task[:, BLOCKED_SINCE] = np.inf
    count = np.zeros(15, dtype=np.int64)
    count[ROWS_LEFT] = count[ROOTS_LEFT] = rows
    return TwinState(
        times=np.zeros((rows, 4)),
        rows=_linked(rows, 8, AFTER, 0, NONE),
        before=np.full(rows, NONE, dtype=np.int32),
        kin=np.zeros((rows, 2), dtype=np.int64),
        due=np.zeros(rows),
        roots=_linked(rows, 5, ONWARD, 0, NONE),
        lists=lists,
        lanes=lane,
        transfer=np.zeros(lanes),
        queues=queue,
        carried=rng.random(queues),  # so that tasks are not synchronised
        task=task,
        tasks=np.zeros((tasks, 5), dtype=np.int64),
        serving=np.full((slots, 2), NONE, dtype=np.int32),
        started=np.zeros(slots),
        machine=np.zeros((machines, 3)),
        busy=np.zeros(machines, dtype=np.int32),
        ends=np.zeros(slots),
        order=np.zeros(slots, dtype=np.int32),
        card=np.zeros(int(layout.card.max(initial=-1)) + 1),
        clocks=new_clocks(PIPES + pipes + machines),
        counts=count,
        touched=np.zeros(lanes + system.most + 8, dtype=np.int32),
        dealt=np.zeros(queues + 8, dtype=np.int32),
        kicked=np.zeros(tasks + slots + 8, dtype=np.int32),
        varied=np.zeros(lanes + system.most + 9, dtype=np.int32),
        latencies=np.zeros(rows),
        hop_times=np.zeros((16, 5)),
        hop_numbers=np.zeros((16, 6), dtype=np.int64),
        root_times=np.zeros((16, 4)),
        root_numbers=np.zeros((16, 4), dtype=np.int64),
    )


def _linked(rows: int, columns: int, link: int, first: int, end: int) -> Small:
    """Return free rows, each linked to the next, the last to `end`."""
    table = np.zeros((rows, columns), dtype=np.int32)
    table[:, link] = np.arange(first + 1, first + rows + 1)
    table[-1, link] = end
    return table


def more_rows(state: TwinState) -> TwinState:
    """Return the same state with twice the capacity for tuples."""
    size, count = len(state.rows), state.counts
    more = _linked(size, 8, AFTER, size, int(count[FREE_ROW]))
    count[FREE_ROW] = size
    count[ROWS_LEFT] += size
    return state._replace(
        times=np.concatenate([state.times, np.zeros_like(state.times)]),
        rows=np.concatenate([state.rows, more]),
        before=np.concatenate([state.before, np.full(size, NONE, dtype=np.int32)]),
        kin=np.concatenate([state.kin, np.zeros_like(state.kin)]),
    )


def more_roots(state: TwinState) -> TwinState:
    """Return the same state with twice the capacity for roots."""
    size, count = len(state.roots), state.counts
    more = _linked(size, 5, ONWARD, size, int(count[FREE_ROOT]))
    count[FREE_ROOT] = size
    count[ROOTS_LEFT] += size
    return state._replace(due=np.concatenate([state.due, np.zeros(size)]), roots=np.concatenate([state.roots, more]))


def more_records(state: TwinState) -> TwinState:
    """Return the same state with twice the capacity for records."""
    return state._replace(
        hop_times=np.concatenate([state.hop_times, np.zeros_like(state.hop_times)]),
        hop_numbers=np.concatenate([state.hop_numbers, np.zeros_like(state.hop_numbers)]),
        root_times=np.concatenate([state.root_times, np.zeros_like(state.root_times)]),
        root_numbers=np.concatenate([state.root_numbers, np.zeros_like(state.root_numbers)]),
    )


def more_latencies(state: TwinState) -> TwinState:
    """Return the same state with twice the capacity for latencies."""
    return state._replace(latencies=np.concatenate([state.latencies, np.zeros_like(state.latencies)]))


@lean
def take_row(rows: Small, count: Longs) -> int:
    """Return a free row; there must be one."""
    row: int = count[FREE_ROW]
    count[FREE_ROW] = rows[row, AFTER]
    count[ROWS_LEFT] -= 1
    return row


@lean
def release_row(rows: Small, count: Longs, row: int) -> None:
    """Release a row."""
    rows[row, AFTER] = count[FREE_ROW]
    count[FREE_ROW] = row
    count[ROWS_LEFT] += 1


@lean
def push(rows: Small, lists: Small, number: int, row: int) -> None:
    """Append a tuple to a list."""
    rows[row, AFTER] = NONE
    if lists[number, COUNT] == 0:
        lists[number, HEAD] = row
    else:
        rows[lists[number, TAIL], AFTER] = row
    lists[number, TAIL] = row
    lists[number, COUNT] += 1


@lean
def pop(rows: Small, lists: Small, number: int) -> int:
    """Remove the first tuple of a non-empty list."""
    row: int = lists[number, HEAD]
    lists[number, HEAD] = rows[row, AFTER]
    lists[number, COUNT] -= 1
    return row


@lean
def note(noted: Small, number: int) -> None:
    """Mark a queue, a lane or a slot."""
    noted[0] += 1
    noted[noted[0]] = number
