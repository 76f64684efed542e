"""Round-robin: downstream tasks in turn, as Storm's shuffle grouping and Flink's rebalance deal tuples out."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.model.kernel import kernel
from penstock.model.slotted import Longs
from penstock.policies.api import Rule, rule
from penstock.policies.tuples.kinds import IN_TURN
from penstock.policies.tuples.lanes import Lanes, Queues


@dataclass(frozen=True, slots=True)
class InTurn:
    """Send every tuple to the next downstream task in turn."""

    keyed: ClassVar[bool] = False

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(IN_TURN)


@kernel
def deal(queues: Queues, lanes: Lanes, queue: int, amount: int, near: bool, sent: Longs) -> int:
    """Deal `amount` tuples of a queue out in turn, over lanes without cost if `near` and there are any.

    Whole rounds are dealt at once. Lanes that are full are passed over. Returns how many tuples went.
    """
    first, last = queues.lanes[queue], queues.lanes[queue + 1]
    if near:
        near = False
        for lane in range(first, last):
            near |= lanes.cost[lane] == 0.0
    left = amount
    for _ in range(last - first + 2):  # every round but the last fills a lane or ends it
        able = 0
        least = left
        for lane in range(first, last):
            space = lanes.room[lane] - sent[lane]
            if space > 0 and not (near and lanes.cost[lane] > 0.0):
                able += 1
                least = min(least, space)
        if able == 0 or left == 0:
            break
        whole = min(least, left // able)
        if whole > 0:
            for lane in range(first, last):
                if lanes.room[lane] > sent[lane] and not (near and lanes.cost[lane] > 0.0):
                    sent[lane] += whole
                    left -= whole
            continue
        for _ in range(last - first):  # fewer than one each: from whose turn it is
            lane = first + queues.turn[queue]
            queues.turn[queue] = 0 if lane + 1 == last else queues.turn[queue] + 1
            if left > 0 and lanes.room[lane] > sent[lane] and not (near and lanes.cost[lane] > 0.0):
                sent[lane] += 1
                left -= 1
            if left == 0:
                break
    return amount - left
