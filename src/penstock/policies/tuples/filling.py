"""Water-filling: distribute tuples over lanes so that their levels become equal.

A lane's score is its level; a tuple raises it by one over the lane's speed. Nothing is sorted: the final level is found
in a few passes over the lanes, however many tuples there are.
"""

import numpy as np

from penstock.model.kernel import kernel, lean
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.tuples.lanes import Lanes

FEW = 32  # number of lanes up to which each tuple searches them


@lean
def fill(lanes: Lanes, first: int, last: int, amount: int, others: float, turn: int, sent: Longs) -> int:
    """Send `amount` tuples to lanes `first` to `last` by their scores and speeds; return how many were sent.

    others: number of senders assumed to do the same at the same time, including this one. Their tuples are distributed
    together, and each sends its part to every lane; fractions of tuples are carried over in `lanes.weight`, so that
    over time every lane receives exactly its part. Ties go to the first lane from `turn` on.
    """
    went = 0
    for _ in range(last - first):  # once, unless lanes are full: then the remainder is distributed over the others
        more = _pour(lanes, first, last, amount - went, others, turn, sent)
        went += more
        if more == 0 or went == amount:
            break
    return went


@lean
def _pour(lanes: Lanes, first: int, last: int, amount: int, others: float, turn: int, sent: Longs) -> int:
    """Send tuples to lanes with room below the level; fewer than `amount` if these become full."""
    score, speed, weight, room, order = lanes.score, lanes.speed, lanes.weight, lanes.room, lanes.order
    top = _level(score, speed, room, first, last, amount * others, sent)
    went, able, lane = 0, 0, first + turn % (last - first)
    for _ in range(last - first):
        if room[lane] > sent[lane] and score[lane] <= top:
            weight[lane] = min(1.0, weight[lane]) + (top - score[lane]) * speed[lane] / others
            count = max(0, min(int(weight[lane]), room[lane] - sent[lane], amount - went))
            weight[lane] -= count
            sent[lane] += count
            went += count
            if room[lane] > sent[lane]:
                order[first + able] = lane
                able += 1
        lane = first if lane + 1 == last else lane + 1
    return went + _round_up(weight, room, order, first, able, amount - went, sent)


@lean
def _level(score: Floats, speed: Floats, room: Longs, first: int, last: int, amount: float, sent: Longs) -> float:
    """Return the final level: that of all lanes, then without those above it, until none is."""
    top, able = np.inf, -1
    for _ in range(last - first):
        width, held, below = 0.0, 0.0, 0
        for lane in range(first, last):
            if room[lane] > sent[lane] and score[lane] <= top:
                width += speed[lane]
                held += speed[lane] * score[lane]
                below += 1
        if below == able or below == 0:
            break
        top, able = (amount + held) / width, below
    return top


@lean
def _round_up(weight: Floats, room: Longs, order: Longs, first: int, able: int, amount: int, sent: Longs) -> int:
    """Send the remainder of `amount` to the lanes with the largest fractions; return how many were sent."""
    if able > FEW:
        return _round_up_many(weight, order, first, able, amount, sent)
    went = 0
    for _ in range(amount):
        best = -1
        for place in range(able):
            lane = order[first + place]
            if sent[lane] < room[lane] and (best < 0 or weight[lane] > weight[best]):
                best = lane
        if best < 0:
            break
        weight[best] -= 1.0
        sent[best] += 1
        went += 1
    return went


@lean
def _round_up_many(weight: Floats, order: Longs, first: int, able: int, amount: int, sent: Longs) -> int:
    """Send one tuple to each of the `amount` lanes with the largest fractions, or to all lanes."""
    least = _largest(weight, order, first, able, amount) if 0 < amount < able else -np.inf
    went = 0
    for equal in range(2):  # those above the smallest of them, then enough equal ones
        for place in range(able):
            lane = order[first + place]
            if went < amount and (weight[lane] == least if equal else weight[lane] > least):
                weight[lane] -= 1.0
                sent[lane] += 1
                went += 1
    return went


@kernel
def _largest(weight: Floats, order: Longs, first: int, able: int, amount: int) -> float:
    """Return the smallest of the `amount` largest weights."""
    found: float = np.partition(weight[order[first : first + able]], able - amount)[able - amount]
    return found
