"""Load-aware shuffle: random with weights that follow downstream load, near tasks as long as their load is low.

Storm 2's rule: a sender uses tasks on its own machine while their load is low, and others when it is high; in that
scope a task above the mean load loses weight and one below it gains. Storm's load is the fill of a bounded queue; here
it is the time to serve the queue.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.model.entity import Positive
from penstock.model.errors import InvalidInput
from penstock.model.kernel import lean
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.kinds import LOAD_AWARE
from penstock.policies.tuples.lanes import Lanes, Queues

HEAVIEST = 100.0  # maximum weight
LIGHTEST = 1.0


@dataclass(frozen=True, slots=True)
class LoadAwareShuffle(RoutingPolicy):
    """Send tuples at random with weights that follow load, to near tasks as long as their load is low.

    high: mean number of slots to serve the near tasks' queues, above which far tasks are used, too.
    low: number of slots below which only near tasks are used again.
    """

    high: Positive = 4.0
    low: Positive = 1.0
    keyed: ClassVar[bool] = False
    looks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise InvalidInput("low", f"expected ≤ high, {self.high:g}, got {self.low:g}; lower it")

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(LOAD_AWARE, self.high, self.low)


@lean
def load_aware(
    settings: Floats, queues: Queues, lanes: Lanes, queue: int, amount: int, rng: np.random.Generator, sent: Longs
) -> int:
    """Send `amount` tuples of a queue; return how many were sent."""
    begin, end = queues.lanes[queue], queues.lanes[queue + 1]
    near_only = _scope(settings, queues, lanes, queue)
    load, number = 0.0, 0
    for lane in range(begin, end):
        lanes.score[lane] = lanes.backlog[lane] / lanes.speed[lane]
        if not (near_only and lanes.cost[lane] > 0.0):
            load += lanes.score[lane]
            number += 1
    mean, total = load / max(number, 1), 0.0
    for lane in range(begin, end):
        if lanes.weight[lane] == 0.0:
            lanes.weight[lane] = HEAVIEST
        if near_only and lanes.cost[lane] > 0.0:
            continue
        if lanes.score[lane] > mean:
            lanes.weight[lane] = max(LIGHTEST, lanes.weight[lane] - 1.0)
        else:
            lanes.weight[lane] = min(HEAVIEST, lanes.weight[lane] + 1.0)
        if sent[lane] < lanes.room[lane]:
            total += lanes.weight[lane]
    return _draw(lanes, begin, end, near_only, total, amount, rng, sent)


@lean
def _draw(
    lanes: Lanes,
    begin: int,
    end: int,
    near_only: bool,
    total: float,
    amount: int,
    rng: np.random.Generator,
    sent: Longs,
) -> int:
    """Send tuples to lanes in scope by their weights, whose sum is `total` over those with room."""
    went = 0
    for _ in range(amount):
        at = rng.random() * total
        for lane in range(begin, end):
            if (near_only and lanes.cost[lane] > 0.0) or sent[lane] >= lanes.room[lane]:
                continue
            at -= lanes.weight[lane]
            if at < 0.0:
                sent[lane] += 1
                went += 1
                if sent[lane] == lanes.room[lane]:
                    total -= lanes.weight[lane]
                break
    return went


@lean
def _scope(settings: Floats, queues: Queues, lanes: Lanes, queue: int) -> bool:
    """Return whether only near lanes are used, by their load; stored in the queue's turn (0 near, 1 all)."""
    load, near = 0.0, 0
    for lane in range(queues.lanes[queue], queues.lanes[queue + 1]):
        if lanes.cost[lane] == 0.0:
            near += 1
            load += lanes.backlog[lane] / lanes.speed[lane]
    if near == 0:
        return False
    if load / near > settings[0]:
        queues.turn[queue] = 1
    elif load / near < settings[1]:
        queues.turn[queue] = 0
    return bool(queues.turn[queue] == 0)
