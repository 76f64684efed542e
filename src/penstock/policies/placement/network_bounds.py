"""Rate that the network allows for every group of equivalent tasks on every machine: eq. (2)'s second half.

`alone`: each transport is rated by itself, as in eq. (2). `together`: the transports between a task and the placed
tasks around it are loaded at once, so that two that share a link add up.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import part, stage
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.placement.equivalent_tasks import Groups, Partners, find_partners, list_one_of_each, update_reach
from penstock.policies.placement.joint_routes import Bounds, Network, loosen_bounds, needs_rating, rate_deferred
from penstock.policies.placement.partial_placement import Placed, Scratch, Workload
from penstock.policies.placement.routed_traffic import Traffic
from penstock.policies.placement.transports import Between
from penstock.policies.placement.widest_trees import Trees, renew_trees, use_tree


class GroupTrees(NamedTuple):
    """The trees in which groups search routes, in the order of routing; at most P per group."""

    key: NDArray[np.int64]  # [G, P] direction, machine and, if all transports of a machine add up, component
    tree: Ints  # [G, P]
    number: Ints  # [G]


class RouteSearch(NamedTuple):
    """The routes that are needed."""

    bounds: Bounds
    group_trees: GroupTrees
    before: GroupTrees  # what was needed while other tasks were reached
    changed: Bools  # [1] whether that is kept
    seen: Floats  # [L] load of links when the trees were last computed
    back: Links  # with every arc reversed
    room: Scratch


class Cards(NamedTuple):
    """What groups would add to cards, by direction: received, sent."""

    near: Floats  # [2, G, M] with a task on each machine, to the card there
    far: Floats  # [2, G, M] to each of the others


class Reached(NamedTuple):
    """Which groups and placed tasks reach each other."""

    groups: Groups
    between: Between
    partners: Partners  # scratch space
    together: bool


def no_group_trees(groups: int, most: int) -> GroupTrees:
    """Allocate arrays for the trees that groups need."""
    return GroupTrees(
        np.empty((groups, most), dtype=np.int64),
        np.empty((groups, most), dtype=np.int32),
        np.empty(groups, dtype=np.int32),
    )


def most_trees(workload: Workload, machines: int, together: bool) -> int:
    """Return the maximum number of trees per group: one per machine, `together` one per component and machine."""
    number = int(np.minimum(np.diff(workload.first), machines).sum())
    return number if together else min(number, 2 * machines)


@part
def list_ends(search: RouteSearch, reached: Reached, workload: Workload, placed: Placed, task: int) -> int:
    """List the placed tasks to which groups need routes after a task is placed, and return their number.

    It is that task, or all of them if others are reached now; then what groups needed `before` is kept separately.
    """
    room, group_trees = search.room, search.group_trees
    room.touched[:] = False
    room.listed[0] = task
    if not (reached.together and update_reach(workload, placed, task, reached.between, room)):
        return 1
    before = search.before
    for group in range(len(group_trees.number)):
        before.number[group], group_trees.number[group] = group_trees.number[group], 0
        for entry in range(before.number[group]):
            before.key[group, entry] = group_trees.key[group, entry]
            before.tree[group, entry] = group_trees.tree[group, entry]
    search.changed[0] = True
    return list_one_of_each(workload, placed, reached.between, room)


@part
def need_trees(
    search: RouteSearch, trees: Trees, reached: Reached, workload: Workload, placed: Placed, task: int
) -> None:
    """Add trees at a placed task's machine for the groups that reach it; there must be room for two per group."""
    group_trees, machine, machines = search.group_trees, placed.machine[task], len(placed.load)
    # If transports to one machine count separately, the largest limits; together, their sum does.
    component = workload.component[task] + 1 if reached.together else 0
    partners = reached.partners
    for sends in (True, False):
        key = ((1 if sends else 0) * machines + machine) * len(workload.first) + component
        found = find_partners(partners, reached.groups, reached.between, workload, placed, task, sends)
        for position in range(found):
            group, bits = partners.group[position], partners.each[position] * partners.number[position]
            entry = find_key(group_trees, group, key)
            if entry < group_trees.number[group]:
                if trees.bits[group_trees.tree[group, entry]] >= bits:
                    continue
                trees.users[group_trees.tree[group, entry]] -= 1
            else:
                group_trees.key[group, entry] = key
                group_trees.number[group] += 1
            group_trees.tree[group, entry] = use_tree(trees, sends, machine, bits)
            search.room.touched[group] = True


@part
def find_routes(search: RouteSearch, trees: Trees, reached: Reached, network: Network) -> None:
    """Find the routes that groups newly need, and those whose links were charged since."""
    bounds, group_trees, room = search.bounds, search.group_trees, search.room
    left, touched = reached.groups.left, room.touched
    if search.changed[0]:
        search.changed[0] = False
        for group in range(len(left)):
            touched[group] = not same(group_trees, search.before, group)
            forget(search.before, trees, group)
    for group in range(len(left)):
        if not left[group]:
            forget(group_trees, trees, group)
            touched[group] = False
        elif touched[group]:
            for entry in range(group_trees.number[group]):
                bounds.rows[group, entry] = group_trees.tree[group, entry]
        bounds.counts[group] = group_trees.number[group]
    if reached.together:
        rate_deferred(left, bounds, touched, trees, Network(network.links, network.back, search.seen), room)
    for link in range(len(network.load)):
        room.charged[link] = network.load[link] > search.seen[link]
        search.seen[link] = network.load[link]
    renew_trees(trees, room.charged, network.links, network.back, network.load, room.heap_rates, room.heap_nodes)
    lowest_widths(bounds.alone, bounds.rows, bounds.counts, touched, trees)
    if reached.together:
        loosen_bounds(left, bounds, touched, room.charged, trees, network, room.added)


@part
def find_key(group_trees: GroupTrees, group: int, key: int) -> int:
    """Return the position of a group's tree with a key, the end of the list if there is none."""
    for entry in range(group_trees.number[group]):
        if group_trees.key[group, entry] == key:
            return entry
    return int(group_trees.number[group])


@part
def same(group_trees: GroupTrees, before: GroupTrees, group: int) -> bool:
    """Return whether a group needs the same trees as before, in any order."""
    if group_trees.number[group] != before.number[group]:
        return False
    for entry in range(group_trees.number[group]):
        found = entry
        if before.key[group, found] != group_trees.key[group, entry]:
            found = find_key(before, group, group_trees.key[group, entry])
        if found == before.number[group] or before.tree[group, found] != group_trees.tree[group, entry]:
            return False
    return True


@part
def forget(group_trees: GroupTrees, trees: Trees, group: int) -> None:
    """Record that a group no longer needs its trees."""
    for entry in range(group_trees.number[group]):
        trees.users[group_trees.tree[group, entry]] -= 1
    group_trees.number[group] = 0


@stage
def find_cards(cards: Cards, reached: Reached, workload: Workload, placed: Placed, room: Scratch, task: int) -> bool:
    """Add the traffic between a placed task and the groups that reach it to the cards.

    Returns whether rates may have increased: they decrease unless other tasks are reached.
    """
    changed = reached.together and update_reach(workload, placed, task, reached.between, room)
    if not cards.near.shape[1]:
        return changed
    number, room.listed[0] = 1, task
    if changed:
        cards.near[:], cards.far[:] = 0.0, 0.0
        number = list_one_of_each(workload, placed, reached.between, room)
    for one in room.listed[:number]:
        add_partners(cards, reached, workload, placed, int(one), changed)
    return changed


@stage
def rate_cards(rates: Floats, cards: Cards, traffic: Traffic, card: Floats, group: int) -> None:
    """Set the rate that cards allow for a group on every machine; `rates` is [G, M]."""
    rates[group] = np.inf
    for direction in (1, 0):
        near, far = (traffic.sent, traffic.received) if direction else (traffic.received, traffic.sent)
        here, there = cards.near[direction, group], cards.far[direction, group]
        lower_by_cards(rates[group], card[1 - direction], card[direction], here, there, near, far)


@part
def lower_by_cards(
    rates: Floats, near_card: Floats, far_card: Floats, near: Floats, far: Floats, near_load: Floats, far_load: Floats
) -> None:
    """Lower rates to what cards allow with a task on each machine that adds `near` there and `far` to all others."""
    machines = len(rates)
    lowest, second, where = np.inf, np.inf, -1  # over the other machines' cards
    for machine in range(machines):
        if far[machine] > 0.0:
            rate = far_card[machine] / (far_load[machine] + far[machine])
            if rate < lowest:
                lowest, second, where = rate, lowest, machine
            else:
                second = min(second, rate)
    for machine in range(machines):
        own = near_card[machine] / (near_load[machine] + near[machine]) if near[machine] > 0.0 else np.inf
        rates[machine] = min(rates[machine], own, second if machine == where else lowest)


@stage
def add_partners(cards: Cards, reached: Reached, workload: Workload, placed: Placed, task: int, changed: bool) -> None:
    """Add groups' traffic with a placed task to the cards; if reachability `changed`, with all its component there."""
    machine, there = placed.machine[task], placed.tasks_on[workload.component[task]]
    for direction in (1, 0):
        near, far = cards.near[direction], cards.far[direction]
        found = find_partners(reached.partners, reached.groups, reached.between, workload, placed, task, direction == 1)
        if reached.together:
            add_to_cards(near, far, reached.partners, found, machine, changed)
        else:
            raise_cards(near, far, reached.partners, found, there, machine)


@stage
def lowest_widths(rates: Floats, rows: Ints, counts: Ints, touched: Bools, trees: Trees) -> None:
    """Set the rates of groups whose trees changed or were renewed: the minimum width of each on every machine."""
    for group in range(len(rates)):
        if needs_rating(rows[group, : counts[group]], touched[group], trees.renewed):
            rates[group] = np.inf
            for row in rows[group, : counts[group]]:
                for machine in range(rates.shape[1]):
                    rates[group, machine] = min(rates[group, machine], trees.width[row, machine])


@part
def add_to_cards(near: Floats, far: Floats, partners: Partners, found: int, machine: int, changed: bool) -> None:
    """Add transports between a machine and every other for the groups that have them; `near`, `far` are [G, M].

    `changed`: of all placed tasks there, because reachability changed, not of one more.
    """
    for position in range(found):
        group, bits = (
            partners.group[position],
            partners.each[position] * (partners.number[position] if changed else 1.0),
        )
        far[group, machine] += bits
        for other in range(near.shape[1]):
            if other != machine:
                near[group, other] += bits


@part
def raise_cards(near: Floats, far: Floats, partners: Partners, found: int, there: Floats, machine: int) -> None:
    """Raise what groups exchange with the one component that exchanges most, `there` [M] being its placed tasks."""
    total = 0.0
    for other in range(len(there)):
        total += there[other]
    for position in range(found):
        group, each = partners.group[position], partners.each[position]
        far[group, machine] = max(far[group, machine], each * partners.number[position])
        for other in range(near.shape[1]):
            elsewhere = total - there[other]
            if partners.paired[position]:
                elsewhere = 0.0 if other == machine else 1.0
            near[group, other] = max(near[group, other], each * elsewhere)
