"""The minimum communication cost under any routing: POTUS's Θ* (17), a linear program over mean rates.

Whatever a policy decides slot by slot, the means of a system with bounded queues satisfy the rows below, so no such
policy has a lower long-term cost; splitting every stream in the program's proportions comes arbitrarily close. The
program ignores time: its cost does not include how long tuples wait.

Modelling choices: a `keyed` queue sends equal shares to its lanes, because the keys decide and not the sender (as in
`SlottedSystem.onward`; if few keys make up most tuples, or a key has two lanes, it is an estimate, not a bound). A
`copies` queue sends all tuples to every lane, at the cost of every lane, and each tuple counts once against the limit
of its task and the capacity of its machine, because it leaves the out-queue once. A machine's capacity applies to all
tuples that leave out-queues, including those that stay on the machine.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array

from penstock.model.errors import InvalidInput
from penstock.model.slotted import UNLIMITED, Longs, SlottedSystem
from penstock.model.taskgraph import Floats

PRICED = 1e-9  # relative to the maximum price; smaller ones are rounding errors
NAMED = 4  # number of elements listed in a reason

INFEASIBLE, UNBOUNDED = 2, 3  # linprog's status


class Capacity(StrEnum):
    """The kinds of capacity."""

    SERVICE = "service"  # μ of a task
    LIMIT = "limit"  # γ of a task
    CARD = "card"  # maximum tuples that leave a machine


class Bottleneck(NamedTuple):
    """An exhausted capacity: more of it would reduce the cost, or increase the load."""

    capacity: Capacity
    number: int  # task; for a card: machine


class CommunicationBound(NamedTuple):
    """The minimum cost per slot, the split that achieves it, and the value of more of each capacity.

    Prices are the program's dual values: the cost saved by one more tuple per slot. If they are not unique (as when two
    consecutive capacities are both just exhausted) these are one choice of several. `onward` includes the target's own
    service price and all prices beyond: if a sender chooses, every lane that carries tuples is the cheapest of its
    queue by `cost + onward`, so a router that minimises it need not know the loads.
    """

    cost: float  # Θ*, per slot
    flow: Floats  # [L] mean tuples per slot
    processed: Floats  # [T] mean tuples per slot
    price: Floats  # [T] of service
    limit_price: Floats  # [T] of the outflow limit
    card_price: Floats  # [K] of the card
    onward: Floats  # [L] minimum cost of all that follows from a tuple at the target, including prices
    binding: tuple[Bottleneck, ...]  # those with a price, the most important first


class Overload(NamedTuple):
    """No split sustains the rates, and why."""

    reason: str  # one line: the exhausted capacities and a remedy
    scale: float  # maximum factor for the rates; below 1
    binding: tuple[Bottleneck, ...]  # exhausted at that scale, the most important first


class _Program(NamedTuple):
    """The rows and bounds; columns are the flow of each lane, the processing of each task, the scale of the rates."""

    equal: csr_array  # all of these are 0
    within: csr_array
    room: Floats  # right-hand sides of `within`
    upper: Floats  # of every column but the last
    limited: Longs  # tasks whose limit is a row; these come first
    carded: Longs  # machines whose capacity is a row


class _Prices(NamedTuple):
    service: Floats  # [T]
    limit: Floats  # [T]
    card: Floats  # [K]


def communication_bound(system: SlottedSystem, rates: ArrayLike) -> CommunicationBound | Overload:
    """Return the minimum mean cost at which a system sustains the mean arrivals per slot of every task. [T]

    Rates that no split sustains result in an `Overload`, which names the exhausted capacities.
    """
    arrivals = _checked(system, rates)
    unit = float(arrivals.max(initial=0.0)) or 1.0
    program = _program(system, arrivals / unit, unit)
    cost = np.concatenate([system.cost, np.zeros(system.tasks + 1)])
    found = _solve(cost, program, scale=(1.0, 1.0))
    if found.status == INFEASIBLE:
        return _overload(system, arrivals)
    prices = _prices(system, program, found)
    lanes = len(system.target)
    return CommunicationBound(
        cost=float(found.fun) * unit,
        flow=found.x[:lanes] * unit,
        processed=found.x[lanes:-1] * unit,
        price=prices.service,
        limit_price=prices.limit,
        card_price=prices.card,
        onward=_onward(system, prices),
        binding=_binding(system, prices),
    )


def largest_scale(system: SlottedSystem, rates: ArrayLike) -> float:
    """Return the maximum factor by which rates can be multiplied and still be sustained; infinite without a limit.

    Rates times `share * largest_scale(system, rates)` are that share of the maximum load.
    """
    return _largest(system, _checked(system, rates))[0]


def _largest(system: SlottedSystem, arrivals: Floats) -> tuple[float, tuple[Bottleneck, ...]]:
    """Return the maximum factor, and the capacities exhausted by it."""
    unit = float(arrivals.max(initial=0.0))
    if unit == 0.0:
        return np.inf, ()
    program = _program(system, arrivals / unit, unit)
    objective = np.append(np.zeros(len(program.upper)), -1.0)
    found = _solve(objective, program, scale=(0.0, np.inf))
    if found.status == UNBOUNDED:
        return np.inf, ()
    return -float(found.fun), _binding(system, _prices(system, program, found))


def _overload(system: SlottedSystem, arrivals: Floats) -> Overload:
    scale, binding = _largest(system, arrivals)
    words = {
        Capacity.SERVICE: "the service of task",
        Capacity.LIMIT: "the limit of task",
        Capacity.CARD: "the card of machine",
    }
    named = [f"{words[one.capacity]} {one.number}" for one in binding[:NAMED]]
    if len(binding) > NAMED:
        named.append(f"{len(binding) - NAMED} more")
    whole = " and ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)
    remedy = f"multiply the rates by at most {scale:.4g}, or raise that" if scale > 0 else "it is 0, so raise it"
    return Overload(f"{whole} cannot carry the rates; {remedy}", scale, binding)


def _checked(system: SlottedSystem, rates: ArrayLike) -> Floats:
    arrivals = np.asarray(rates, dtype=np.float64)
    if arrivals.shape != (system.tasks,):
        raise InvalidInput("rates", f"expected one per task, {system.tasks}, got an array of shape {arrivals.shape}")
    wrong = np.flatnonzero(~np.isfinite(arrivals) | (arrivals < 0))
    if len(wrong):
        raise InvalidInput(f"rates[{wrong[0]}]", f"expected a finite number >= 0, got {arrivals[wrong[0]]}")
    return arrivals


def _program(system: SlottedSystem, arrivals: Floats, unit: float) -> _Program:
    """Write the rows, scaled so that the maximum rate is 1: HiGHS's tolerance is 1e-7 in any unit."""
    lanes, tasks = len(system.target), system.tasks
    sender = _sender(system)
    card = system.machine[sender]
    bound, wired = (np.flatnonzero(room < UNLIMITED) for room in (system.limit[sender], system.capacity[card]))
    limited, limit_row = np.unique(sender[bound], return_inverse=True)
    carded, card_row = np.unique(card[wired], return_inverse=True)
    lane, row = np.concatenate([bound, wired]), np.concatenate([limit_row, card_row + len(limited)])
    leaves = _leaves(system)
    processed = np.where(system.source, np.inf, system.service / unit)
    return _Program(
        equal=_balance(system, arrivals),
        within=csr_array((leaves[lane], (row, lane)), shape=(len(limited) + len(carded), lanes + tasks + 1)),
        room=np.concatenate([system.limit[limited], system.capacity[carded]]) / unit,
        upper=np.concatenate([np.full(lanes, np.inf), processed]),
        limited=limited,
        carded=carded,
    )


def _balance(system: SlottedSystem, arrivals: Floats) -> csr_array:
    """Write the balance equations: arrivals of a task are processed, and its output is sent."""
    lanes, tasks = len(system.target), system.tasks
    width, sender = np.diff(system.lanes), _sender(system)
    queue = np.repeat(np.arange(len(width)), width)
    decided = (system.copies | system.keyed)[queue]  # lanes with fixed shares
    share = np.where(system.copies, 1.0, 1.0 / np.maximum(width, 1))
    first = tasks + np.concatenate([[0], np.cumsum(np.where(system.copies | system.keyed, width, 1))])
    # One row per queue whose sender chooses; one per lane of the others.
    row = first[queue] + np.where(decided, np.arange(lanes) - system.lanes[queue], 0)
    emitted = system.emits[queue] * np.where(decided, share[queue], 1.0)
    counts = decided | (np.arange(lanes) == system.lanes[queue])  # the emitted tuples occur once per row
    comes = (np.arange(tasks), lanes + np.arange(tasks), np.ones(tasks))
    heard = (system.target, np.arange(lanes), -np.ones(lanes))
    arrives = (np.arange(tasks), np.full(tasks, lanes + tasks), -arrivals)
    sent = (row, np.arange(lanes), np.ones(lanes))
    made = (row[counts], lanes + sender[counts], -emitted[counts])
    rows, columns, factors = (np.concatenate(part) for part in zip(comes, heard, arrives, sent, made, strict=True))
    return coo_array((factors, (rows, columns)), shape=(int(first[-1]), lanes + tasks + 1)).tocsr()


def _solve(objective: Floats, program: _Program, scale: tuple[float, float]) -> Any:
    bounds = np.column_stack([np.zeros(len(objective)), np.append(program.upper, 0.0)])
    bounds[-1] = scale
    found: Any = linprog(  # type: ignore[call-overload]  # the stubs know no sparse rows
        objective,
        A_ub=program.within,
        b_ub=program.room,
        A_eq=program.equal,
        b_eq=np.zeros(program.equal.shape[0]),
        bounds=bounds,
        method="highs",
    )
    if found.status not in (0, INFEASIBLE, UNBOUNDED):
        raise RuntimeError(f"HiGHS stopped without an answer: {found.message}")
    return found


def _prices(system: SlottedSystem, program: _Program, found: Any) -> _Prices:
    """Return the reduction of the objective per additional unit of each capacity; never negative."""
    service = -found.upper.marginals[len(system.target) : -1]
    limit, card = np.zeros(system.tasks), np.zeros(len(system.capacity))
    rows = -found.ineqlin.marginals
    limit[program.limited] = rows[: len(program.limited)]
    card[program.carded] = rows[len(program.limited) :]
    return _Prices(*(np.maximum(one, 0.0) for one in (service, limit, card)))


def _binding(system: SlottedSystem, prices: _Prices) -> tuple[Bottleneck, ...]:
    """Return the capacities with a price, in descending order of their total value."""
    found: list[tuple[float, Bottleneck]] = []
    kinds: Sequence[tuple[Capacity, Floats, Floats | Longs]] = (
        (Capacity.SERVICE, prices.service, system.service),
        (Capacity.LIMIT, prices.limit, system.limit),
        (Capacity.CARD, prices.card, system.capacity),
    )
    least = PRICED * max((float(price.max(initial=0.0)) for _, price, _ in kinds), default=0.0)
    for capacity, price, size in kinds:
        found += [(float(price[n] * size[n]), Bottleneck(capacity, int(n))) for n in np.flatnonzero(price > least)]
    return tuple(one for _, one in sorted(found, key=lambda pair: -pair[0]))


def _onward(system: SlottedSystem, prices: _Prices) -> Floats:
    """Return the minimum priced cost of all that follows from a tuple at each lane's target. [L]

    Not taken from the program's dual values, which are uninformative for tasks that the optimal split leaves idle.
    """
    if not len(system.target):
        return np.zeros(0)
    sender = _sender(system)
    paid = system.cost + _leaves(system) * (prices.limit[sender] + prices.card[system.machine[sender]])
    task = np.repeat(np.arange(system.tasks), np.diff(system.queues))
    begin, width = system.lanes[:-1], np.diff(system.lanes)
    value = prices.service
    for _ in range(system.tasks):  # paths are not longer than that
        lane = paid + value[system.target]
        total = np.add.reduceat(lane, begin)
        free = np.where(system.keyed, total / width, np.minimum.reduceat(lane, begin))
        of_queue = np.where(system.copies, total, free)
        before, value = value, prices.service + np.bincount(task, system.emits * of_queue, system.tasks)
        if np.array_equal(before, value):
            break
    return value[system.target]


def _sender(system: SlottedSystem) -> Longs:
    """Return the task of each lane. [L]"""
    task = np.repeat(np.arange(system.tasks), np.diff(system.queues))
    return np.asarray(np.repeat(task, np.diff(system.lanes)), dtype=np.int64)


def _leaves(system: SlottedSystem) -> Floats:
    """Return the number of tuples that leave the out-queue per tuple on a lane: all copies of one count as one. [L]"""
    width = np.diff(system.lanes)
    return np.asarray(np.repeat(np.where(system.copies, 1.0 / np.maximum(width, 1), 1.0), width), dtype=np.float64)
