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
from penstock.policies.placement.equivalent_tasks import advance_group, group_equivalent, no_partners
from penstock.policies.placement.gammas import EQUAL, Demand, Supply, processing_rate, rank
from penstock.policies.placement.joint_routes import (
    Network,
    clear_bounds,
    empty_bounds,
    find_only_links,
    rate_jointly,
    set_upper_bounds,
)
from penstock.policies.placement.network_bounds import (
    Cards,
    Reached,
    RouteSearch,
    find_cards,
    find_routes,
    list_ends,
    most_trees,
    need_trees,
    no_group_trees,
    rate_cards,
)
from penstock.policies.placement.partial_placement import (
    Capacities,
    Placed,
    Workload,
    able,
    allocate_scratch,
    clear_placement,
    conflicting,
    empty_placement,
    least_loaded,
    put,
)
from penstock.policies.placement.routed_traffic import (
    Hops,
    Traffic,
    charge_cards,
    charge_links,
    clear_traffic,
    most_hops,
    no_hops,
    no_traffic,
    set_detours,
    with_hops,
)
from penstock.policies.placement.transports import find_between
from penstock.policies.placement.widest_trees import Trees, no_trees, reverse, with_room


class Result(NamedTuple):
    """Result: slots of tasks, free memory, and routes."""

    slot: Ints  # [T] -1: not placed
    slot_free: Floats  # [S] MB
    free: Floats  # [M] MB
    hops: Hops
    unplaced: int  # a task that has no room anywhere, -1: all are placed


class Progress(NamedTuple):
    """State of an assignment."""

    workload: Workload
    capacities: Capacities
    in_order: Ints  # tasks in a given order: pinned ones first; the others are ranked
    placed: Placed
    traffic: Traffic
    reached: Reached
    work: Floats  # [G] core-seconds per source tuple of the next task of each group
    needs: Floats  # [G, R]
    slot_load: Floats  # [G, M] of the least loaded slot with room for it
    room: Bools  # [G, M] whether there is room
    search: RouteSearch
    cards: Cards
    best: Floats  # [G] γ of each group on its best machine, at the last ranking
    where: Ints  # [G] that machine
    upper_bounds: Floats  # [G] upper bound of γ


def assign(workload: Workload, capacities: Capacities, near: bool, together: bool, order: Ints) -> Result:
    """Place all tasks: pinned ones, those of the `order`, whose routes are rated separately, then by rank.

    `near` selects the tie rule among equally good machines.
    """
    state = new_progress(workload, capacities, near, together, order)
    hops, unplaced = (assign_over_links if capacities.routed else assign_over_cards)(state, near)
    return Result(state.placed.slot, state.placed.slot_free, state.placed.free, hops, unplaced)


@kernel
def assign_over_links(state: Progress, near: bool) -> tuple[Hops, int]:
    """Place all tasks on a routed cluster; return the routes and a task without room anywhere, -1: all are placed."""
    streams, groups, nodes = len(state.workload.streams.listed), len(state.best), state.capacities.links.nodes
    together = state.reached.together
    hops, trees = no_hops(streams, 4 * streams, streams), no_trees(4 * groups, nodes, len(state.capacities.cpu))
    by_bound = np.empty(groups, dtype=np.int64)
    reset_state(state)
    for step in range(len(state.workload.component)):
        if together and step >= len(state.in_order):
            find_upper_bounds(state)
            by_bound = np.argsort(state.upper_bounds)
        task, machine = next_over_links(state, trees, by_bound, step, near)
        hops = with_hops(hops, hops_ahead(state, task), nodes)
        if not place_over_links(state, hops, task, machine):
            return hops, task
        for end in range(ends_after(state, task)):
            trees = with_room(trees, 2 * groups)
            need_routes(state, trees, end)
        renew_routes(state, trees)
    return hops, -1


@kernel
def assign_over_cards(state: Progress, near: bool) -> tuple[Hops, int]:
    """Place all tasks on a mesh; return no routes and a task without room anywhere, -1: all are placed."""
    reset_state(state)
    increased = False  # whether any γ may have increased since the last ranking
    for step in range(len(state.workload.component)):
        task, machine = next_over_cards(state, step, near, not increased)
        if not place_over_cards(state, task, machine):
            return no_hops(0, 0, 0), task
        increased = load_cards(state, task)
    return no_hops(0, 0, 0), -1


def new_progress(workload: Workload, capacities: Capacities, near: bool, together: bool, order: Ints) -> Progress:
    """Create the arrays that `reset_state` fills: in Python, because a kernel that creates arrays compiles slowly."""
    placed, traffic = empty_placement(workload, capacities), no_traffic(capacities, near)
    components, machines = len(workload.first) - 1, len(capacities.cpu)
    in_order = np.concatenate((np.flatnonzero(workload.pin >= 0), order[workload.pin[order] < 0])).astype(np.int32)
    between = find_between(workload.streams, workload.first, workload.gain, np.zeros(components, dtype=np.bool_))
    groups = group_equivalent(workload, between)
    number, links = len(groups.task), len(traffic.load)
    shape = number, machines
    most = most_trees(workload, machines, together) if capacities.routed else 0
    carded = (2, number, machines) if capacities.carded else (2, 0, 0)
    return Progress(
        workload,
        capacities,
        in_order,
        placed,
        traffic,
        Reached(groups, between, no_partners(number), together),
        np.empty(number),
        np.empty((number, workload.needs.shape[1])),
        np.empty(shape),
        np.empty(shape, dtype=np.bool_),
        RouteSearch(
            empty_bounds(number, machines, most, links, together and capacities.routed),
            no_group_trees(number, most),
            no_group_trees(number, most if together else 0),
            np.empty(1, dtype=np.bool_),
            np.empty(links),
            reverse(capacities.links),
            allocate_scratch(workload, capacities, number),
        ),
        Cards(np.empty(carded), np.empty(carded)),
        np.empty(number),
        np.empty(number, dtype=np.int32),
        np.empty(number),
    )


@stage
def reset_state(state: Progress) -> None:
    """Fill the arrays: no task, traffic or tree; machines with room and those with one link only."""
    clear_placement(state.placed, state.capacities)
    clear_traffic(state.traffic)
    clear_bounds(state.search.bounds)
    search, task = state.search, state.reached.groups.task
    search.group_trees.number[:], search.changed[0], search.seen[:], search.room.added[:] = 0, False, 0.0, 0.0
    state.cards.near[:], state.cards.far[:], state.where[:], state.slot_load[:] = 0.0, 0.0, -1, 0.0
    for group in range(len(task)):
        state.work[group] = state.workload.work[task[group]]
        for resource in range(state.needs.shape[1]):
            state.needs[group, resource] = state.workload.needs[task[group], resource]
        for machine in range(state.room.shape[1]):
            state.room[group, machine] = fits(state, task[group], machine)
    if state.capacities.routed:
        find_only_links(network_of(state), state.search.room.only)


@part
def demand_of(state: Progress) -> Demand:
    """Return what the next task of each group needs."""
    return Demand(state.reached.groups.task, state.reached.groups.left, state.work, state.needs)


@part
def supply_of(state: Progress) -> Supply:
    """Return the capacities of machines for them."""
    capacities, placed = state.capacities, state.placed
    return Supply(
        capacities.cpu, placed.load, capacities.slot_cpu, state.slot_load, capacities.capacity, placed.used, state.room
    )


@part
def network_of(state: Progress) -> Network:
    """Return the network and its load."""
    return Network(state.capacities.links, state.search.back, state.traffic.load)


@stage
def find_upper_bounds(state: Progress) -> None:
    """Set the upper bound of each group's γ."""
    set_upper_bounds(demand_of(state), supply_of(state), state.search.bounds, state.upper_bounds)


@stage
def next_over_links(
    state: Progress, trees: Trees, by_bound: NDArray[np.int64], step: int, near: bool
) -> tuple[int, int]:
    """Return the next task and its machine, with its routes settled; `by_bound` has the groups in that order."""
    search, together = state.search, state.reached.together
    if together and step >= len(state.in_order):
        rate_jointly(by_bound, demand_of(state), supply_of(state), search.bounds, trees, network_of(state), search.room)
    return next_task(state, step, near, not together)


@stage
def next_over_cards(state: Progress, step: int, near: bool, falling: bool) -> tuple[int, int]:
    """Return the next task and its machine, after rating the relevant cards."""
    groups, only = state.reached.groups, -1 if step >= len(state.in_order) else state.in_order[step]
    for group in range(len(groups.task)):
        if state.capacities.carded and groups.left[group] and (only < 0 or groups.of[only] == group):
            rate_cards(state.search.bounds.rates, state.cards, state.traffic, state.capacities.card, group)
    return next_task(state, step, near, falling)


@part
def next_task(state: Progress, step: int, near: bool, falling: bool) -> tuple[int, int]:
    """Return the next task and its machine.

    Without a given order, it is the task with the lowest γ on its best machine (Algorithm 2, line 16).
    """
    groups, rates = state.reached.groups, state.search.bounds.rates
    if step < len(state.in_order):
        task = int(state.in_order[step])
        if state.workload.pin[task] >= 0:
            return task, int(state.workload.pin[task])
        group = int(groups.of[task])
    else:
        group = rank(demand_of(state), supply_of(state), rates, state.best, state.where, falling)
        task = int(groups.task[group])
    return task, choose(state, group, task, near)


@stage
def hops_ahead(state: Progress, task: int) -> int:
    """Return the maximum number of hops that a task may need."""
    return most_hops(state.workload, state.placed, task)


@stage
def place_over_links(state: Progress, hops: Hops, task: int, machine: int) -> bool:
    """Place a task on a machine and charge the links, unless there is no room; return whether there is."""
    if machine < 0 or not fits(state, task, machine):
        return False
    links, room = state.capacities.links, state.search.room
    charge_links(state.traffic, hops, state.workload, state.placed, links, room, task, machine)
    place(state, task, machine)
    return True


@stage
def place_over_cards(state: Progress, task: int, machine: int) -> bool:
    """Place a task on a machine and charge the cards, unless there is no room; return whether there is."""
    if machine < 0 or not fits(state, task, machine):
        return False
    if state.capacities.carded:
        charge_cards(state.traffic, state.workload, state.placed, state.search.room.bits, task, machine)
    place(state, task, machine)
    return True


@stage
def ends_after(state: Progress, task: int) -> int:
    """Return the number of placed tasks to which routes are searched after a task is placed."""
    return list_ends(state.search, state.reached, state.workload, state.placed, task)


@stage
def need_routes(state: Progress, trees: Trees, end: int) -> None:
    """Add routes to one of these tasks to the wishes of groups."""
    need_trees(state.search, trees, state.reached, state.workload, state.placed, int(state.search.room.listed[end]))


@stage
def renew_routes(state: Progress, trees: Trees) -> None:
    """Find the routes that are wanted."""
    find_routes(state.search, trees, state.reached, network_of(state))


@stage
def load_cards(state: Progress, task: int) -> bool:
    """Update what groups would add to cards after a task is placed; return whether any γ may have increased."""
    return find_cards(state.cards, state.reached, state.workload, state.placed, state.search.room, task)


@part
def place(state: Progress, task: int, machine: int) -> None:
    """Place a task and record which slot of its machine the next task of each group would use."""
    groups = state.reached.groups
    put(state.placed, state.workload, state.capacities, task, machine)
    advance_group(groups, state.placed, task)
    for group in range(len(groups.task)):
        if groups.left[group]:
            slot = least_loaded(state.placed, state.capacities, machine, state.workload.memory[groups.task[group]])
            state.slot_load[group, machine] = state.placed.slot_load[slot] if slot >= 0 else np.inf
            state.room[group, machine] &= slot >= 0
            if state.workload.conflicts.shape[0] > 0:
                disjoint = state.workload.conflicts[groups.component[group], state.workload.component[task]]
                state.room[group, machine] &= not disjoint


@part
def fits(state: Progress, task: int, machine: int) -> bool:
    """Return whether a machine has room and resources for a task, and no task that it conflicts with."""
    slot = least_loaded(state.placed, state.capacities, machine, state.workload.memory[task])
    if conflicting(state.workload, state.placed, task, machine):
        return False
    return slot >= 0 and able(state.workload, state.capacities, task, machine)


@part
def choose(state: Progress, group: int, task: int, near: bool) -> int:
    """Return the machine on which a task of a group has the highest γ, a connected one if there is any.

    Ties go to the first, or to the one `near` its neighbours; -1: none has room.
    """
    demand, supply, rates = demand_of(state), supply_of(state), state.search.bounds.rates
    speed, gamma = state.search.room.speed, state.search.room.gamma
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
def nearest(state: Progress, task: int, highest: float) -> int:
    """Return, of the machines with the highest γ, the one with the smallest detour of transports, then the fastest."""
    room, found = state.search.room, -1
    set_detours(state.traffic, state.workload, state.placed, state.capacities.links, state.search.back, room, task)
    detour, speed = room.detour, room.speed
    for machine in range(len(detour)):
        if room.gamma[machine] < highest * (1 - EQUAL):
            continue
        closer = found < 0 or detour[machine] < detour[found]
        if closer or (detour[machine] == detour[found] and speed[machine] > speed[found]):
            found = machine
    return found
