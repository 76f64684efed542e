"""Replace a path's routes by more reliable ones, or by ones with fewer links, that keep its rate.

Widest-path routing uses any number of links as long as none is narrow: it takes detours that fail more often and use
bandwidth that others need. A route affects the rate only if it fills a link. So each hop, the heaviest first, is routed
again over links with room for it at the path's rate, so that the probability that the whole path works is highest. What
the path needs anyway, for its tasks or other hops, costs nothing more. Ties go to the fewest links.

Routing hops one by one may miss the optimum if they share elements. It is tried from the policy's own routes and from
none, and the better result is used. The policy's routes remain if neither is better.
"""

import math
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

import numpy as np

from penstock.model.cluster import Cluster
from penstock.model.placement import Hop, Placement
from penstock.model.routes import hop_bits
from penstock.model.slotgraph import MEGABIT
from penstock.planning.planner import Decision, Planner

SLACK = 1e-9  # relative overbooking of a link that is allowed for rounding
A_LINK = 1e-12  # cost of a link beside its failures: less than any failure probability that matters
NEVER_WORKS = 1e4  # more than minus the logarithm of any probability to work
ROUNDS = 3  # in which every hop is routed again; later rounds seldom change anything

Routes = dict[Hop, tuple[int, ...]]


def improve_routes(planner: Planner, decision: Decision) -> Decision:
    """Return a decision with the most reliable routes found that keep its rate; unchanged if none are better."""
    placement, evaluation = decision.result, decision.evaluation
    if not isinstance(placement, Placement) or evaluation is None or not placement.routes:
        return decision
    evaluator, rate = planner.evaluator, evaluation.even_tps
    placed = np.asarray(placement.slots, dtype=np.int32)
    bits = hop_bits(evaluator.tasks, evaluator.slots, placed)
    traffic = {hop: rate * amount for hop, amount in sorted(bits.items(), key=lambda one: -one[1])}
    graph = _RouteGraph(planner.cluster, evaluator.slots.machine[placed].tolist(), traffic)
    best = own = dict(placement.routes)
    none = {hop: route for hop, route in own.items() if hop not in traffic}
    for start in (own, none) if graph.may_fail else (own,):
        found = graph.reroute(start)
        if found is not None and graph.cost(found) < graph.cost(best):
            best = found
    if best is own:
        return decision
    result = Placement(placement.slots, best, placement.gap, placement.note)
    return Decision(decision.policy, result, evaluator.evaluate(result), decision.seconds)


class _RouteGraph:
    """Routes of a path's hops through a cluster, rated by the probability that the path fails.

    Elements are nodes, by number, followed by links. An element costs minus the logarithm of its probability to work,
    so that costs add up as probabilities multiply.
    """

    def __init__(self, cluster: Cluster, homes: Iterable[int], traffic: Mapping[Hop, float]) -> None:
        self._homes, self._traffic = frozenset(homes), traffic
        self._room = [link.bandwidth_mbps * MEGABIT * (1 + SLACK) for link in cluster.links]
        nodes = [_cost(machine.failure_probability) for machine in cluster.machines] + [0.0] * len(cluster.switches)
        self._first = len(nodes)  # link
        self._costs = nodes + [_cost(link.failure_probability) for link in cluster.links]
        self._ends = [(cluster.node_index[link.source], cluster.node_index[link.target]) for link in cluster.links]
        self._arcs: list[list[tuple[int, int]]] = [[] for _ in nodes]  # link, head
        for number, (link, (a, b)) in enumerate(zip(cluster.links, self._ends, strict=True)):
            for tail, head in [(a, b)] if link.directed else [(a, b), (b, a)]:
                self._arcs[tail].append((number, head))
        self.may_fail = any(self._costs)

    def cost(self, routes: Routes) -> float:
        """Return the cost of a path's routes: failure probability first, then the number of links, in one number."""
        links = sum(len(route) for route in routes.values())
        return math.fsum(self._costs[element] for element in self._used(routes.values())) + A_LINK * links

    def reroute(self, start: Routes) -> Routes | None:
        """Route all hops again, one after another; None if one of them finds no room."""
        routes = dict(start)
        for _ in range(ROUNDS if self.may_fail else 1):
            before = dict(routes)
            for hop, needs in self._traffic.items():
                others = {other: route for other, route in routes.items() if other != hop}
                left = self._left(others)
                route = self._best(hop, [room >= needs for room in left], self._used(others.values()))
                if route is None and hop not in routes:
                    return None
                routes[hop] = routes[hop] if route is None else route
            if routes == before:
                break
        return routes

    def _left(self, routes: Routes) -> list[float]:
        left = list(self._room)
        for hop, route in routes.items():
            for link in route:
                left[link] -= self._traffic.get(hop, 0.0)
        return left

    def _used(self, routes: Iterable[tuple[int, ...]]) -> set[int]:
        """Return the elements that a path needs: those of its tasks and of its routes."""
        links = {link for route in routes for link in route}
        return {*self._homes, *(end for link in links for end in self._ends[link]), *(self._first + n for n in links)}

    def _best(self, hop: Hop, usable: list[bool], free: set[int]) -> tuple[int, ...] | None:
        """Return the usable route that adds the minimum to a path's cost; None if there is none."""
        costs = {hop.source: 0.0}
        via: dict[int, tuple[int, int]] = {}  # node -> link, tail
        waiting = [(0.0, hop.source)]
        settled: set[int] = set()
        while waiting:
            cost, node = heappop(waiting)
            if node == hop.target:
                return _back(via, hop)
            if node in settled:
                continue
            settled.add(node)
            for link, head in self._arcs[node]:
                if not usable[link]:
                    continue
                new = [element for element in (self._first + link, head) if element not in free]
                onward = cost + A_LINK + sum(self._costs[element] for element in new)
                if onward < costs.get(head, math.inf):
                    costs[head], via[head] = onward, (link, node)
                    heappush(waiting, (onward, head))
        return None


def _back(via: Mapping[int, tuple[int, int]], hop: Hop) -> tuple[int, ...]:
    links, node = [], hop.target
    while node != hop.source:
        link, node = via[node]
        links.append(link)
    return tuple(reversed(links))


def _cost(fails: float) -> float:
    """Return minus the logarithm of the probability to work; an element that never works costs more than any detour."""
    return -math.log1p(-fails) if fails < 1 else NEVER_WORKS
