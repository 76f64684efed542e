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
from penstock.policies.placement.alike import Groups, Partners, find_partners, list_one_of_each, reach_anew
from penstock.policies.placement.carried import Carried
from penstock.policies.placement.joint_ways import Ways, Wishes, catch_up, loosen, needs_rating
from penstock.policies.placement.partly_placed import Asked, Placed, Room
from penstock.policies.placement.transports import Between
from penstock.policies.placement.widest_trees import Kept, renew, take


class Wanted(NamedTuple):
    """The trees in which groups search routes, in the order of routing; at most P per group."""

    key: NDArray[np.int64]  # [G, P] direction, machine and, if all transports of a machine add up, component
    tree: Ints  # [G, P]
    number: Ints  # [G]


class Sought(NamedTuple):
    """The routes that are needed."""

    wishes: Wishes
    wanted: Wanted
    before: Wanted  # what was needed while other tasks were reached
    anew: Bools  # [1] whether that is kept
    seen: Floats  # [L] load of links when the trees were last computed
    back: Links  # with every arc reversed
    room: Room


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


def nothing_wanted(groups: int, most: int) -> Wanted:
    """Allocate arrays for the trees that groups need."""
    return Wanted(
        np.empty((groups, most), dtype=np.int64),
        np.empty((groups, most), dtype=np.int32),
        np.empty(groups, dtype=np.int32),
    )


def most_wanted(asked: Asked, machines: int, together: bool) -> int:
    """Return the maximum number of trees per group: one per machine, `together` one per component and machine."""
    number = int(np.minimum(np.diff(asked.first), machines).sum())
    return number if together else min(number, 2 * machines)


@part
def list_ends(sought: Sought, reached: Reached, asked: Asked, placed: Placed, task: int) -> int:
    """List the placed tasks to which groups need routes after a task is placed, and return their number.

    It is that task, or all of them if others are reached now; then what groups needed `before` is kept separately.
    """
    room, wanted = sought.room, sought.wanted
    room.touched[:] = False
    room.listed[0] = task
    if not (reached.together and reach_anew(asked, placed, task, reached.between, room)):
        return 1
    before = sought.before
    for group in range(len(wanted.number)):
        before.number[group], wanted.number[group] = wanted.number[group], 0
        for entry in range(before.number[group]):
            before.key[group, entry] = wanted.key[group, entry]
            before.tree[group, entry] = wanted.tree[group, entry]
    sought.anew[0] = True
    return list_one_of_each(asked, placed, reached.between, room)


@part
def want(sought: Sought, kept: Kept, reached: Reached, asked: Asked, placed: Placed, task: int) -> None:
    """Add trees at a placed task's machine for the groups that reach it; there must be room for two per group."""
    wanted, machine, machines = sought.wanted, placed.machine[task], len(placed.load)
    # If transports to one machine count separately, the largest limits; together, their sum does.
    component = asked.component[task] + 1 if reached.together else 0
    partners = reached.partners
    for sends in (True, False):
        key = ((1 if sends else 0) * machines + machine) * len(asked.first) + component
        found = find_partners(partners, reached.groups, reached.between, asked, placed, task, sends)
        for position in range(found):
            group, bits = partners.group[position], partners.each[position] * partners.number[position]
            entry = find_key(wanted, group, key)
            if entry < wanted.number[group]:
                if kept.bits[wanted.tree[group, entry]] >= bits:
                    continue
                kept.users[wanted.tree[group, entry]] -= 1
            else:
                wanted.key[group, entry] = key
                wanted.number[group] += 1
            wanted.tree[group, entry] = take(kept, sends, machine, bits)
            sought.room.touched[group] = True


@part
def find_ways(sought: Sought, kept: Kept, reached: Reached, ways: Ways) -> None:
    """Find the routes that groups newly need, and those whose links were charged since."""
    wishes, wanted, room = sought.wishes, sought.wanted, sought.room
    left, touched = reached.groups.left, room.touched
    if sought.anew[0]:
        sought.anew[0] = False
        for group in range(len(left)):
            touched[group] = not same(wanted, sought.before, group)
            forget(sought.before, kept, group)
    for group in range(len(left)):
        if not left[group]:
            forget(wanted, kept, group)
            touched[group] = False
        elif touched[group]:
            for entry in range(wanted.number[group]):
                wishes.rows[group, entry] = wanted.tree[group, entry]
        wishes.counts[group] = wanted.number[group]
    if reached.together:
        catch_up(left, wishes, touched, kept, Ways(ways.links, ways.back, sought.seen), room)
    for link in range(len(ways.load)):
        room.charged[link] = ways.load[link] > sought.seen[link]
        sought.seen[link] = ways.load[link]
    renew(kept, room.charged, ways.links, ways.back, ways.load, room.heap_rates, room.heap_nodes)
    lowest_widths(wishes.alone, wishes.rows, wishes.counts, touched, kept)
    if reached.together:
        loosen(left, wishes, touched, room.charged, kept, ways, room.added)


@part
def find_key(wanted: Wanted, group: int, key: int) -> int:
    """Return the position of a group's tree with a key, the end of the list if there is none."""
    for entry in range(wanted.number[group]):
        if wanted.key[group, entry] == key:
            return entry
    return int(wanted.number[group])


@part
def same(wanted: Wanted, before: Wanted, group: int) -> bool:
    """Return whether a group needs the same trees as before, in any order."""
    if wanted.number[group] != before.number[group]:
        return False
    for entry in range(wanted.number[group]):
        found = entry
        if before.key[group, found] != wanted.key[group, entry]:
            found = find_key(before, group, wanted.key[group, entry])
        if found == before.number[group] or before.tree[group, found] != wanted.tree[group, entry]:
            return False
    return True


@part
def forget(wanted: Wanted, kept: Kept, group: int) -> None:
    """Record that a group no longer needs its trees."""
    for entry in range(wanted.number[group]):
        kept.users[wanted.tree[group, entry]] -= 1
    wanted.number[group] = 0


@stage
def find_cards(cards: Cards, reached: Reached, asked: Asked, placed: Placed, room: Room, task: int) -> bool:
    """Add the traffic between a placed task and the groups that reach it to the cards.

    Returns whether rates may have increased: they decrease unless other tasks are reached.
    """
    anew = reached.together and reach_anew(asked, placed, task, reached.between, room)
    if not cards.near.shape[1]:
        return anew
    number, room.listed[0] = 1, task
    if anew:
        cards.near[:], cards.far[:] = 0.0, 0.0
        number = list_one_of_each(asked, placed, reached.between, room)
    for one in room.listed[:number]:
        add_partners(cards, reached, asked, placed, int(one), anew)
    return anew


@stage
def rate_cards(rates: Floats, cards: Cards, carried: Carried, card: Floats, group: int) -> None:
    """Set the rate that cards allow for a group on every machine; `rates` is [G, M]."""
    rates[group] = np.inf
    for way in (1, 0):
        near, far = (carried.sent, carried.received) if way else (carried.received, carried.sent)
        here, there = cards.near[way, group], cards.far[way, group]
        lower_by_cards(rates[group], card[1 - way], card[way], here, there, near, far)


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
def add_partners(cards: Cards, reached: Reached, asked: Asked, placed: Placed, task: int, anew: bool) -> None:
    """Add groups' traffic with a placed task to the cards, or `anew` with all of its component there."""
    machine, there = placed.machine[task], placed.tasks_on[asked.component[task]]
    for way in (1, 0):
        near, far = cards.near[way], cards.far[way]
        found = find_partners(reached.partners, reached.groups, reached.between, asked, placed, task, way == 1)
        if reached.together:
            add_to_cards(near, far, reached.partners, found, machine, anew)
        else:
            raise_cards(near, far, reached.partners, found, there, machine)


@stage
def lowest_widths(rates: Floats, rows: Ints, counts: Ints, touched: Bools, kept: Kept) -> None:
    """Set the rates of groups whose trees changed or were renewed: the minimum width of each on every machine."""
    for group in range(len(rates)):
        if needs_rating(rows[group, : counts[group]], touched[group], kept.renewed):
            rates[group] = np.inf
            for row in rows[group, : counts[group]]:
                for machine in range(rates.shape[1]):
                    rates[group, machine] = min(rates[group, machine], kept.width[row, machine])


@part
def add_to_cards(near: Floats, far: Floats, partners: Partners, found: int, machine: int, anew: bool) -> None:
    """Add transports between a machine and every other for the groups that have them; `near`, `far` are [G, M].

    `anew`: of all placed tasks there, not of one more.
    """
    for position in range(found):
        group, bits = partners.group[position], partners.each[position] * (partners.number[position] if anew else 1.0)
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
