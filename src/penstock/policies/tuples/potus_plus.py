"""POTUS-plus: every tuple goes where future cost and waiting time are minimal, counting tuples in flight.

It differs from POTUS in three points. Tuples in flight count as queued, so a decision sees the effect of the last one.
A queue's tuples are distributed over the lanes by water-filling instead of all to one, assuming that other senders do
the same, which avoids herding. A lane's cost includes all that follows: every task has a *price*, the future cost and
waiting time of its next tuple, and reports it upstream; on congested paths prices rise, and tuples take other paths.
Nothing is held back, because a tuple waits as long at its sender as in a queue.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.model.entity import NonNegative
from penstock.model.kernel import lean
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.policies.api import RoutingPolicy, Rule, rule
from penstock.policies.tuples.filling import fill
from penstock.policies.tuples.kinds import POTUS_PLUS
from penstock.policies.tuples.lanes import Lanes, Queues, queue_at, rotate

EASE = 4.0
"""Multiple of a slot's tuples used for water-filling, so that a slot levels only part of a difference between queues:
reports are a slot old, and most differences are noise that has vanished by then."""


@dataclass(frozen=True, slots=True)
class PotusPlus(RoutingPolicy):
    """Send every tuple where the cost to the sinks and the waiting time are minimal.

    v: value of a unit of cost in slots of waiting; 0 ignores cost. On POTUS's fat-trees 1 saves about three quarters of
        the cost above the optimum and makes responses 3 to 6 % longer; 10 saves all of it and makes them 50 % longer.
    prices: use prices reported by downstream tasks; otherwise the minimum cost to the sinks, whatever the load.
    """

    v: NonNegative = 1.0
    prices: bool = True
    keyed: ClassVar[bool] = False
    looks: ClassVar[bool] = True
    compares: ClassVar[bool] = True

    @property
    def rule(self) -> Rule:
        """The decision."""
        return rule(POTUS_PLUS, self.v, self.prices)

    @property
    def price_of_cost(self) -> float | None:
        """Weight of cost in a price."""
        return self.v if self.prices else None

    @property
    def looks_onward(self) -> bool:
        """Whether it uses the minimum cost to the sinks."""
        return not self.prices


@lean
def potus_plus(settings: Floats, queues: Queues, lanes: Lanes, first: int, last: int, limit: int, sent: Longs) -> int:
    """Decide for the queues `first` to `last` of one task; return the number of tuples sent."""
    left, short = limit, False
    for place in range(last - first):
        queue = queue_at(queues, first, last, place)
        begin, end = queues.lanes[queue], queues.lanes[queue + 1]
        least = np.inf
        for lane in range(begin, end):
            lanes.score[lane] = _price(settings, lanes, lane)
            least = min(least, lanes.score[lane])
        queues.price[queue] = least
        wanted = min(queues.waiting[queue], queues.allowed[queue])
        short |= wanted > left
        amount = min(left, wanted)
        if amount > 0:
            left -= fill(lanes, begin, end, amount, EASE * lanes.senders[begin], queues.turn[queue], sent)
    if short:
        rotate(queues, first, last)
    return limit - left


@lean
def price_bound(settings: Floats, lanes: Lanes, begin: int, end: int, copies: bool) -> float:
    """Return the price of a queue without a choice of lanes: of all together, or of any of them."""
    total = 0.0
    for lane in range(begin, end):
        total += _price(settings, lanes, lane)
    return total if copies else total / (end - begin)


@lean
def _price(settings: Floats, lanes: Lanes, lane: int) -> float:
    """Return the cost and waiting time of a tuple sent over a lane now, up to the sinks."""
    v, priced = settings[0], settings[1] > 0.0
    ahead = lanes.ahead[lane] if priced else v * lanes.onward[lane]
    # by the time that a tuple arrives the target has worked for a slot
    wait = max(0.0, (lanes.backlog[lane] + lanes.flying[lane]) / lanes.speed[lane] - 1.0)
    return float(v * lanes.cost[lane] + wait + ahead)
