"""SPARCLE's assignment in one kernel: tasks ranked by γ of eq. (2), placed and charged one after another (Algorithm 2).

While tasks are placed loads grow and γ falls: a group's best machine stays its best for as long as γ there has not
changed, and only then are the others looked through again.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.placement.alike import Groups, group_alike, no_partners, pass_on
from penstock.policies.placement.carried import (
    Carried,
    Hops,
    charge_cards,
    charge_links,
    detours,
    no_hops,
    nothing_carried,
)
from penstock.policies.placement.gammas import EQUAL, Demand, Supply, processing_rate, rank
from penstock.policies.placement.joint_ways import Ways, no_wishes, room_for, settle
from penstock.policies.placement.network_bounds import (
    Cards,
    Reached,
    Sought,
    find_cards,
    find_ways,
    most_wanted,
    nothing_wanted,
)
from penstock.policies.placement.network_rates import reverse
from penstock.policies.placement.partly_placed import Asked, Offered, Placed, able, least_loaded, nothing_placed, put
from penstock.policies.placement.transports import find_between
from penstock.policies.placement.widest_trees import Kept, no_trees


class Assigned(NamedTuple):
    """Who is where, what is left, and the routes."""

    slot: Ints  # [T] -1: not placed
    slot_free: Floats  # [S] MB
    free: Floats  # [M] MB
    hops: Hops
    stuck: int  # the task that fits nowhere, -1: all are placed


class State(NamedTuple):
    """An assignment in the making."""

    asked: Asked
    offered: Offered
    placed: Placed
    carried: Carried
    reached: Reached
    demand: Demand
    supply: Supply
    sought: Sought
    cards: Cards
    best: Floats  # [G] γ of each group on its best machine, as of the last rank
    where: Ints  # [G] that machine


@kernel
def assign(asked: Asked, offered: Offered, near: bool, together: bool) -> Assigned:
    """Place all tasks, the pinned ones first; `near` says how to choose among equally good machines."""
    state = start(asked, offered, near, together)
    placed, streams = state.placed, len(asked.streams.listed)
    hops = no_hops(streams, 4 * streams, streams)
    kept = no_trees(16 if offered.routed else 0, offered.links.nodes, len(offered.cpu))
    pinned = np.flatnonzero(asked.pin >= 0)
    risen = False  # whether any γ may have, since the last rank
    for step in range(len(asked.component)):
        if step < len(pinned):
            task = int(pinned[step])
            machine = int(asked.pin[task])
        else:
            task, machine = next_task(state, kept, near, not risen)
            risen = False
        if machine < 0 or not fits(state, task, machine):
            return Assigned(placed.slot, placed.slot_free, placed.free, hops, task)
        if offered.routed:
            hops = charge_links(state.carried, hops, asked, placed, offered.links, task, machine)
        elif offered.carded:
            charge_cards(state.carried, asked, placed, task, machine)
        put(placed, asked, offered, task, machine)
        pass_on(state.reached.groups, task)
        look_for_room(state, machine)
        if offered.routed:
            kept = find_ways(state.sought, kept, state.reached, asked, placed, task)
            risen = together
        else:
            rates, card = state.sought.wishes.rates, offered.card
            risen |= find_cards(rates, state.cards, state.reached, asked, placed, state.carried, card, task)
    return Assigned(placed.slot, placed.slot_free, placed.free, hops, -1)


@kernel
def next_task(state: State, kept: Kept, near: bool, falling: bool) -> tuple[int, int]:
    """Return the task to place next, of the lowest γ on its best machine (Algorithm 2, line 16), and that machine."""
    sought = state.sought
    if state.offered.routed and state.reached.together:
        settle(state.demand, state.supply, sought.wishes, kept, sought.ways, sought.room)
    group = rank(state.demand, state.supply, sought.wishes.rates, state.best, state.where, falling)
    return int(state.demand.task[group]), choose(state, group, near)


@kernel
def start(asked: Asked, offered: Offered, near: bool, together: bool) -> State:
    """Return the state with nothing placed."""
    placed, carried = nothing_placed(asked, offered), nothing_carried(offered, near)
    components, machines = len(asked.first) - 1, len(offered.cpu)
    between = find_between(asked.streams, asked.first, asked.gain, np.zeros(components, dtype=np.bool_))
    groups = group_alike(asked, between)
    number, links = len(groups.task), len(carried.load)
    most = most_wanted(asked, machines, together) if offered.routed else 0
    carded = (2, number, machines) if offered.carded else (2, 0, 0)
    ways = Ways(offered.links, reverse(offered.links), carried.load)
    return State(
        asked,
        offered,
        placed,
        carried,
        Reached(groups, between, no_partners(number), together),
        Demand(groups.task, groups.left, asked.work[groups.task], asked.needs[groups.task]),
        supply_of(groups, asked, offered, placed),
        Sought(
            no_wishes(number, machines, most, links, together and offered.routed),
            nothing_wanted(number, most, links),
            ways,
            room_for(ways, machines),
        ),
        Cards(np.zeros(carded), np.zeros(carded)),
        np.zeros(number),
        np.full(number, -1, dtype=np.int32),
    )


@kernel
def supply_of(groups: Groups, asked: Asked, offered: Offered, placed: Placed) -> Supply:
    """Return what machines have for groups with nothing placed."""
    shape = len(groups.task), len(offered.cpu)
    room = np.empty(shape, dtype=np.bool_)
    for group in range(shape[0]):
        task = groups.task[group]
        for machine in range(shape[1]):
            slot = least_loaded(placed, offered, machine, asked.memory[task])
            room[group, machine] = slot >= 0 and able(asked, offered, task, machine)
    return Supply(offered.cpu, placed.load, offered.slot_cpu, np.zeros(shape), offered.capacity, placed.used, room)


@kernel
def fits(state: State, task: int, machine: int) -> bool:
    """Return whether a machine has room for a task and the resources that it needs."""
    slot = least_loaded(state.placed, state.offered, machine, state.asked.memory[task])
    return slot >= 0 and able(state.asked, state.offered, task, machine)


@kernel
def look_for_room(state: State, machine: int) -> None:
    """Note which slot of a machine the next task of each group would get."""
    supply, groups = state.supply, state.reached.groups
    for group in range(len(groups.task)):
        if groups.left[group]:
            slot = least_loaded(state.placed, state.offered, machine, state.asked.memory[groups.task[group]])
            supply.slot_load[group, machine] = state.placed.slot_load[slot] if slot >= 0 else np.inf
            supply.room[group, machine] &= slot >= 0


@kernel
def choose(state: State, group: int, near: bool) -> int:
    """Return the machine on which a group's next task has the highest γ, one that ways lead to if there is any.

    Of equally good ones the first, or the one `near` its neighbours; -1: none has room.
    """
    demand, supply, rates = state.demand, state.supply, state.sought.wishes.rates
    machines = len(supply.cpu)
    speed, gamma = np.full(machines, -1.0), np.full(machines, -1.0)
    usable = False
    for machine in range(machines):
        if supply.room[group, machine]:
            speed[machine] = processing_rate(demand, supply, group, machine)
            usable |= rates[group, machine] > 0.0
    for machine in range(machines):
        if supply.room[group, machine] and (rates[group, machine] > 0.0 or not usable):
            gamma[machine] = min(speed[machine], rates[group, machine])
    best = int(np.argmax(gamma))
    if gamma[best] < 0.0:
        return -1
    equal = gamma >= gamma[best] * (1 - EQUAL)
    return nearest(state, int(demand.task[group]), equal, speed) if near and equal.sum() > 1 else best


@kernel
def nearest(state: State, task: int, equal: Bools, speed: Floats) -> int:
    """Return the one of equally good machines with the least detour for a task's transports, then the fastest."""
    ways, found = state.sought.ways, -1
    detour = detours(state.carried, state.asked, state.placed, ways.links, ways.back, task)
    for machine in np.flatnonzero(equal):
        closer = found < 0 or detour[machine] < detour[found]
        if closer or (detour[machine] == detour[found] and speed[machine] > speed[found]):
            found = int(machine)
    return found
