"""Out-queues and lanes as routing policies see them: by hand, and at random."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.slotted import UNLIMITED, Longs
from penstock.policies.api import Rule
from penstock.policies.registry import routing_policy
from penstock.policies.tuples.lanes import Lanes, Queues, empty_queues, idle_lanes
from penstock.policies.tuples.routing import choose_keyed, route

STATE = ("turn", "start", "price", "weight", "score", "order")  # what decisions may change


class Tables(NamedTuple):
    """The input of a decision for one task."""

    queues: Queues
    lanes: Lanes
    limit: int

    def copy(self) -> "Tables":
        """Return an independent copy."""
        return Tables(*deepcopy((self.queues, self.lanes)), self.limit)

    def able(self, queue: int) -> int:
        """Return the tuples of a queue that may leave it and for which its lanes have room."""
        own = self.lanes.room[self.queues.lanes[queue] : self.queues.lanes[queue + 1]]
        roomy = int(np.minimum(own, self.queues.waiting[queue]).sum())  # the sum of unlimited room overflows
        return min(int(self.queues.waiting[queue]), int(self.queues.allowed[queue]), roomy)

    def sums(self, sent: Longs) -> Longs:
        """Return the number of tuples that left each queue."""
        return np.add.reduceat(sent, self.queues.lanes[:-1])


class Decision(NamedTuple):
    """The decision of a policy, and the state after it."""

    sent: Longs
    tables: Tables
    next_random: float


def tables(widths: int | Sequence[int], limit: int = UNLIMITED, **columns: Any) -> Tables:
    """Return tables of queues with these numbers of lanes; a column is one number, or one for every queue or lane."""
    each = [widths] if isinstance(widths, int) else list(widths)
    begin = np.concatenate([[0], np.cumsum(each)]).astype(np.int64)
    queues, ones = empty_queues(begin), np.ones(int(begin[-1]))
    lanes = idle_lanes(np.zeros_like(ones), np.zeros_like(ones), ones.copy(), ones.copy())
    for name, values in columns.items():
        getattr(queues if hasattr(queues, name) else lanes, name)[:] = values
    return Tables(queues, lanes, limit)


def drawn(
    rng: np.random.Generator, queues: int = 3, width: int = 4, roomy: bool = False, source: bool = True
) -> Tables:
    """Return random tables; `roomy`: neither lanes nor the sending policy limit anything."""
    widths = rng.integers(1, width + 1, rng.integers(1, queues + 1))
    count, number = len(widths), int(widths.sum())
    waiting = rng.integers(0, 9, count)
    made = tables(
        widths.tolist(),
        limit=int(rng.integers(0, 20)),
        waiting=waiting,
        arrived=rng.integers(0, waiting + 1) * source,
        turn=rng.integers(widths),
        backlog=rng.integers(0, 7, number),
        flying=rng.integers(0, 4, number),
        outstanding=rng.integers(0, 6, number),
        cost=rng.integers(0, 4, number),
        onward=rng.integers(0, 4, number),
        ahead=rng.integers(0, 9, number) / 2,
        speed=rng.integers(1, 6, number),
        senders=rng.integers(1, 4),
    )
    if not roomy:
        made.lanes.room[:] = rng.integers(0, 5, number)
        made.queues.allowed[:] = np.where(rng.random(count) < 0.5, UNLIMITED, rng.integers(0, 9, count))
    return made


def decide(spec: str | Rule, given: Tables, seed: int = 0, how: Callable[..., int] = route) -> Decision:
    """Return the decision of a policy for all queues of `given`, which are not changed."""
    own, rng = given.copy(), np.random.default_rng(seed)
    rule = routing_policy(spec).rule if isinstance(spec, str) else spec
    sent = np.zeros(len(own.lanes.room), dtype=np.int64)
    count = len(own.queues.waiting)
    went = how(rule.kind, rule.settings, own.queues, own.lanes, 0, count, own.limit, rng, sent)
    assert went == sent.sum()
    return Decision(sent, own, rng.random())


def repeat(spec: str, given: Tables, times: int, seed: int = 0) -> Longs:
    """Decide repeatedly, each time with the state and the generator that the last decision left. [times, L]"""
    own, rng, rule = given.copy(), np.random.default_rng(seed), routing_policy(spec).rule
    sent = np.zeros((times, len(own.lanes.room)), dtype=np.int64)
    for row in sent:
        route(*rule, own.queues, own.lanes, 0, len(own.queues.waiting), own.limit, rng, row)
    return sent


@kernel
def route_keyed(
    kind: int, lanes: Lanes, begin: int, own: Longs, other: Longs, amount: int, chosen: Longs, sent: Longs
) -> int:
    """Choose a lane for each of `amount` tuples of a queue whose lanes start at `begin`; return how many have one.

    `own` and `other` are the two lanes of each tuple's key, counted from `begin`; other rules than `partial-key` use
    only the first. It stops at a tuple without room, because later ones must not overtake it.
    """
    for place in range(amount):
        lane = choose_keyed(kind, lanes, begin + own[place], begin + other[place], sent)
        if lane < 0:
            return place
        chosen[place] = lane
        sent[lane] += 1
    return amount
