"""Exact search for the highest bottleneck rate: minimum stress, with routes and slots chosen together."""

import time
from collections.abc import Iterable

import numpy as np

from penstock.model.placement import Hop
from penstock.model.routes import route_hops
from penstock.model.taskgraph import Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.exact.assignment import Assignment
from penstock.policies.placement.exact.colocation import Colocation
from penstock.policies.placement.exact.program import SCALE, Solution, SolverStatus, TooLarge
from penstock.policies.placement.exact.proof import PROVEN, Candidate, Proof, better
from penstock.policies.placement.exact.routing import Routing
from penstock.policies.placement.exact.stress import least_stress, stress, worst_stress
from penstock.policies.placement.exact.task_groups import exchanges, group_tasks

COARSE = 5.0  # if the start is this much worse than the best, the solver's tolerance is too coarse: solve again


def least_stressed(view: PlacementView, placed: Iterable[Ints], linked: bool) -> Candidate | None:
    """Return the placement with the highest rate, hops on widest paths; none if all rates are 0."""
    best = None
    for slots in placed:
        routes = route_hops(view.tasks, view.slots, view.links, slots.tolist()) if linked else {}
        if not isinstance(routes, Hop):
            best = better(best, Candidate(slots, stress(view, slots, routes if linked else None), routes))
    return best if best is not None and np.isfinite(best.cost) else None


def minimise_stress(view: PlacementView, start: Candidate | None, seconds: float, linked: bool) -> Proof:
    """Search for the minimum stress, from a start if there is one; `linked`: routes and links count."""
    ends = time.perf_counter() + seconds
    best, bound = start, least_stress(view)
    for _ in range(4):  # each is at least COARSE times finer, and the first is seldom too coarse
        if best is not None and best.cost <= bound * (1 + PROVEN):
            break
        most = best.cost if best is not None else worst_stress(view) or 1.0  # any unit is good if there is no work
        try:
            program = StressProgram(view, most, bound, linked)
        except TooLarge:  # the start is a result, though not a proven one
            if best is None:
                raise
            break
        solution = program.solve(ends - time.perf_counter())
        if solution.outcome is SolverStatus.INFEASIBLE:
            return Proof(best, bound if best is None else best.cost, impossible=best is None)
        bound = max(bound, solution.bound / SCALE * most)
        best = better(best, program.candidate(solution))
        if best is None or solution.outcome is SolverStatus.STOPPED or most <= COARSE * best.cost:
            break
    return Proof(best, bound)


class StressProgram:
    """The program whose objective is the stress, from `least` to `most`."""

    def __init__(self, view: PlacementView, most: float, least: float, linked: bool) -> None:
        carded = bool(np.isfinite(view.slots.machine_network).any()) and not view.cluster.routed
        self._view, self._most = view, most
        self._assignment = Assignment(view, group_tasks(view, wired=linked or carded), by_slot=True, most=most)
        stress_column = self._assignment.add_stress(least)
        self._routing = None
        if linked:
            self._routing = Routing(self._assignment, exchanges(view, self._assignment.groups))
            self._routing.limit_links(stress_column)
        elif carded:
            Colocation(self._assignment, exchanges(view, self._assignment.groups)).limit_cards(stress_column)
        self._assignment.program.cost(stress_column, 1.0)

    def solve(self, seconds: float) -> Solution:
        """Minimise the stress; the bound is `SCALE` for a stress of `most`."""
        return self._assignment.program.solve(seconds)

    def candidate(self, solution: Solution) -> Candidate | None:
        """Return the placement of a solution with its exact stress."""
        slots = None if solution.values is None else self._assignment.slots(solution.values)
        if slots is None or solution.values is None:
            return None
        if self._routing is None:
            return Candidate(slots, stress(self._view, slots, None))
        routes = self._routing.routes(slots, solution.values)
        return Candidate(slots, stress(self._view, slots, routes), routes)
