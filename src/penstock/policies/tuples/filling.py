"""Fill lanes evenly, as water fills vessels of different heights and widths: highest where least stands already.

A lane's score is how high it stands; a tuple raises it by one over the lane's width. `level` finds how high the water
stands when so much has been poured in; it takes L·log L steps for L lanes, however many tuples there are.
"""

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs
from penstock.policies.tuples.lanes import Lanes


@kernel
def fill(lanes: Lanes, first: int, last: int, amount: int, share: float, rng: np.random.Generator, sent: Longs) -> int:
    """Send `amount` tuples to lanes `first` to `last` by their scores and speeds; return how many went.

    share: how many senders are taken to do the same at the same time; what they all send is poured together, and each
    sends its part of every lane's, rounded at random so that the expectation is exact and nothing is lost.
    """
    able = _sorted_by_score(lanes, first, last, sent)
    if able == 0 or amount == 0:
        return 0
    top = _level(lanes, first, able, amount * share)
    whole = rng.random()
    before = np.floor(whole)
    poured, went = whole, 0
    for place in range(able):
        lane = lanes.order[first + place]
        if lanes.score[lane] >= top:
            break
        poured += (top - lanes.score[lane]) * lanes.speed[lane] / share
        count = min(int(np.floor(poured + 1e-9) - before), lanes.room[lane] - sent[lane], amount - went)
        before = np.floor(poured + 1e-9)
        sent[lane] += count
        went += count
    return went


@kernel
def _sorted_by_score(lanes: Lanes, first: int, last: int, sent: Longs) -> int:
    """Put lanes with room in order of score, as `lanes.order[first:]`; return how many there are.

    Few lanes are sorted by insertion, which keeps ties in place; many by numpy.
    """
    able = 0
    for lane in range(first, last):
        if lanes.room[lane] > sent[lane]:
            lanes.order[first + able] = lane
            able += 1
    if able > 32:
        chosen = lanes.order[first : first + able].copy()
        lanes.order[first : first + able] = chosen[np.argsort(lanes.score[chosen])]
        return able
    for place in range(1, able):
        lane, hole = lanes.order[first + place], place
        for _ in range(place):
            if hole == 0 or lanes.score[lanes.order[first + hole - 1]] <= lanes.score[lane]:
                break
            lanes.order[first + hole] = lanes.order[first + hole - 1]
            hole -= 1
        lanes.order[first + hole] = lane
    return able


@kernel
def _level(lanes: Lanes, first: int, able: int, amount: float) -> float:
    """Return how high the water stands after `amount` has been poured over the sorted lanes."""
    width, held = 0.0, 0.0
    for place in range(able):
        lane = lanes.order[first + place]
        width += lanes.speed[lane]
        held += lanes.speed[lane] * lanes.score[lane]
        top = (amount + held) / width
        if place + 1 == able or top <= lanes.score[lanes.order[first + place + 1]]:
            return top
    return 0.0
