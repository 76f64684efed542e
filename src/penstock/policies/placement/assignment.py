"""SPARCLE's assignment as a kernel: tasks ranked by γ of eq. (2), placed and charged one after another (Algorithm 2).

Tasks with a given order are not ranked: the pinned ones and, for the paper's greedy baselines, all others.

While tasks are placed, loads grow and γ decreases: a group's best machine remains the best as long as γ there has not
changed, and only then the others are searched again.

There is one kernel for routed clusters and one for meshes, so that only what is used is compiled. Both delegate to a
few stages that create no arrays, which would take long to compile.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel, part, stage
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.placement.alike import group_alike, no_partners, pass_on
from penstock.policies.placement.carried import (
    Carried,
    Hops,
    charge_cards,
    charge_links,
    clear_carried,
    most_hops,
    no_hops,
    nothing_carried,
    set_detours,
    with_hops,
)
from penstock.policies.placement.gammas import EQUAL, Demand, Supply, processing_rate, rank
from penstock.policies.placement.joint_ways import Ways, clear_wishes, find_only_links, find_promises, no_wishes, settle
from penstock.policies.placement.network_bounds import (
    Cards,
    Reached,
    Sought,
    find_cards,
    find_ways,
    list_ends,
    most_wanted,
    nothing_wanted,
    rate_cards,
    want,
)
from penstock.policies.placement.partly_placed import (
    Asked,
    Offered,
    Placed,
    able,
    conflicting,
    least_loaded,
    nobody_placed,
    nothing_placed,
    put,
    room_for,
)
from penstock.policies.placement.transports import find_between
from penstock.policies.placement.widest_trees import Kept, no_trees, reverse, with_room


class Assigned(NamedTuple):
    """Result: slots of tasks, free memory, and routes."""

    slot: Ints  # [T] -1: not placed
    slot_free: Floats  # [S] MB
    free: Floats  # [M] MB
    hops: Hops
    stuck: int  # a task that has no room anywhere, -1: all are placed


class State(NamedTuple):
    """State of an assignment."""

    asked: Asked
    offered: Offered
    given: Ints  # tasks in a given order: pinned ones first; the others are ranked
    placed: Placed
    carried: Carried
    reached: Reached
    work: Floats  # [G] core-seconds per source tuple of the next task of each group
    needs: Floats  # [G, R]
    slot_load: Floats  # [G, M] of the least loaded slot with room for it
    room: Bools  # [G, M] whether there is room
    sought: Sought
    cards: Cards
    best: Floats  # [G] γ of each group on its best machine, at the last ranking
    where: Ints  # [G] that machine
    promises: Floats  # [G] upper bound of γ


def assign(asked: Asked, offered: Offered, near: bool, together: bool, order: Ints) -> Assigned:
    """Place all tasks: pinned ones, those of the `order`, whose routes are rated separately, then by rank.

    `near` selects the tie rule among equally good machines.
    """
    state = start(asked, offered, near, together, order)
    hops, stuck = (assign_over_links if offered.routed else assign_over_cards)(state, near)
    return Assigned(state.placed.slot, state.placed.slot_free, state.placed.free, hops, stuck)


@kernel
def assign_over_links(state: State, near: bool) -> tuple[Hops, int]:
    """Place all tasks on a routed cluster; return the routes and a task without room anywhere, -1: all are placed."""
    streams, groups, nodes = len(state.asked.streams.listed), len(state.best), state.offered.links.nodes
    together = state.reached.together
    hops, kept = no_hops(streams, 4 * streams, streams), no_trees(4 * groups, nodes, len(state.offered.cpu))
    by_promise = np.empty(groups, dtype=np.int64)
    prepare(state)
    for step in range(len(state.asked.component)):
        if together and step >= len(state.given):
            promise(state)
            by_promise = np.argsort(state.promises)
        task, machine = next_over_links(state, kept, by_promise, step, near)
        hops = with_hops(hops, hops_ahead(state, task), nodes)
        if not place_over_links(state, hops, task, machine):
            return hops, task
        for end in range(ends_after(state, task)):
            kept = with_room(kept, 2 * groups)
            want_ways(state, kept, end)
        renew_ways(state, kept)
    return hops, -1


@kernel
def assign_over_cards(state: State, near: bool) -> tuple[Hops, int]:
    """Place all tasks on a mesh; return no routes and a task without room anywhere, -1: all are placed."""
    prepare(state)
    risen = False  # whether any γ may have increased since the last ranking
    for step in range(len(state.asked.component)):
        task, machine = next_over_cards(state, step, near, not risen)
        if not place_over_cards(state, task, machine):
            return no_hops(0, 0, 0), task
        risen = load_cards(state, task)
    return no_hops(0, 0, 0), -1


def start(asked: Asked, offered: Offered, near: bool, together: bool, order: Ints) -> State:
    """Create the arrays that `prepare` fills: in Python, because array creation in a kernel takes long to compile."""
    placed, carried = nothing_placed(asked, offered), nothing_carried(offered, near)
    components, machines = len(asked.first) - 1, len(offered.cpu)
    given = np.concatenate((np.flatnonzero(asked.pin >= 0), order[asked.pin[order] < 0])).astype(np.int32)
    between = find_between(asked.streams, asked.first, asked.gain, np.zeros(components, dtype=np.bool_))
    groups = group_alike(asked, between)
    number, links = len(groups.task), len(carried.load)
    shape = number, machines
    most = most_wanted(asked, machines, together) if offered.routed else 0
    carded = (2, number, machines) if offered.carded else (2, 0, 0)
    return State(
        asked,
        offered,
        given,
        placed,
        carried,
        Reached(groups, between, no_partners(number), together),
        np.empty(number),
        np.empty((number, asked.needs.shape[1])),
        np.empty(shape),
        np.empty(shape, dtype=np.bool_),
        Sought(
            no_wishes(number, machines, most, links, together and offered.routed),
            nothing_wanted(number, most),
            nothing_wanted(number, most if together else 0),
            np.empty(1, dtype=np.bool_),
            np.empty(links),
            reverse(offered.links),
            room_for(asked, offered, number),
        ),
        Cards(np.empty(carded), np.empty(carded)),
        np.empty(number),
        np.empty(number, dtype=np.int32),
        np.empty(number),
    )


@stage
def prepare(state: State) -> None:
    """Fill the arrays: nothing is placed, carried or wanted; machines with room and those with one link only."""
    nobody_placed(state.placed, state.offered)
    clear_carried(state.carried)
    clear_wishes(state.sought.wishes)
    sought, task = state.sought, state.reached.groups.task
    sought.wanted.number[:], sought.anew[0], sought.seen[:], sought.room.added[:] = 0, False, 0.0, 0.0
    state.cards.near[:], state.cards.far[:], state.where[:], state.slot_load[:] = 0.0, 0.0, -1, 0.0
    for group in range(len(task)):
        state.work[group] = state.asked.work[task[group]]
        for resource in range(state.needs.shape[1]):
            state.needs[group, resource] = state.asked.needs[task[group], resource]
        for machine in range(state.room.shape[1]):
            state.room[group, machine] = fits(state, task[group], machine)
    if state.offered.routed:
        find_only_links(ways_of(state), state.sought.room.only)


@part
def demand_of(state: State) -> Demand:
    """Return what the next task of each group needs."""
    return Demand(state.reached.groups.task, state.reached.groups.left, state.work, state.needs)


@part
def supply_of(state: State) -> Supply:
    """Return the capacities of machines for them."""
    offered, placed = state.offered, state.placed
    return Supply(
        offered.cpu, placed.load, offered.slot_cpu, state.slot_load, offered.capacity, placed.used, state.room
    )


@part
def ways_of(state: State) -> Ways:
    """Return the network and its load."""
    return Ways(state.offered.links, state.sought.back, state.carried.load)


@stage
def promise(state: State) -> None:
    """Set the upper bound of each group's γ."""
    find_promises(demand_of(state), supply_of(state), state.sought.wishes, state.promises)


@stage
def next_over_links(state: State, kept: Kept, by_promise: NDArray[np.int64], step: int, near: bool) -> tuple[int, int]:
    """Return the next task and its machine, with its routes settled; `by_promise` has the groups in that order."""
    sought, together = state.sought, state.reached.together
    if together and step >= len(state.given):
        settle(by_promise, demand_of(state), supply_of(state), sought.wishes, kept, ways_of(state), sought.room)
    return next_task(state, step, near, not together)


@stage
def next_over_cards(state: State, step: int, near: bool, falling: bool) -> tuple[int, int]:
    """Return the next task and its machine, after rating the relevant cards."""
    groups, only = state.reached.groups, -1 if step >= len(state.given) else state.given[step]
    for group in range(len(groups.task)):
        if state.offered.carded and groups.left[group] and (only < 0 or groups.of[only] == group):
            rate_cards(state.sought.wishes.rates, state.cards, state.carried, state.offered.card, group)
    return next_task(state, step, near, falling)


@part
def next_task(state: State, step: int, near: bool, falling: bool) -> tuple[int, int]:
    """Return the next task and its machine.

    Without a given order, it is the task with the lowest γ on its best machine (Algorithm 2, line 16).
    """
    groups, rates = state.reached.groups, state.sought.wishes.rates
    if step < len(state.given):
        task = int(state.given[step])
        if state.asked.pin[task] >= 0:
            return task, int(state.asked.pin[task])
        group = int(groups.of[task])
    else:
        group = rank(demand_of(state), supply_of(state), rates, state.best, state.where, falling)
        task = int(groups.task[group])
    return task, choose(state, group, task, near)


@stage
def hops_ahead(state: State, task: int) -> int:
    """Return the maximum number of hops that a task may need."""
    return most_hops(state.asked, state.placed, task)


@stage
def place_over_links(state: State, hops: Hops, task: int, machine: int) -> bool:
    """Place a task on a machine and charge the links, unless there is no room; return whether there is."""
    if machine < 0 or not fits(state, task, machine):
        return False
    links, room = state.offered.links, state.sought.room
    charge_links(state.carried, hops, state.asked, state.placed, links, room, task, machine)
    place(state, task, machine)
    return True


@stage
def place_over_cards(state: State, task: int, machine: int) -> bool:
    """Place a task on a machine and charge the cards, unless there is no room; return whether there is."""
    if machine < 0 or not fits(state, task, machine):
        return False
    if state.offered.carded:
        charge_cards(state.carried, state.asked, state.placed, state.sought.room.bits, task, machine)
    place(state, task, machine)
    return True


@stage
def ends_after(state: State, task: int) -> int:
    """Return the number of placed tasks to which routes are searched after a task is placed."""
    return list_ends(state.sought, state.reached, state.asked, state.placed, task)


@stage
def want_ways(state: State, kept: Kept, end: int) -> None:
    """Add routes to one of these tasks to the wishes of groups."""
    want(state.sought, kept, state.reached, state.asked, state.placed, int(state.sought.room.listed[end]))


@stage
def renew_ways(state: State, kept: Kept) -> None:
    """Find the routes that are wanted."""
    find_ways(state.sought, kept, state.reached, ways_of(state))


@stage
def load_cards(state: State, task: int) -> bool:
    """Update what groups would add to cards after a task is placed; return whether any γ may have increased."""
    return find_cards(state.cards, state.reached, state.asked, state.placed, state.sought.room, task)


@part
def place(state: State, task: int, machine: int) -> None:
    """Place a task and record which slot of its machine the next task of each group would use."""
    groups = state.reached.groups
    put(state.placed, state.asked, state.offered, task, machine)
    pass_on(groups, state.placed, task)
    for group in range(len(groups.task)):
        if groups.left[group]:
            slot = least_loaded(state.placed, state.offered, machine, state.asked.memory[groups.task[group]])
            state.slot_load[group, machine] = state.placed.slot_load[slot] if slot >= 0 else np.inf
            state.room[group, machine] &= slot >= 0
            if state.asked.conflicts.shape[0] > 0:
                apart = state.asked.conflicts[groups.component[group], state.asked.component[task]]
                state.room[group, machine] &= not apart


@part
def fits(state: State, task: int, machine: int) -> bool:
    """Return whether a machine has room and resources for a task, and no task that it conflicts with."""
    slot = least_loaded(state.placed, state.offered, machine, state.asked.memory[task])
    if conflicting(state.asked, state.placed, task, machine):
        return False
    return slot >= 0 and able(state.asked, state.offered, task, machine)


@part
def choose(state: State, group: int, task: int, near: bool) -> int:
    """Return the machine on which a task of a group has the highest γ, a connected one if there is any.

    Ties go to the first, or to the one `near` its neighbours; -1: none has room.
    """
    demand, supply, rates = demand_of(state), supply_of(state), state.sought.wishes.rates
    speed, gamma = state.sought.room.speed, state.sought.room.gamma
    usable = False
    for machine in range(len(speed)):
        speed[machine] = -1.0
        if supply.room[group, machine]:
            speed[machine] = processing_rate(demand, supply, group, machine)
            usable |= rates[group, machine] > 0.0
    best, highest, equal = -1, -1.0, 0
    for machine in range(len(gamma)):
        gamma[machine] = -1.0
        if supply.room[group, machine] and (rates[group, machine] > 0.0 or not usable):
            gamma[machine] = min(speed[machine], rates[group, machine])
        if gamma[machine] > highest:
            best, highest = machine, gamma[machine]
    for machine in range(len(gamma)):
        equal += 1 if gamma[machine] >= highest * (1 - EQUAL) else 0
    return nearest(state, task, highest) if near and best >= 0 and equal > 1 else best


@part
def nearest(state: State, task: int, highest: float) -> int:
    """Return, of the machines with the highest γ, the one with the smallest detour of transports, then the fastest."""
    room, found = state.sought.room, -1
    set_detours(state.carried, state.asked, state.placed, state.offered.links, state.sought.back, room, task)
    detour, speed = room.detour, room.speed
    for machine in range(len(detour)):
        if room.gamma[machine] < highest * (1 - EQUAL):
            continue
        closer = found < 0 or detour[machine] < detour[found]
        if closer or (detour[machine] == detour[found] and speed[machine] > speed[found]):
            found = machine
    return found
