"""Local search of the refinement: climb with moves, swaps and routing orders; leave local optima with random moves.

A result is better only if its rate is higher, or its rate is equal and its loads are less (see `refinement`).
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.taskgraph import Floats, Ints
from penstock.policies.placement.refinement import Problem, RouteLog, Scratch, rate

SAME = 1e-9  # relative; closer rates are equal
KICK = 3  # maximum number of random moves to leave a local optimum
KEPT = 0.9  # of the best rate: a local optimum with this rate may be the next start, not only the best
ROUTE, MOVE, SWAP = 0.2, 0.6, 0.85
"""Cumulative shares of proposals: other routes, if there is a choice; one task; two tasks; two machines' tasks."""
AHEAD = (1.0 + 1e-6, 1.02, 1.1, np.inf)  # wanted rates of routes, relative to the current placement's


class Walk(NamedTuple):
    """State of a search; T tasks, F flows."""

    placed: Ints  # [T] slot
    order: Ints  # [F] in which flows are routed
    score: Floats  # [3] its rate, the sum of its loads' fourth powers, the rate wanted of its routes


@kernel
def search(
    problem: Problem,
    scratch: Scratch,
    log: RouteLog,
    best: Walk,
    evaluations: int,
    patience: int,
    rng: np.random.Generator,
) -> int:
    """Improve a placement in place by rating others; return how often a new best one was found.

    `evaluations` limits the number of ratings, `patience` the number of consecutive failed proposals before a local
    optimum is left. There must be a task that is not pinned, or a choice of routes.
    """
    now, tried = copied(best), copied(best)
    route_choice = has_route_choice(problem)
    failed, found = 0, 0
    for _ in range(evaluations):
        kicked = failed >= patience
        if kicked:
            if now.score[0] < best.score[0] * KEPT or rng.random() < 0.5:
                copy_walk(now, best)
            failed = 0
        copy_walk(tried, now)
        changes = 1 + int(rng.random() * KICK) if kicked else 1
        for _ in range(changes):
            propose(problem, tried, route_choice, rng)
        floor = 0.0 if kicked else now.score[0] * (1 - SAME)
        wanted = now.score[0] * AHEAD[int(rng.random() * len(AHEAD))] if route_choice else np.inf
        tried.score[0], tried.score[1] = rate(problem, scratch, log, tried.placed, tried.order, wanted, floor)
        tried.score[2] = wanted
        if tried.score[0] > 0.0 and (kicked or is_better(tried, now)):
            copy_walk(now, tried)
            failed = 0
            if is_better(now, best):
                copy_walk(best, now)
                found += 1
        else:
            failed += 1
    return found


@kernel
def has_route_choice(problem: Problem) -> bool:
    """Return whether routes depend on the order of flows: more links than a tree has, and several flows."""
    return len(problem.links.head) > 2 * (problem.links.nodes - 1) and len(problem.bits) > 1


@kernel
def copied(walk: Walk) -> Walk:
    """Return a copy."""
    return Walk(walk.placed.copy(), walk.order.copy(), walk.score.copy())


@kernel
def copy_walk(to: Walk, other: Walk) -> None:
    """Copy the state of another walk."""
    to.placed[:] = other.placed
    to.order[:] = other.order
    to.score[:] = other.score


@kernel
def is_better(one: Walk, other: Walk) -> bool:
    """Return whether the rate is higher, or equal with less load."""
    if one.score[0] > other.score[0] * (1 + SAME):
        return True
    return bool(one.score[0] >= other.score[0] * (1 - SAME) and one.score[1] < other.score[1] * (1 - SAME))


@kernel
def propose(problem: Problem, walk: Walk, route_choice: bool, rng: np.random.Generator) -> None:
    """Change at random the order of routing, a task's machine, two tasks' slots or two machines' tasks."""
    kind = rng.random() if route_choice else ROUTE + (1 - ROUTE) * rng.random()
    if kind < ROUTE or len(problem.free) == 0:
        flows = len(walk.order)
        one, other = int(rng.random() * flows), int(rng.random() * flows)
        walk.order[one], walk.order[other] = walk.order[other], walk.order[one]
        return
    task = problem.free[int(rng.random() * len(problem.free))]
    other = problem.free[int(rng.random() * len(problem.free))]
    here, there = problem.slot_machine[walk.placed[task]], problem.slot_machine[walk.placed[other]]
    if MOVE <= kind < SWAP and here != there:
        walk.placed[task], walk.placed[other] = walk.placed[other], walk.placed[task]
        return
    machine = int(rng.random() * len(problem.cpu))
    if kind < SWAP:
        walk.placed[task] = idlest_slot(problem, walk.placed, task, machine)
    elif machine != here:
        exchange_machines(problem, walk.placed, here, machine)


@kernel
def exchange_machines(problem: Problem, placed: Ints, here: int, there: int) -> None:
    """Swap the tasks of two machines that are not pinned, all at once."""
    was = problem.slot_machine[placed]
    for task in problem.free:
        if was[task] == here:
            placed[task] = idlest_slot(problem, placed, task, there)
        elif was[task] == there:
            placed[task] = idlest_slot(problem, placed, task, here)


@kernel
def idlest_slot(problem: Problem, placed: Ints, task: int, machine: int) -> int:
    """Return the least loaded slot of a machine not counting a task, ties by number."""
    first, last = problem.slot_first[machine], problem.slot_first[machine + 1]
    if last - first == 1:
        return int(first)
    load = np.zeros(last - first)
    for other in range(len(placed)):
        if other != task and first <= placed[other] < last:
            load[placed[other] - first] += problem.work[other]
    return int(first + np.argmin(load))
