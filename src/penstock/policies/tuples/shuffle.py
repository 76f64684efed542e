"""Shuffle: every tuple goes to a uniformly random downstream task. Heron's default, and POTUS's baseline."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.model.kernel import lean
from penstock.model.slotted import Longs
from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import SHUFFLE
from penstock.policies.tuples.lanes import Lanes, Queues


@dataclass(frozen=True, slots=True)
class Shuffle(RoutingPolicy):
    """Send every tuple to a uniformly random downstream task."""

    keyed: ClassVar[bool] = False

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(SHUFFLE)


@lean
def shuffle(queues: Queues, lanes: Lanes, queue: int, amount: int, rng: np.random.Generator, sent: Longs) -> int:
    """Send `amount` tuples of a queue, each to a lane at random among those with room; return how many were sent."""
    first, last = queues.lanes[queue], queues.lanes[queue + 1]
    went = 0
    for _ in range(amount):
        lane = first + int(rng.random() * (last - first))
        for _ in range(last - first):  # a full one passes it to the next
            if sent[lane] < lanes.room[lane]:
                break
            lane = first if lane + 1 == last else lane + 1
        if sent[lane] >= lanes.room[lane]:
            break
        sent[lane] += 1
        went += 1
    return went
