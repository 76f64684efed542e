"""The smallest change: of equally good placements, one close to the current placement.

A policy places from scratch, so its result may differ from the current placement in names only: two identical machines,
two slots of a machine or two tasks of a component are exchanged. Here such exchanges are reverted as long as the score
stays the same, or nearly the same if the tasks of a component were observed to differ a little. Then the moves are
ordered by their gain.
"""

from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from penstock.estimate.evaluator import UNSUSTAINED
from penstock.model.taskgraph import Ints
from penstock.policies.api import Evaluate, PlacementView

SAME = 1e-9  # relative difference of scores that are equal
ENOUGH = 0.95  # of the maximum gain, which is accepted for fewer moves


class Waypoint(NamedTuple):
    """A placement between the current one and the wanted one."""

    tasks: tuple[int, ...]  # that have moved
    score: float


def find_nearest(view: PlacementView, evaluate: Evaluate, now: Ints, wanted: Ints, loss: float = 0.0) -> Ints:
    """Return a placement with the score of `wanted`, and as few moves from `now` as exchanging names allows.

    loss: share of the gain of `wanted` that may be lost by that.
    """
    best, least = wanted, _least(evaluate, now, wanted, loss)
    for renamed in (_exchange_machines, _exchange_slots, _exchange_tasks):
        tried = renamed(view, now, best)
        if np.array_equal(tried, best) or (tried != now).sum() > (best != now).sum():
            continue
        if evaluate(tried[None].astype(np.int32))[0] >= least and _allowed(view, tried):
            best = tried
    return best


def _least(evaluate: Evaluate, now: Ints, wanted: Ints, loss: float) -> float:
    """Return the minimum score that is accepted instead of that of the wanted placement."""
    start, top = (float(score) for score in evaluate(np.stack([now, wanted]).astype(np.int32)))
    gained = top - start if loss and UNSUSTAINED / 2 < start < top else 0.0  # no loss if the load becomes sustainable
    return top - max(SAME * abs(top), loss * gained)


def order_moves(evaluate: Evaluate, now: Ints, wanted: Ints, most: int) -> list[Waypoint]:
    """Return the placements from `now` towards a wanted one, each time with the move that gains most."""
    left = [int(task) for task in np.flatnonzero(now != wanted)]
    here = now.copy()
    stops = [Waypoint((), float(evaluate(here[None].astype(np.int32))[0]))]
    for _ in range(min(most, len(left))):
        tried = np.repeat(here[None], len(left), axis=0)
        tried[np.arange(len(left)), left] = wanted[left]
        scores = evaluate(tried.astype(np.int32))
        first = int(np.argmax(scores))
        task = left.pop(first)
        here[task] = wanted[task]
        stops.append(Waypoint((*stops[-1].tasks, task), float(scores[first])))
    return stops


def choose_waypoint(stops: list[Waypoint]) -> Waypoint:
    """Return the first placement that has nearly the maximum gain."""
    start, best = stops[0].score, max(stop.score for stop in stops)
    if not best > start:
        return stops[0]
    enough = best if not np.isfinite(start) else start + ENOUGH * (best - start)
    return next(stop for stop in stops if stop.score >= enough)


def _exchange_machines(view: PlacementView, now: Ints, wanted: Ints) -> Ints:
    """Exchange the tasks of identical machines, so that most tasks stay in place."""
    from scipy.optimize import linear_sum_assignment

    machine, first = view.slots.machine, view.slots.first
    kinds = [replace(one, name="-", host=None) for one in view.cluster.machines]
    alike = np.array([[one == other for other in kinds] for one in kinds])
    common = _common(view, machine[now], machine[wanted], len(kinds))
    rows, columns = linear_sum_assignment(np.where(alike, common, -len(now) - 1), maximize=True)
    new = np.empty(len(kinds), dtype=np.int64)
    new[rows] = columns
    renamed: Ints = first[new[machine[wanted]]] + (wanted - first[machine[wanted]])
    return renamed


def _exchange_slots(view: PlacementView, now: Ints, wanted: Ints) -> Ints:
    """Exchange the slots of each machine in the same manner."""
    from scipy.optimize import linear_sum_assignment

    renamed = wanted.copy()
    common = _common(view, now, wanted, view.slots.number)
    for number in range(len(view.cluster.machines)):
        slots = np.flatnonzero(view.slots.machine == number)
        rows, columns = linear_sum_assignment(common[np.ix_(slots, slots)], maximize=True)
        for old, new in zip(slots[rows], slots[columns], strict=True):
            renamed[wanted == old] = new
    return renamed


def _exchange_tasks(view: PlacementView, now: Ints, wanted: Ints) -> Ints:
    """Exchange the tasks of each component, so that tasks stay if their slot is to have one of them."""
    renamed = wanted.copy()
    for component in range(int(view.tasks.component.max()) + 1):
        tasks = np.flatnonzero(view.tasks.component == component)
        free = list(wanted[tasks])
        movers = []
        for task in tasks:
            if now[task] in free:
                free.remove(now[task])
                renamed[task] = now[task]
            else:
                movers.append(task)
        renamed[movers] = free
    return renamed


def _common(view: PlacementView, now: Ints, wanted: Ints, places: int) -> Ints:
    """Return how many tasks a wanted place and a current one share; tasks of a component are equivalent. [P, P]"""
    counts = np.zeros((2, places, int(view.tasks.component.max()) + 1), dtype=np.int64)
    np.add.at(counts[0], (wanted, view.tasks.component), 1)
    np.add.at(counts[1], (now, view.tasks.component), 1)
    found: Ints = np.minimum(counts[0][:, None, :], counts[1][None, :, :]).sum(axis=2)
    return found


def _allowed(view: PlacementView, placed: Ints) -> bool:
    """Whether pinned tasks are in place; the score covers all other constraints."""
    machine = view.slots.machine[placed]
    return bool(((view.pins < 0) | (view.pins == machine)).all())
