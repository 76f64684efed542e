"""Round-robin: downstream tasks in turn, like Storm's shuffle grouping and Flink's rebalance."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.model.kernel import lean
from penstock.model.slotted import Longs
from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import IN_TURN
from penstock.policies.tuples.lanes import Lanes, Queues


@dataclass(frozen=True, slots=True)
class InTurn(RoutingPolicy):
    """Send every tuple to the next downstream task in turn."""

    keyed: ClassVar[bool] = False

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(IN_TURN)


@lean
def deal(queues: Queues, lanes: Lanes, queue: int, amount: int, near: bool, sent: Longs) -> int:
    """Send `amount` tuples of a queue to lanes in turn, if `near` only to lanes without cost, if there are any.

    Whole rounds are sent at once; full lanes are skipped. Returns the number of tuples sent.
    """
    room, cost, turn = lanes.room, lanes.cost, queues.turn
    first, last = queues.lanes[queue], queues.lanes[queue + 1]
    dearest = np.inf
    for lane in range(first, last):
        if near and cost[lane] == 0.0:
            dearest = 0.0
    left = amount
    for _ in range(last - first + 1):  # every round but the last fills a lane
        able, least = 0, left
        for lane in range(first, last):
            if room[lane] > sent[lane] and cost[lane] <= dearest:
                able += 1
                least = min(least, room[lane] - sent[lane])
        whole = min(least, left // able) if able > 0 else 0
        if whole == 0:
            break
        for lane in range(first, last):
            if room[lane] > sent[lane] and cost[lane] <= dearest:
                sent[lane] += whole
                left -= whole
    for _ in range(last - first):  # fewer than one each, from the next turn on
        if left == 0:
            break
        lane = first + turn[queue]
        turn[queue] = 0 if lane + 1 == last else turn[queue] + 1
        if room[lane] > sent[lane] and cost[lane] <= dearest:
            sent[lane] += 1
            left -= 1
    return amount - left
