"""POTUS (Algorithm 1): send where l = V·U + Q_in − β·Q_out is minimal and negative, all to one task, then to the next.

Where the paper is open: ties are random; what a source must send (4) without a candidate is distributed over the
downstream tasks by `spread`; if (4) exceeds γ, γ holds, and the streams of a task take turns to be first. `in_flight`
uses the appendix's form of (8), in which a decision counts tuples in flight; (8) itself does not.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np

from penstock.model.entity import NonNegative, Positive
from penstock.model.kernel import lean
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.in_turn import deal
from penstock.policies.tuples.kinds import POTUS
from penstock.policies.tuples.lanes import Lanes, Queues, queue_at, rotate
from penstock.policies.tuples.shuffle import shuffle

Spread = Literal["even", "random", "least", "none"]
_EVEN, _RANDOM, _LEAST, _NONE = range(len(get_args(Spread)))


@dataclass(frozen=True, slots=True)
class Potus(RoutingPolicy):
    """Trade communication cost against queues in every slot.

    v: the weight V of communication cost against queue lengths.
    beta: the weight β of out-queues against in-queues.
    spread: distribution of tuples that a source must send although no queue is short enough: even, random, least (the
        smallest l), or none: they wait, and (4) is violated.
    in_flight: tuples in flight count as queued, and those that are served until they arrive do not.
    """

    v: NonNegative = 3.0
    beta: Positive = 1.0
    spread: Spread = "least"
    in_flight: bool = False
    keyed: ClassVar[bool] = False
    looks: ClassVar[bool] = True
    compares: ClassVar[bool] = True
    holds: ClassVar[bool] = True

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(POTUS, self.v, self.beta, get_args(Spread).index(self.spread), self.in_flight)


@lean
def potus(
    settings: Floats,
    queues: Queues,
    lanes: Lanes,
    first: int,
    last: int,
    limit: int,
    rng: np.random.Generator,
    sent: Longs,
) -> int:
    """Decide for the queues `first` to `last` of one task; return the number of tuples sent."""
    v, beta, counted = settings[0], settings[1], settings[3] > 0.0
    for queue in range(first, last):
        for lane in range(queues.lanes[queue], queues.lanes[queue + 1]):
            known = lanes.backlog[lane]
            if counted:
                known = max(0.0, known + lanes.flying[lane] - lanes.speed[lane])  # (25)
            lanes.score[lane] = v * lanes.cost[lane] + known - beta * queues.waiting[queue]  # (16)
    left = limit
    for _ in range(queues.lanes[last] - queues.lanes[first]):
        if left == 0:
            break
        best, owner = _least(queues, lanes, first, last, sent, rng)
        if best < 0 or lanes.score[best] >= 0.0:
            break
        count = min(left, _able(queues, owner) - _gone(queues, owner, sent), lanes.room[best])
        sent[best] += count
        left -= count
    spread, short = int(settings[2]), False
    for place in range(last - first):
        queue = queue_at(queues, first, last, place)
        # (4), as far as (1) allows
        wanted = min(queues.arrived[queue], queues.allowed[queue]) - _gone(queues, queue, sent)
        short |= wanted > left
        rest = min(left, wanted)
        if rest > 0 and spread != _NONE:
            left -= _spread(spread, queues, lanes, queue, rest, rng, sent)
    if short:
        rotate(queues, first, last)
    return limit - left


@lean
def _spread(
    spread: int, queues: Queues, lanes: Lanes, queue: int, rest: int, rng: np.random.Generator, sent: Longs
) -> int:
    """Send the remaining tuples that have arrived at a source; return the number of tuples sent."""
    if spread == _EVEN:
        return deal(queues, lanes, queue, rest, False, sent)
    if spread == _RANDOM:
        return shuffle(queues, lanes, queue, rest, rng, sent)
    went = 0
    for _ in range(queues.lanes[queue + 1] - queues.lanes[queue]):  # once, unless lanes are full
        least, ties = -1, 0
        for lane in range(queues.lanes[queue], queues.lanes[queue + 1]):
            if sent[lane] >= lanes.room[lane]:
                continue
            if least < 0 or lanes.score[lane] < lanes.score[least]:
                least, ties = lane, 1
            elif lanes.score[lane] == lanes.score[least]:
                ties += 1
                if int(rng.random() * ties) == 0:
                    least = lane
        if least < 0 or went == rest:
            break
        count = min(rest - went, lanes.room[least] - sent[least])
        sent[least] += count
        went += count
    return went


@lean
def _least(
    queues: Queues, lanes: Lanes, first: int, last: int, sent: Longs, rng: np.random.Generator
) -> tuple[int, int]:
    """Return the lane with the smallest l, and its queue, among unused ones whose queue has tuples left."""
    best, owner, ties = -1, -1, 0
    for queue in range(first, last):
        if _able(queues, queue) <= _gone(queues, queue, sent):
            continue
        for lane in range(queues.lanes[queue], queues.lanes[queue + 1]):
            if sent[lane] > 0 or lanes.room[lane] <= 0:
                continue
            if best < 0 or lanes.score[lane] < lanes.score[best]:
                best, owner, ties = lane, queue, 1
            elif lanes.score[lane] == lanes.score[best]:
                ties += 1
                if int(rng.random() * ties) == 0:
                    best, owner = lane, queue
    return best, owner


@lean
def _able(queues: Queues, queue: int) -> int:
    """Return the number of tuples of a queue that may leave."""
    return int(min(queues.waiting[queue], queues.allowed[queue]))


@lean
def _gone(queues: Queues, queue: int, sent: Longs) -> int:
    """Return the number of tuples of a queue that have a lane."""
    gone = 0
    for lane in range(queues.lanes[queue], queues.lanes[queue + 1]):
        gone += sent[lane]
    return gone
