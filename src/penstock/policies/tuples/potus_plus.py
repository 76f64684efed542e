"""POTUS-plus: every tuple goes where cost to come and time to wait are least, counting what is on its way already.

Three things are other than in POTUS. Tuples in flight count as queued, so that a decision sees what the last one did.
A queue's tuples are spread over the lanes by water-filling instead of all to one, reckoning that the other senders do
the same, so that they do not herd. And a lane's cost is that of all that follows: every task has a *price*, what its
next tuple will cost and wait from there on, and tells it upstream; where ways are congested prices rise, and tuples
take others. Nothing is held back: a tuple that waits at its sender waits as long as one in a queue.
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
"""How many times over a slot's tuples are poured, so that only a part of a difference between queues is made up in a
slot: what is known of them is a slot old, and most differences are noise that is gone by then."""


@dataclass(frozen=True, slots=True)
class PotusPlus(RoutingPolicy):
    """Send every tuple where the cost to the sinks and the time to wait are least.

    v: how many slots of waiting a unit of cost is worth; 0 ignores cost. On POTUS's fat-trees 1 saves about three
        quarters of the cost above the optimum and makes responses 3 to 6 % longer; 10 saves all of it and makes them
        half as long again.
    prices: whether the price of what follows is what the downstream tasks say of their queues; otherwise it is the
        least cost to the sinks, whatever the load.
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
        """What a unit of cost adds to a price."""
        return self.v if self.prices else None

    @property
    def looks_onward(self) -> bool:
        """Whether what follows is the least cost to the sinks."""
        return not self.prices


@lean
def potus_plus(
    settings: Floats,
    queues: Queues,
    lanes: Lanes,
    first: int,
    last: int,
    limit: int,
    sent: Longs,
) -> int:
    """Decide for the queues `first` to `last` of one task; return how many tuples go."""
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
    """Return the price of a queue in whose lanes nobody has a say: of all together, or of any of them."""
    total = 0.0
    for lane in range(begin, end):
        total += _price(settings, lanes, lane)
    return total if copies else total / (end - begin)


@lean
def _price(settings: Floats, lanes: Lanes, lane: int) -> float:
    """Return what a tuple that goes down a lane now will cost and wait, from here to the sinks."""
    v, priced = settings[0], settings[1] > 0.0
    ahead = lanes.ahead[lane] if priced else v * lanes.onward[lane]
    # by the time that a tuple arrives the target has worked for a slot
    wait = max(0.0, (lanes.backlog[lane] + lanes.flying[lane]) / lanes.speed[lane] - 1.0)
    return float(v * lanes.cost[lane] + wait + ahead)
