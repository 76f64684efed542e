"""Weighted proportional fairness to the last digit: the optimality conditions, and Newton's method on them.

A solver leaves errors of 10⁻⁶ of all priorities, which may be everything that an application of small priority gets. So
the conditions are measured relative to what each application pays. If the solver's answer shows which elements are full
and which paths are used, `polished` solves the conditions as equations in a step or two. If it does not, because
priorities are far apart, `improved` takes many steps without such knowledge: of every pair of which one must be 0 (an
element's price and its free capacity, a path's rate and its surplus cost), it drives the product to 0.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.taskgraph import Bools, Floats

POLISHES = 8  # maximum number of steps; 1 or 2 are usual
SHIFT = 1e-9  # far below the relevant curvature, far above rounding
STEPS = 100  # 10 to 20 are usual, 70 were needed for priorities that differ by 10¹⁰
GOOD = 1e-12  # stopping tolerance
SHRINK = 0.1  # factor of pairs per step
INSIDE = 0.99  # fraction of the step at which something would become 0


class Program(NamedTuple):
    """Maximise Σ weight log(total y) (4), load y ≤ 1, y ≥ 0; the rate of a path alone is at most 1."""

    load: Floats  # [E, P]
    total: Floats  # [A, P] one entry per column, for the path's application
    weight: Floats  # [A]


class Point(NamedTuple):
    """Rates of paths and prices of elements, in the program's units."""

    rate: Floats  # [P]
    price: Floats  # [E]


class _Pairs(NamedTuple):
    """A point and derived values; rate × surplus and price × room have to be 0, income × sum the weight."""

    rate: Floats  # [P]
    price: Floats  # [E]
    room: Floats  # [E] free capacity
    surplus: Floats  # [P] cost of a path above its value
    income: Floats  # [A] value of an application's tuple


def missed(program: Program, point: Point) -> float:
    """Return the maximum violation of the optimality conditions of (4).

    The conditions: no element exceeds its capacity, an element with a price is full, no path costs less than its value,
    and a used one not more either. All are relative: to an element's capacity, to what its most dependent path pays in
    total, to a path's value and to the rate of its application.
    """
    if not (program.total @ point.rate > 0).all() or min(point.rate.min(), point.price.min()) < 0:
        return np.inf
    room, matters, surplus, share = _measures(program, point)
    return float(max(np.abs(np.minimum(room, matters)).max(), np.abs(np.minimum(surplus, share)).max()))


def _measures(program: Program, point: Point) -> tuple[Floats, Floats, Floats, Floats]:
    """Return pairs: free capacity and its part in a path's cost, a path's loss and its part in a rate."""
    sums = program.total @ point.rate
    worth = program.total.T @ (program.weight / sums)
    matters = (point.price[:, None] * program.load / worth).max(axis=1)
    surplus = program.load.T @ point.price / worth - 1.0
    return 1.0 - program.load @ point.rate, matters, surplus, point.rate * (program.total.T @ (1.0 / sums))


def polished(program: Program, start: Point) -> Point:
    """Return the best point near one that shows which elements are full and which paths are used."""
    room, matters, surplus, share = _measures(program, start)
    used = share > surplus
    full = (matters > room) & (program.load[:, used] > 0).any(axis=1)
    best, lowest, point = start, missed(program, start), start
    for _ in range(POLISHES):
        if lowest <= GOOD or not (program.total @ np.where(used, point.rate, 0.0) > 0).all():
            break
        try:
            point = _balanced(program, point, full, used)
        except np.linalg.LinAlgError:
            break
        if (now := missed(program, point)) < lowest:
            best, lowest = point, now
    return best


def _balanced(program: Program, point: Point, full: Bools, used: Bools) -> Point:
    """Take one step towards full elements that are full, used paths that pay their value, and 0 for all others."""
    load, total = program.load[np.ix_(full, used)], program.total[:, used]
    rate, price = point.rate[used], point.price[full]
    sums = total @ rate
    curvature = total.T @ ((program.weight / sums**2)[:, None] * total)
    by_path = 1.0 / np.sqrt(np.diag(curvature))
    by_element = 1.0 / (load * by_path).max(axis=1)
    sides = load * by_path * by_element[:, None]
    # Neither path rates nor prices need be unique: the shift keeps the step small in undetermined directions.
    matrix = np.block([[curvature * by_path[:, None] * by_path, sides.T], [sides, np.zeros((len(price), len(price)))]])
    matrix[np.diag_indices(len(matrix))] += np.repeat([SHIFT, -SHIFT], [len(rate), len(price)])
    gap = [by_path * (total.T @ (program.weight / sums) - load.T @ price), by_element * (1.0 - load @ rate)]
    step = np.linalg.solve(matrix, np.concatenate(gap))
    rates, prices = np.zeros(len(used)), np.zeros(len(full))
    rates[used] = np.maximum(rate + by_path * step[: len(rate)], 0.0)
    prices[full] = np.maximum(price + by_element * step[len(rate) :], 0.0)
    return Point(rates, prices)


def even_point(program: Program) -> Point:
    """Return a default starting point: half of every element, divided over its paths."""
    load = program.load
    crowd = np.where(load > 0, load.sum(axis=1)[:, None], 0.0).max(axis=0)
    users, weight = load > 0, program.weight @ (program.total > 0)
    return Point(0.5 / crowd, users @ weight / users.sum(axis=1))


def improved(program: Program, start: Point, apart: float) -> Point:
    """Return the best point found; no pair is below `apart` at the start."""
    weight = program.weight @ (program.total > 0)  # [P] of a path's application
    least = np.where(program.load > 0, weight, np.inf).min(axis=1)  # [E] over the users of an element
    at = _pairs(program, start, weight, least, apart)
    best, lowest = start, missed(program, start)
    for _ in range(STEPS):
        if lowest <= GOOD:
            break
        size = float(np.mean(np.concatenate([at.price * at.room / least, at.rate * at.surplus / weight])))
        try:
            step = _newton(program, at, SHRINK * size * weight, SHRINK * size * least)
        except np.linalg.LinAlgError:
            break
        down = max(float((-change / value).max()) for value, change in zip(at, step, strict=True))
        far = min(1.0, INSIDE / down) if down > 0 else 1.0
        at = _Pairs(*(value + far * change for value, change in zip(at, step, strict=True)))
        point = Point(at.rate, at.price)
        if (now := missed(program, point)) < lowest:
            best, lowest = point, now
    return best


def _pairs(program: Program, start: Point, weight: Floats, least: Floats, apart: float) -> _Pairs:
    rate, price = np.maximum(start.rate, apart), np.maximum(start.price, apart * least)
    income = program.weight / (program.total @ rate)
    surplus = program.load.T @ price - program.total.T @ income
    room = np.maximum(1.0 - program.load @ rate, apart)
    return _Pairs(rate, price, room, np.maximum(surplus, apart * weight / rate), income)


def _newton(program: Program, at: _Pairs, surplus_pays: Floats, room_pays: Floats) -> _Pairs:
    """Return the step that, if the conditions were linear, would give pairs these products and meet the others."""
    load, total = program.load, program.total
    sums = total @ at.rate
    paths = surplus_pays - at.rate * at.surplus
    elements = room_pays - at.price * at.room
    incomes = program.weight - sums * at.income
    unpaid = load.T @ at.price - total.T @ at.income - at.surplus
    curvature = total.T @ ((at.income / sums)[:, None] * total) + np.diag(at.surplus / at.rate)
    matrix = np.block([[curvature, load.T], [load, -np.diag(at.room / at.price)]])
    gap = np.concatenate(
        [paths / at.rate + total.T @ (incomes / sums) - unpaid, 1.0 - load @ at.rate - at.room - elements / at.price]
    )
    scale = 1.0 / np.sqrt(np.abs(np.diag(matrix)))  # rates, prices and priorities may differ by many powers of ten
    solved = scale * np.linalg.solve(matrix * scale[:, None] * scale, scale * gap)
    rate, price = solved[: len(at.rate)], solved[len(at.rate) :]
    return _Pairs(
        rate,
        price,
        (elements - at.room * price) / at.price,
        (paths - at.surplus * rate) / at.rate,
        (incomes - at.income * (total @ rate)) / sums,
    )
