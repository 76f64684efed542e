"""Fill lanes evenly, as water fills vessels of different heights and widths: most where least stands already.

A lane's score is how high it stands; a tuple raises it by one over the lane's speed. The level that the water reaches
takes L·log L steps for L lanes, however many tuples are poured.
"""

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.tuples.lanes import Lanes

FEW = 32  # lanes that are sorted by insertion


@kernel
def fill(lanes: Lanes, first: int, last: int, amount: int, others: float, turn: int, sent: Longs) -> int:
    """Send `amount` tuples to lanes `first` to `last` by their scores and speeds; return how many went.

    others: how many senders are taken to do the same at the same time, this one included. What they all send is poured
    together, and each sends its part of every lane's; fractions of tuples are carried over in `lanes.weight`, so that
    over time every lane gets its part exactly. Ties go to the first lane from `turn` on.
    """
    score, speed, order, weight, room = lanes.score, lanes.speed, lanes.order, lanes.weight, lanes.room
    able = _sort(score, room, order, first, last, turn, sent)
    if able == 0:
        return 0
    top = _level(score, speed, order, first, able, amount * others)
    went = 0
    for place in range(able):
        lane = order[first + place]
        if score[lane] >= top:
            break
        weight[lane] = min(1.0, weight[lane]) + (top - score[lane]) * speed[lane] / others
        count = max(0, min(int(weight[lane]), room[lane] - sent[lane], amount - went))
        weight[lane] -= count
        sent[lane] += count
        went += count
    return went + _round_up(score, weight, room, order, first, able, top, amount - went, sent)


@kernel
def _round_up(
    score: Floats,
    weight: Floats,
    room: Longs,
    order: Longs,
    first: int,
    able: int,
    top: float,
    amount: int,
    sent: Longs,
) -> int:
    """Send what is left of `amount`, less than one a lane, where the largest fractions are; return how many went."""
    went = 0
    for _ in range(amount):
        best = -1
        for place in range(able):
            lane = order[first + place]
            if score[lane] < top and sent[lane] < room[lane] and (best < 0 or weight[lane] > weight[best]):
                best = lane
        if best < 0:
            break
        weight[best] -= 1.0
        sent[best] += 1
        went += 1
    return went


@kernel
def _sort(score: Floats, room: Longs, order: Longs, first: int, last: int, turn: int, sent: Longs) -> int:
    """Put lanes with room in order of score into `order`, from `first` on; return how many there are.

    Few lanes are sorted by insertion, many by numpy; ties keep their order from `turn` on.
    """
    able, lane = 0, first + turn % (last - first)
    for _ in range(last - first):
        if room[lane] > sent[lane]:
            order[first + able] = lane
            able += 1
        lane = first if lane + 1 == last else lane + 1
    if able > FEW:
        chosen = order[first : first + able].copy()
        order[first : first + able] = chosen[np.argsort(score[chosen], kind="mergesort")]
        return able
    for place in range(1, able):
        lane, hole = order[first + place], place
        for _ in range(place):
            if hole == 0 or score[order[first + hole - 1]] <= score[lane]:
                break
            order[first + hole] = order[first + hole - 1]
            hole -= 1
        order[first + hole] = lane
    return able


@kernel
def _level(score: Floats, speed: Floats, order: Longs, first: int, able: int, amount: float) -> float:
    """Return how high the water stands after `amount` has been poured over the sorted lanes."""
    width, held, top = 0.0, 0.0, 0.0
    for place in range(able):
        lane = order[first + place]
        width += speed[lane]
        held += speed[lane] * score[lane]
        top = (amount + held) / width
        if place + 1 < able and top <= score[order[first + place + 1]]:
            break
    return top
