"""What a routing policy looks at: out-queues and the lanes that leave them, as engines know them at a decision.

Both engines keep these tables: the simulator one for all tasks, a worker of the runtime one a queue. A decision is made
for the queues of one task, rows `first` to `last`, and adds how many tuples go to each of their lanes to `sent`.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import lean
from penstock.model.slotted import UNLIMITED, Longs
from penstock.model.taskgraph import Floats


class Queues(NamedTuple):
    """Out-queues; Q of them."""

    lanes: Longs  # [Q + 1] the lanes of queue q are lanes[q] .. lanes[q + 1]
    waiting: Longs  # [Q] tuples in it: Q_out, with those that are predicted
    allowed: Longs  # [Q] those that may leave now, whatever waits
    arrived: Longs  # [Q] those of a source's that have actually arrived, and must leave: Q_rem(t, 0); 0 elsewhere
    turn: Longs  # [Q] the lane that is next in turn, from 0; state that decisions change
    start: (
        Longs  # [Q] of a task's first queue: which of its queues is served first, from 0; state that decisions change
    )
    price: Floats  # [Q] what the next tuple would cost, by the decision's own measure; decisions set it


class Lanes(NamedTuple):
    """Lanes; L of them."""

    backlog: Floats  # [L] tuples in the target's in-queue, as last heard: Q_in
    flying: Floats  # [L] tuples on their way to the target from anyone, as far as is known
    outstanding: Floats  # [L] tuples that went down this lane and are not processed yet
    cost: Floats  # [L] of a tuple: U
    onward: Floats  # [L] the least cost of all that follows from a tuple at the target
    ahead: Floats  # [L] the price of all that follows from a tuple at the target, as last heard
    speed: Floats  # [L] tuples that the target serves a slot, at most
    senders: Floats  # [L] tasks that send to the target over this stream, this one among them
    room: Longs  # [L] tuples that it may take now
    weight: Floats  # [L] state that decisions change; begins at 0
    score: Floats  # [L] scratch
    order: Longs  # [L] scratch


def empty_queues(lanes: Longs) -> Queues:
    """Return queues with nothing in them, of lanes given as ranges."""
    queues = len(lanes) - 1
    waiting, arrived, turn, start = (np.zeros(queues, dtype=np.int64) for _ in range(4))
    allowed = np.full(queues, UNLIMITED, dtype=np.int64)
    return Queues(lanes, waiting, allowed, arrived, turn, start, np.zeros(queues))


@lean
def queue_at(queues: Queues, first: int, last: int, place: int) -> int:
    """Return the queue that has a place, from 0, in the order in which the queues of a task are served."""
    return int(first + (queues.start[first] + place) % (last - first))


@lean
def rotate(queues: Queues, first: int, last: int) -> None:
    """Let the next queue of a task be served first from now on, since what may leave was not enough for all."""
    if last - first > 1:
        queues.start[first] = (queues.start[first] + 1) % (last - first)


def idle_lanes(cost: Floats, onward: Floats, speed: Floats, senders: Floats) -> Lanes:
    """Return lanes down which nothing has gone."""
    backlog, flying, outstanding, ahead, weight, score = (np.zeros(len(cost)) for _ in range(6))
    room = np.full(len(cost), UNLIMITED, dtype=np.int64)
    order = np.zeros(len(cost), dtype=np.int64)
    return Lanes(backlog, flying, outstanding, cost, onward, ahead, speed, senders, room, weight, score, order)
