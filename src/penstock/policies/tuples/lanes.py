"""Input of a routing policy: out-queues and their lanes, as an engine knows them when it decides.

Both engines keep these tables: the simulator one for all tasks, a worker of the runtime one per queue. A decision is
made for the queues of one task, rows `first` to `last`, and adds the number of tuples for each of their lanes to
`sent`.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import lean
from penstock.model.slotted import UNLIMITED, Longs
from penstock.model.taskgraph import Floats


class Queues(NamedTuple):
    """Out-queues; Q of them."""

    lanes: Longs  # [Q + 1] the lanes of queue q are lanes[q] .. lanes[q + 1]
    waiting: Longs  # [Q] tuples in it: Q_out, including predicted ones
    allowed: Longs  # [Q] maximum number that may leave now
    arrived: Longs  # [Q] for a source, those that have actually arrived and must leave: Q_rem(t, 0); else 0
    turn: Longs  # [Q] the lane that is next in turn, from 0; state that decisions change
    start: (
        Longs  # [Q] of a task's first queue: which of its queues is served first, from 0; state that decisions change
    )
    price: Floats  # [Q] price of the next tuple, set by decisions


class Lanes(NamedTuple):
    """Lanes; L of them."""

    backlog: Floats  # [L] tuples in the target's in-queue, as last reported: Q_in
    flying: Floats  # [L] tuples in flight to the target from all senders, as far as known
    outstanding: Floats  # [L] tuples sent over this lane and not processed yet
    cost: Floats  # [L] of a tuple: U
    onward: Floats  # [L] minimum cost of all descendants of a tuple at the target
    ahead: Floats  # [L] price of all descendants of a tuple at the target, as last reported
    speed: Floats  # [L] maximum number of tuples that the target serves per slot
    senders: Floats  # [L] tasks that send to the target over this stream, including this one
    room: Longs  # [L] tuples that it may take now
    weight: Floats  # [L] state that decisions change; initially 0
    score: Floats  # [L] scratch
    order: Longs  # [L] scratch


def empty_queues(lanes: Longs) -> Queues:
    """Return empty queues with the given ranges of lanes."""
    queues = len(lanes) - 1
    waiting, arrived, turn, start = (np.zeros(queues, dtype=np.int64) for _ in range(4))
    allowed = np.full(queues, UNLIMITED, dtype=np.int64)
    return Queues(lanes, waiting, allowed, arrived, turn, start, np.zeros(queues))


@lean
def queue_at(queues: Queues, first: int, last: int, place: int) -> int:
    """Return the queue at a position, from 0, in the serving order of a task's queues."""
    return int(first + (queues.start[first] + place) % (last - first))


@lean
def rotate(queues: Queues, first: int, last: int) -> None:
    """Serve the next queue of a task first from now on, because the limit did not suffice for all."""
    if last - first > 1:
        queues.start[first] = (queues.start[first] + 1) % (last - first)


def idle_lanes(cost: Floats, onward: Floats, speed: Floats, senders: Floats) -> Lanes:
    """Return unused lanes."""
    backlog, flying, outstanding, ahead, weight, score = (np.zeros(len(cost)) for _ in range(6))
    room = np.full(len(cost), UNLIMITED, dtype=np.int64)
    order = np.zeros(len(cost), dtype=np.int64)
    return Lanes(backlog, flying, outstanding, cost, onward, ahead, speed, senders, room, weight, score, order)
