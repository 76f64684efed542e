"""The least communication cost that any routing can have: POTUS's Θ* (17), a linear program over mean rates.

Whatever a policy decides slot by slot, the means of a system whose queues stay bounded obey the rows below, so no
such policy costs less in the long run; and splitting every stream in the program's shares comes as near as one likes.
What the program leaves out is time: its cost says nothing of how long tuples wait.

Decisions where the model leaves a choice: a `keyed` queue sends its lanes equal shares, since the keys decide and not
the sender (the same reading as `System.onward`; where few keys make up most tuples, or a key has two lanes, the cost is
an estimate and no bound). A `copies` queue sends every lane all of it, at the cost of every lane, and each tuple counts
once against the limit of its task and the capacity of its machine, since it leaves the out-queue once. Machines'
capacity holds for all that leaves out-queues, tuples that stay on the machine among them.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array

from penstock.model.errors import InvalidInput
from penstock.model.slotted import UNLIMITED, Longs, System
from penstock.model.taskgraph import Floats

PRICED = 1e-9  # a price that is rounding, relative to the largest
NAMED = 4  # elements that a reason lists before it only counts

INFEASIBLE, UNBOUNDED = 2, 3  # linprog's status


class Capacity(StrEnum):
    """What can be used up."""

    SERVICE = "service"  # μ of a task
    LIMIT = "limit"  # γ of a task
    CARD = "card"  # tuples that may leave a machine


class Bottleneck(NamedTuple):
    """A capacity that is used up, so that more of it would cost less, or carry more."""

    capacity: Capacity
    number: int  # task; of a card: machine


class CommunicationBound(NamedTuple):
    """The least cost per slot, the split that has it, and what more of each capacity would save.

    Prices are the program's dual values: the cost saved by one more tuple per slot. Where they are not unique (as where
    two capacities in a row are both just used up) these are one choice of several. `onward`
    contains the target's own service price and all prices beyond: where a sender chooses, every lane that carries
    tuples is the cheapest of its queue by `cost + onward`, so a router that goes by that need not know the loads.
    """

    cost: float  # Θ*, a slot
    flow: Floats  # [L] mean tuples per slot
    processed: Floats  # [T] mean tuples per slot
    price: Floats  # [T] of service
    limit_price: Floats  # [T] of tuples that may leave a task
    card_price: Floats  # [K] of tuples that may leave a machine
    onward: Floats  # [L] least cost of all that follows from a tuple at the target, with the prices paid
    binding: tuple[Bottleneck, ...]  # those with a price, the one that matters most first


class Overload(NamedTuple):
    """No split carries the rates, and why."""

    reason: str  # one line: what is used up, by how much, what would help
    scale: float  # what the rates can be multiplied by at most; below 1
    binding: tuple[Bottleneck, ...]  # what is used up then, the one that matters most first


class _Program(NamedTuple):
    """The rows and bounds; columns are the flow of every lane, what every task processes, the scale of the rates."""

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


def communication_bound(system: System, rates: ArrayLike) -> CommunicationBound | Overload:
    """Return the least mean cost at which a system can carry mean arrivals a slot of every task. [T]

    Rates that exceed what any split carries give an `Overload`, which names what is used up.
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


def largest_scale(system: System, rates: ArrayLike) -> float:
    """Return the largest factor by which rates can be multiplied and still be carried; infinite without a limit.

    Rates times `share * largest_scale(system, rates)` are that share of what the best split carries.
    """
    return _largest(system, _checked(system, rates))[0]


def _largest(system: System, arrivals: Floats) -> tuple[float, tuple[Bottleneck, ...]]:
    """Return the largest factor, and what is used up then."""
    unit = float(arrivals.max(initial=0.0))
    if unit == 0.0:
        return np.inf, ()
    program = _program(system, arrivals / unit, unit)
    objective = np.append(np.zeros(len(program.upper)), -1.0)
    found = _solve(objective, program, scale=(0.0, np.inf))
    if found.status == UNBOUNDED:
        return np.inf, ()
    return -float(found.fun), _binding(system, _prices(system, program, found))


def _overload(system: System, arrivals: Floats) -> Overload:
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


def _checked(system: System, rates: ArrayLike) -> Floats:
    arrivals = np.asarray(rates, dtype=np.float64)
    if arrivals.shape != (system.tasks,):
        raise InvalidInput("rates", f"expected one a task, {system.tasks}, got an array of shape {arrivals.shape}")
    wrong = np.flatnonzero(~np.isfinite(arrivals) | (arrivals < 0))
    if len(wrong):
        raise InvalidInput(f"rates[{wrong[0]}]", f"expected a finite number >= 0, got {arrivals[wrong[0]]}")
    return arrivals


def _program(system: System, arrivals: Floats, unit: float) -> _Program:
    """Write the rows, in units in which the largest rate is 1: HiGHS tolerates 1e-7, whatever the unit."""
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


def _balance(system: System, arrivals: Floats) -> csr_array:
    """Write that what comes to a task is processed, and what it emits is sent."""
    lanes, tasks = len(system.target), system.tasks
    width, sender = np.diff(system.lanes), _sender(system)
    queue = np.repeat(np.arange(len(width)), width)
    decided = (system.copies | system.keyed)[queue]  # lanes in whose share nobody has a say
    share = np.where(system.copies, 1.0, 1.0 / np.maximum(width, 1))
    first = tasks + np.concatenate([[0], np.cumsum(np.where(system.copies | system.keyed, width, 1))])
    # One row a queue whose sender chooses; one a lane of the others.
    row = first[queue] + np.where(decided, np.arange(lanes) - system.lanes[queue], 0)
    emitted = system.emits[queue] * np.where(decided, share[queue], 1.0)
    counts = decided | (np.arange(lanes) == system.lanes[queue])  # the emitted tuples are named once a row
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


def _prices(system: System, program: _Program, found: Any) -> _Prices:
    """Return what one more of each capacity takes off the objective; never negative."""
    service = -found.upper.marginals[len(system.target) : -1]
    limit, card = np.zeros(system.tasks), np.zeros(len(system.capacity))
    rows = -found.ineqlin.marginals
    limit[program.limited] = rows[: len(program.limited)]
    card[program.carded] = rows[len(program.limited) :]
    return _Prices(*(np.maximum(one, 0.0) for one in (service, limit, card)))


def _binding(system: System, prices: _Prices) -> tuple[Bottleneck, ...]:
    """Return what has a price, in descending order of what all of it is worth."""
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


def _onward(system: System, prices: _Prices) -> Floats:
    """Return the least priced cost of all that follows from a tuple at each lane's target. [L]

    Not read off the program's own dual values, which say little about tasks that the best split leaves idle.
    """
    if not len(system.target):
        return np.zeros(0)
    sender = _sender(system)
    paid = system.cost + _leaves(system) * (prices.limit[sender] + prices.card[system.machine[sender]])
    task = np.repeat(np.arange(system.tasks), np.diff(system.queues))
    begin, width = system.lanes[:-1], np.diff(system.lanes)
    value = prices.service
    for _ in range(system.tasks):  # ways are no longer than that
        lane = paid + value[system.target]
        total = np.add.reduceat(lane, begin)
        free = np.where(system.keyed, total / width, np.minimum.reduceat(lane, begin))
        of_queue = np.where(system.copies, total, free)
        before, value = value, prices.service + np.bincount(task, system.emits * of_queue, system.tasks)
        if np.array_equal(before, value):
            break
    return value[system.target]


def _sender(system: System) -> Longs:
    """Return the task that each lane leaves. [L]"""
    task = np.repeat(np.arange(system.tasks), np.diff(system.queues))
    return np.asarray(np.repeat(task, np.diff(system.lanes)), dtype=np.int64)


def _leaves(system: System) -> Floats:
    """Return how many tuples leave the out-queue for every one on a lane: all copies of one are one. [L]"""
    width = np.diff(system.lanes)
    return np.asarray(np.repeat(np.where(system.copies, 1.0 / np.maximum(width, 1), 1.0), width), dtype=np.float64)
