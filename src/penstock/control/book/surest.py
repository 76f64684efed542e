"""Routes that are the surest and then the shortest, of all by which a path keeps its rate.

Widest paths go round by any number of links as long as none of them is narrow: a detour that fails more often, and
takes bandwidth that others could use. Which route is taken matters to the rate only where a link is full at it. So
each hop is led anew, the heaviest first, over links that have room for it at the path's rate: where the chance that
everything on the way works is greatest, and among equals by the fewest links.
"""

import math
from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np

from penstock.control.planner import Decision, Planner
from penstock.model.cluster import Cluster
from penstock.model.placement import Hop, Placement
from penstock.model.routes import hop_bits
from penstock.model.slotgraph import MEGABIT

SLACK = 1e-9  # by which a link may be overbooked, relative; sums are rounded
A_LINK = 1e-9  # that a link counts beside how often it fails: less than any failure that matters


def surest(planner: Planner, decision: Decision) -> Decision:
    """Return a decision with the surest routes that leave its rate as it is; itself where there are no routes."""
    placement, evaluation = decision.result, decision.evaluation
    if not isinstance(placement, Placement) or evaluation is None or not placement.routes:
        return decision
    evaluator, rate = planner.evaluator, evaluation.rate_tps
    bits = hop_bits(evaluator.tasks, evaluator.slots, np.asarray(placement.slots, dtype=np.int32))
    left = [link.bandwidth_mbps * MEGABIT * (1 + SLACK) for link in planner.cluster.links]
    for hop, amount in bits.items():
        for link in placement.routes[hop]:
            left[link] -= rate * amount
    ways = _Ways(planner.cluster)
    routes: dict[Hop, tuple[int, ...]] = dict(placement.routes)
    for hop, amount in sorted(bits.items(), key=lambda one: -one[1]):
        for link in routes[hop]:
            left[link] += rate * amount
        routes[hop] = ways.best(hop, [room >= rate * amount for room in left]) or routes[hop]
        for link in routes[hop]:
            left[link] -= rate * amount
    found = Placement(placement.slots, routes, placement.gap, placement.note)
    return Decision(decision.policy, found, evaluator.evaluate(found), decision.seconds)


class _Ways:
    """Ways through a cluster's network, by how likely they are to fail."""

    def __init__(self, cluster: Cluster) -> None:
        self._nodes = list(cluster.node_index)
        fails = [machine.failure_probability for machine in cluster.machines]
        self._node_cost = [_cost(p) for p in fails] + [0.0] * len(cluster.switches)
        self._arcs: list[list[tuple[int, int, float]]] = [[] for _ in self._nodes]  # link, head, cost
        for number, link in enumerate(cluster.links):
            a, b = cluster.node_index[link.source], cluster.node_index[link.target]
            for tail, head in [(a, b)] if link.directed else [(a, b), (b, a)]:
                self._arcs[tail].append((number, head, _cost(link.failure_probability) + A_LINK))

    def best(self, hop: Hop, usable: list[bool]) -> tuple[int, ...]:
        """Return the links of the surest way over usable links; none where there is no way."""
        costs = {hop.source: 0.0}
        via: dict[int, tuple[int, int]] = {}  # node -> link, tail
        waiting = [(0.0, hop.source)]
        settled: set[int] = set()
        while waiting:
            cost, node = heappop(waiting)
            if node == hop.target:
                return tuple(self._back(via, hop))[::-1]
            if node in settled:
                continue
            settled.add(node)
            for link, head, step in self._arcs[node]:
                onward = cost + step + (self._node_cost[head] if head != hop.target else 0.0)
                if usable[link] and onward < costs.get(head, math.inf):
                    costs[head], via[head] = onward, (link, node)
                    heappush(waiting, (onward, head))
        return ()

    @staticmethod
    def _back(via: dict[int, tuple[int, int]], hop: Hop) -> Iterator[int]:
        node = hop.target
        while node != hop.source:
            link, node = via[node]
            yield link


def _cost(fails: float) -> float:
    """Return minus the logarithm of the chance to work; what never works is worse than any way round it."""
    return -math.log1p(-fails) if fails < 1 else 1e9
