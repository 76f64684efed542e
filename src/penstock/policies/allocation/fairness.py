"""Weighted proportional fairness: the rates of applications that share elements (SPARCLE, eq. (4)).

maximise Σ P log x subject to R w ≤ C, w ≥ 0, x being the sum of an application's path rates w. Capacities of cores
and of links differ by a factor of 10⁹, so the program that is solved has every capacity 1 and every path's own limit 1.
Clarabel solves it to about 10⁻⁶; Newton's method on the conditions of optimality, with the full elements and the
used paths that it found, does the rest.
"""

import warnings
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from penstock.model.errors import InvalidInput
from penstock.model.taskgraph import Bools, Floats, Ints, sum_by

NEWTON_STEPS = 8
SHIFT = 1e-9  # far below the curvature of what matters, far above rounding
GOOD = 1e-13  # of the conditions of optimality, in the scaled program


class Shares(NamedTuple):
    """Fair rates: of P paths, of A applications; and what one more unit of each of E elements would be worth."""

    paths: Floats  # [P]
    rates: Floats  # [A]
    prices: Floats  # [E] the multipliers of R w ≤ C


class _Program(NamedTuple):
    """The scaled program: maximise Σ weight log(total y), load y ≤ 1, y ≥ 0."""

    load: Floats  # [E, P]
    total: Floats  # [A, P]
    weight: Floats  # [A] they sum up to 1


class _Point(NamedTuple):
    rate: Floats  # [P] y
    price: Floats  # [E]


def fair_rates(load: Floats, capacity: Floats, owner: Ints, priority: Floats) -> Shares:
    """Return the weighted proportionally fair rates (4).

    `load` [E, P] is what a path takes of an element for a source tuple, `owner` [P] the application of a path. A path
    that needs an element without capacity gets 0, and so does an application that has no other path. Rates of
    applications are unique, those of their paths need not be. Raises `InvalidInput` for a path that takes nothing of
    anything, as its rate would be endless.
    """
    _refuse_nonsense(load, capacity, priority)
    usable = _usable(load, capacity)
    rates, prices = np.zeros(load.shape[1]), np.zeros(len(capacity))
    if usable.any():
        found = np.flatnonzero((load[:, usable] > 0).any(axis=1))
        rates[usable], prices[found] = _solve(load[np.ix_(found, usable)], capacity[found], owner[usable], priority)
    return Shares(rates, sum_by(owner, rates, len(priority)), prices)


def conditions(load: Floats, capacity: Floats, owner: Ints, priority: Floats, shares: Shares) -> float:
    """Return by how much the conditions of optimality of (4) are missed at most, in the scaled program.

    The conditions: no element is over its capacity, no price is negative, an element that has a price is full, and no
    path's elements cost less than what its application would gain by it, those of a path in use not more either.
    """
    usable = _usable(load, capacity)
    if not usable.any():
        return 0.0
    found = np.flatnonzero((load[:, usable] > 0).any(axis=1))
    program, limit, served = _scaled(load[np.ix_(found, usable)], capacity[found], owner[usable], priority)
    price = shares.prices[found] * capacity[found] / priority[served].sum()
    return _missed(program, _Point(shares.paths[usable] / limit, price))


def _usable(load: Floats, capacity: Floats) -> Bools:
    """Return which paths need no element without capacity: [P]."""
    return np.asarray(~((load > 0) & (capacity[:, None] <= 0)).any(axis=0))


def _solve(load: Floats, capacity: Floats, owner: Ints, priority: Floats) -> tuple[Floats, Floats]:
    program, limit, served = _scaled(load, capacity, owner, priority)
    point = _polished(program, _first_point(program))
    return point.rate * limit, point.price * priority[served].sum() / capacity


def _scaled(load: Floats, capacity: Floats, owner: Ints, priority: Floats) -> tuple[_Program, Floats, Ints]:
    """Return the scaled program, the limit of every path by itself, and the applications that have a path."""
    relative = load / capacity[:, None]
    limit = 1.0 / relative.max(axis=0)
    served, row = np.unique(owner, return_inverse=True)
    total = np.zeros((len(served), load.shape[1]))
    total[row, np.arange(load.shape[1])] = limit
    total /= total.max(axis=1, keepdims=True)
    return _Program(relative * limit, total, priority[served] / priority[served].sum()), limit, served.astype(np.int32)


def _first_point(program: _Program) -> _Point:
    """Return a nearly optimal point; one path alone fills its tightest element."""
    if program.load.shape[1] == 1:
        full = program.load[:, 0] >= program.load[:, 0].max()  # 1, but for rounding
        return _Point(np.ones(1), full / full.sum())
    cvxpy: Any = import_module("cvxpy")  # takes seconds, which commands that share nothing need not wait for
    rate = cvxpy.Variable(program.load.shape[1], nonneg=True)
    within = program.load @ rate <= 1.0
    utility = program.weight @ cvxpy.log(program.total @ rate)  # (4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the last digits are missing, which is what the polish is for
        cvxpy.Problem(cvxpy.Maximize(utility), [within]).solve(solver=cvxpy.CLARABEL)
    return _Point(np.maximum(rate.value, 0.0), np.maximum(within.dual_value, 0.0))


def _polished(program: _Program, point: _Point) -> _Point:
    """Solve the conditions of optimality as equations, given which elements are full and which paths are used."""
    full = point.price > 1.0 - program.load @ point.rate
    used = point.rate > _excess(program, point)
    best, missed = point, _missed(program, point)
    for _ in range(NEWTON_STEPS):
        if missed <= GOOD:
            break
        point = _newton(program, point, full, used)
        if not (program.total @ point.rate > 0).all():
            break
        if (now := _missed(program, point)) < missed:
            best, missed = point, now
    return best


def _newton(program: _Program, point: _Point, full: Bools, used: Bools) -> _Point:
    """Take one step towards: the full elements are full, the used paths pay what they are worth, the rest is 0."""
    load, total = program.load[np.ix_(full, used)], program.total[:, used]
    rate, price = point.rate[used], point.price[full]
    sums = total @ rate
    curvature = total.T @ ((program.weight / sums**2)[:, None] * total)
    # Neither path rates nor prices need be unique: the shift keeps the step small in directions that do not matter.
    curvature[np.diag_indices(len(rate))] += SHIFT
    matrix = np.block([[curvature, load.T], [load, -SHIFT * np.eye(len(price))]])
    gap = np.concatenate([total.T @ (program.weight / sums) - load.T @ price, 1.0 - load @ rate])
    step = np.linalg.solve(matrix, gap)
    rates, prices = np.zeros(len(used)), np.zeros(len(full))
    rates[used] = np.maximum(rate + step[: len(rate)], 0.0)
    prices[full] = np.maximum(price + step[len(rate) :], 0.0)
    return _Point(rates, prices)


def _excess(program: _Program, point: _Point) -> Floats:
    """Return how much more a path's elements cost than one more tuple on it is worth: [P]."""
    worth = program.total.T @ (program.weight / (program.total @ point.rate))
    return np.asarray(program.load.T @ point.price - worth)


def _missed(program: _Program, point: _Point) -> float:
    room = 1.0 - program.load @ point.rate
    return float(
        max(
            np.abs(np.minimum(room, point.price)).max(),  # feasibility, and complementary slackness of elements
            np.abs(np.minimum(_excess(program, point), point.rate)).max(),  # stationarity, and that of paths
            -min(point.rate.min(), point.price.min()),
        )
    )


def _refuse_nonsense(load: Floats, capacity: Floats, priority: Floats) -> None:
    if not (np.isfinite(load).all() and np.isfinite(capacity).all() and (load >= 0).all()):
        raise InvalidInput("load", "expected finite numbers ≥ 0, and finite capacities")
    if not ((priority > 0) & np.isfinite(priority)).all():
        raise InvalidInput("priority", f"expected numbers > 0, got {priority.min()}")
    if len(free := np.flatnonzero(~(load > 0).any(axis=0))):
        raise InvalidInput(f"load[:, {free[0]}]", "expected a load on some element, got none; state what a tuple costs")
