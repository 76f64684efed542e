"""The routing decision, for every engine: how many tuples of a task's out-queues go to each downstream task.

`route` dispatches on the number of a rule inside one compiled function. Simulator and runtime call the same one, once
per task and slot or once per batch, never for a single tuple.
"""

import numpy as np

from penstock.model.kernel import kernel, lean
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.tuples.in_turn import deal
from penstock.policies.tuples.kinds import (
    IN_TURN,
    LEAST_LOADED,
    LOAD_AWARE,
    LOCAL_FIRST,
    PARTIAL_KEY,
    POTUS,
    POTUS_PLUS,
)
from penstock.policies.tuples.lanes import Lanes, Queues, queue_at, rotate
from penstock.policies.tuples.load_aware import load_aware
from penstock.policies.tuples.potus import potus
from penstock.policies.tuples.potus_plus import potus_plus, price_bound
from penstock.policies.tuples.shuffle import shuffle


@kernel
def route(
    kind: int,
    settings: Floats,
    queues: Queues,
    lanes: Lanes,
    first: int,
    last: int,
    limit: int,
    rng: np.random.Generator,
    sent: Longs,
) -> int:
    """Decide for the queues `first` to `last` of one task, of which at most `limit` tuples may leave.

    `sent` is 0 for their lanes, and is set. Returns the number of tuples sent.
    """
    return route_lean(kind, settings, queues, lanes, first, last, limit, rng, sent)


@lean
def route_lean(
    kind: int,
    settings: Floats,
    queues: Queues,
    lanes: Lanes,
    first: int,
    last: int,
    limit: int,
    rng: np.random.Generator,
    sent: Longs,
) -> int:
    """Decide as `route` does, within a kernel."""
    if kind == POTUS:
        return potus(settings, queues, lanes, first, last, limit, rng, sent)
    if kind == POTUS_PLUS:
        return potus_plus(settings, queues, lanes, first, last, limit, sent)
    left, short = limit, False
    for place in range(last - first):
        queue = queue_at(queues, first, last, place)
        wanted = min(queues.waiting[queue], queues.allowed[queue])
        short |= wanted > left
        amount = min(left, wanted)
        if amount > 0:
            left -= _route_queue(kind, settings, queues, lanes, queue, amount, rng, sent)
    if short:
        rotate(queues, first, last)
    return limit - left


@lean
def _route_queue(
    kind: int,
    settings: Floats,
    queues: Queues,
    lanes: Lanes,
    queue: int,
    amount: int,
    rng: np.random.Generator,
    sent: Longs,
) -> int:
    if kind == IN_TURN:
        return deal(queues, lanes, queue, amount, False, sent)
    if kind == LOCAL_FIRST:
        return deal(queues, lanes, queue, amount, True, sent)
    if kind == LOAD_AWARE:
        return load_aware(settings, queues, lanes, queue, amount, rng, sent)
    if kind == LEAST_LOADED:
        return _least_loaded(queues, lanes, queue, amount, sent)
    return shuffle(queues, lanes, queue, amount, rng, sent)


@lean
def _least_loaded(queues: Queues, lanes: Lanes, queue: int, amount: int, sent: Longs) -> int:
    """Send every tuple to the lane with the fewest in flight, ties in turn; return how many were sent."""
    begin, end = queues.lanes[queue], queues.lanes[queue + 1]
    went = 0
    for _ in range(amount):
        best = -1
        for offset in range(end - begin):
            lane = begin + (queues.turn[queue] + offset) % (end - begin)
            load = lanes.outstanding[lane] + sent[lane]
            if sent[lane] < lanes.room[lane] and (best < 0 or load < lanes.outstanding[best] + sent[best]):
                best = lane
        if best < 0:
            break
        sent[best] += 1
        went += 1
        queues.turn[queue] = (best + 1 - begin) % (end - begin)
    return went


@lean
def tell_price(kind: int, settings: Floats, queues: Queues, lanes: Lanes, queue: int, copies: bool) -> None:
    """Set the price of a queue without a choice: all tuples go to every lane, or as their keys require."""
    if kind == POTUS_PLUS:
        queues.price[queue] = price_bound(settings, lanes, queues.lanes[queue], queues.lanes[queue + 1], copies)


@lean
def choose_keyed(kind: int, lanes: Lanes, own: int, other: int, sent: Longs) -> int:
    """Return the lane of a tuple whose key has these two; -1 without room."""
    lane = own
    if kind == PARTIAL_KEY:
        full = sent[own] >= lanes.room[own]
        less = lanes.outstanding[other] + sent[other] < lanes.outstanding[own] + sent[own]
        if full or (less and sent[other] < lanes.room[other]):
            lane = other
    return lane if sent[lane] < lanes.room[lane] else -1
