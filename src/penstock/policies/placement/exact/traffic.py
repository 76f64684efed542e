"""Exact search for the minimum traffic between machines at a rate that processors and network cards sustain."""

from collections.abc import Iterable

import numpy as np

from penstock.model.placement import Placement
from penstock.model.routes import hop_bits
from penstock.model.taskgraph import Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import complete
from penstock.policies.placement.exact.assignment import Assignment
from penstock.policies.placement.exact.colocation import Colocation
from penstock.policies.placement.exact.program import SolverStatus
from penstock.policies.placement.exact.proof import Candidate, Proof, better
from penstock.policies.placement.exact.routing import find_path, usable_arcs
from penstock.policies.placement.exact.stress import stress
from penstock.policies.placement.exact.task_groups import Exchange, exchanges, group_tasks


def least_crossing(view: PlacementView, placed: Iterable[Ints], most: float) -> Candidate | None:
    """Return the placement with the minimum traffic among those with at most `most` stress, links not included."""
    best = None
    for slots in placed:
        if stress(view, slots, None) <= most and isinstance(complete(view, slots.tolist()), Placement):
            best = better(best, Candidate(slots, crossing_bits(view, slots)))
    return best


def crossing_bits(view: PlacementView, slots: Ints) -> float:
    """Return the bits between machines per source tuple."""
    return float(sum(hop_bits(view.tasks, view.slots, slots).values()))


def minimise_traffic(view: PlacementView, start: Candidate | None, most: float, seconds: float) -> Proof:
    """Search for the minimum traffic with at most `most` stress, from a start if there is one."""
    if start is not None and start.cost == 0:
        return Proof(start, 0.0)
    stressed = bool(np.isfinite(most))
    by_slot = stressed or bool(np.isfinite(view.slots.memory_mb).any())
    assignment = Assignment(view, group_tasks(view, wired=True), by_slot, most)
    exchanged = exchanges(view, assignment.groups)
    together = Colocation(assignment, exchanged)
    if stressed:
        stress_column = assignment.add_stress(0.0)
        if not view.cluster.routed:
            together.limit_cards(stress_column)
    if view.cluster.routed:
        _keep_connected(assignment, exchanged)
    together.keep_inside()
    solution = assignment.program.solve(seconds)
    if solution.outcome is SolverStatus.INFEASIBLE:
        return Proof(start, 0.0 if start is None else start.cost, impossible=start is None)
    bound = max(together.crossing_bits(solution.bound), 0.0)
    slots = None if solution.values is None else assignment.slots(solution.values)
    found = None if slots is None else Candidate(slots, crossing_bits(view, slots))
    return Proof(better(start, found), bound)


def _keep_connected(assignment: Assignment, exchanged: Iterable[Exchange]) -> None:
    """Forbid that two groups exchange tuples between machines without a route."""
    arcs = usable_arcs(assignment.view.links)
    machines = range(assignment.view.slots.machines)
    apart = [(a, b) for a in machines for b in machines if a != b and find_path(arcs, a, b) is None]
    for exchange in exchanged:
        for a, b in apart:
            if assignment.most_on(exchange.source, a) and assignment.most_on(exchange.target, b):
                first = int(assignment.unary(exchange.source, a)[0]), int(assignment.unary(exchange.target, b)[0])
                assignment.program.row([(first[0], 1.0), (first[1], 1.0)], high=1.0)
