"""Weighted proportional fairness: the rates of applications that share elements (SPARCLE, eq. (4)).

maximise Σ P log x subject to R w ≤ C, w ≥ 0, where x is the sum of an application's path rates w. Capacities of cores
and of links differ by a factor of 10⁹, so the program is scaled to capacities of 1 and path limits of 1. Applications
that share nothing with each other, not even indirectly, have separate programs, each with priorities that sum to 1.
Clarabel solves all of them at once to about 10⁻⁶; Newton's method on the optimality conditions (`optimality`) refines
the result, and the conditions are checked at the end. If Clarabel has no answer, or an unusable one because priorities
are too far apart, Newton's method starts from an arbitrary point.
"""

import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from penstock.model.errors import InvalidInput
from penstock.model.taskgraph import Bools, Floats, Ints, sum_by
from penstock.policies.allocation.optimality import Point, Program, even_point, improved, missed, polished

EXACT = 1e-9  # tolerance of the optimality conditions
NEARLY, ANYWHERE = 1e-7, 1e-3  # minimum of all pairs at the start of Newton's method: from a solver's point, from any


class Shares(NamedTuple):
    """Fair rates of P paths and A applications, and the marginal value of each of E elements."""

    paths: Floats  # [P]
    rates: Floats  # [A]
    prices: Floats  # [E] the multipliers of R w ≤ C


class _Scaled(NamedTuple):
    """The scaled program, and how to scale back."""

    program: Program
    limit: Floats  # [P] the rate of a path by itself
    worth: Floats  # [E] the priorities of all applications in the element's program
    part: tuple[Ints, Ints, Ints]  # of elements, paths and applications: the number of their separate program


def fair_rates(load: Floats, capacity: Floats, owner: Ints, priority: Floats) -> Shares:
    """Return the weighted proportionally fair rates (4).

    `load` [E, P] is what a path takes of an element per source tuple, `owner` [P] the application of a path. A path
    that needs an element without capacity gets 0, and so does an application without any other path. Rates of
    applications are unique, those of their paths need not be. Raises `InvalidInput` for a path without any load, whose
    rate would be unlimited, and for priorities too far apart to meet the conditions to 10⁻⁹.
    """
    _refuse_nonsense(load, capacity, priority)
    usable = _usable(load, capacity)
    rates, prices = np.zeros(load.shape[1]), np.zeros(len(capacity))
    if usable.any():
        found = np.flatnonzero((load[:, usable] > 0).any(axis=1))
        rates[usable], prices[found] = _solve(load[np.ix_(found, usable)], capacity[found], owner[usable], priority)
    return Shares(rates, sum_by(owner, rates, len(priority)), prices)


def predicted_capacity(capacity: Floats, priority: float, others: Floats) -> Floats:
    """Return the capacity of every element that a best-effort application can expect before it is placed (6): [E].

    If an element limits all its users, each gets at least the share of its priority (SPARCLE, Theorem 3). A placement
    for that share everywhere depends on priorities, and little on the order of arrival. `others` [E] is the sum of the
    priorities of the applications that already use the element; the sum in (6) includes the new one.
    """
    return capacity * (priority / (priority + others))  # (6)


def conditions(load: Floats, capacity: Floats, owner: Ints, priority: Floats, shares: Shares) -> float:
    """Return the maximum violation of the optimality conditions of (4), as `missed` measures it."""
    usable = _usable(load, capacity)
    if not usable.any():
        return 0.0
    found = np.flatnonzero((load[:, usable] > 0).any(axis=1))
    scaled = _scaled(load[np.ix_(found, usable)], capacity[found], owner[usable], priority)
    price = shares.prices[found] * capacity[found] / scaled.worth
    return missed(scaled.program, Point(shares.paths[usable] / scaled.limit, price))


def _usable(load: Floats, capacity: Floats) -> Bools:
    """Return which paths need no element without capacity: [P]."""
    return np.asarray(~((load > 0) & (capacity[:, None] <= 0)).any(axis=0))


def _solve(load: Floats, capacity: Floats, owner: Ints, priority: Floats) -> tuple[Floats, Floats]:
    scaled = _scaled(load, capacity, owner, priority)
    whole, (element_part, path_part, row_part) = scaled.program, scaled.part
    near = _nearly(whole)
    rate, price = np.zeros(load.shape[1]), np.zeros(len(capacity))
    for part in range(int(path_part.max()) + 1):
        rows, elements, paths = (np.flatnonzero(of == part) for of in (row_part, element_part, path_part))
        program = Program(whole.load[np.ix_(elements, paths)], whole.total[np.ix_(rows, paths)], whole.weight[rows])
        start = None if near is None else Point(near.rate[paths], near.price[elements])
        rate[paths], price[elements] = _exact(program, start)
    return rate * scaled.limit, price * scaled.worth / capacity


def _scaled(load: Floats, capacity: Floats, owner: Ints, priority: Floats) -> _Scaled:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    relative = load / capacity[:, None]
    limit = 1.0 / relative.max(axis=0)
    served, row = np.unique(owner, return_inverse=True)
    total = np.zeros((len(served), load.shape[1]))
    total[row, np.arange(load.shape[1])] = limit
    total /= total.max(axis=1, keepdims=True)
    element, path = np.nonzero(load)
    nodes = len(served) + len(capacity)  # an edge joins an application to every element that it uses
    joined = coo_array((np.ones(len(path)), (row[path], len(served) + element)), shape=(nodes, nodes))
    part = connected_components(joined, directed=False)[1].astype(np.int32)
    row_part, element_part = part[: len(served)], part[len(served) :]
    worth = sum_by(row_part, priority[served], int(part.max()) + 1)
    program = Program(relative * limit, total, priority[served] / worth[row_part])
    return _Scaled(program, limit, worth[element_part], (element_part, row_part[row], row_part))


def _nearly(program: Program) -> Point | None:
    """Return a nearly optimal point; None if the solver has none."""
    if program.load.shape[1] == 1:
        return None
    cvxpy: Any = import_module("cvxpy")  # takes seconds, so only when something is shared
    rate = cvxpy.Variable(program.load.shape[1], nonneg=True)
    within = program.load @ rate <= 1.0
    utility = program.weight @ cvxpy.log(program.total @ rate)  # (4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about missing last digits, which Newton's method finds
        try:
            cvxpy.Problem(cvxpy.Maximize(utility), [within]).solve(solver=cvxpy.CLARABEL)
        except cvxpy.SolverError:
            return None
    if rate.value is None or not np.isfinite([*rate.value, *within.dual_value]).all():
        return None
    return Point(np.maximum(rate.value, 0.0), np.maximum(within.dual_value, 0.0))


def _points(program: Program, near: Point | None) -> Iterator[Point]:
    """Yield candidates for the optimum, the cheapest first."""
    if near is not None:
        yield polished(program, near)
        yield improved(program, near, NEARLY)
    yield improved(program, even_point(program), ANYWHERE)


def _exact(program: Program, near: Point | None) -> Point:
    """Return the optimum, from a nearby point if there is one; raises if it cannot be represented."""
    if program.load.shape[1] == 1:  # a single path fills its tightest element
        full = program.load[:, 0] >= program.load[:, 0].max()  # 1, but for rounding
        return Point(np.ones(1), full / full.sum())
    gap = np.inf
    with np.errstate(all="ignore"):  # an overflow shows in the violation of the conditions
        for found in _points(program, near):
            if (gap := missed(program, found)) <= EXACT:
                return found
    problem = f"the fair rates of {len(program.weight)} applications that share elements cannot be computed"
    raise InvalidInput("priority", f"{problem}, accuracy {gap:.1g} instead of {EXACT:g}; bring priorities closer")


def _refuse_nonsense(load: Floats, capacity: Floats, priority: Floats) -> None:
    if not (np.isfinite(load).all() and np.isfinite(capacity).all() and (load >= 0).all()):
        raise InvalidInput("load", "expected finite numbers ≥ 0, and finite capacities")
    if not ((priority > 0) & np.isfinite(priority)).all():
        raise InvalidInput("priority", f"expected numbers > 0, got {priority.min()}")
    if len(free := np.flatnonzero(~(load > 0).any(axis=0))):
        raise InvalidInput(f"load[:, {free[0]}]", "expected a load on some element, got none; set what a tuple costs")
