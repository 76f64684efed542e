"""What the network allows for every group of alike tasks on every machine, as tasks are placed: eq. (2)'s second half.

`alone` each transport is rated by itself, as eq. (2) has it. `together` the transports between a task and the placed
tasks around it are loaded at once, so that two that share a link add up.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.placement.alike import Groups, Partners, find_partners, one_of_each, reach_anew
from penstock.policies.placement.carried import Carried
from penstock.policies.placement.joint_ways import Room, Ways, Wishes, catch_up, loosen, needs_rating
from penstock.policies.placement.network_rates import rates_by_cards
from penstock.policies.placement.partly_placed import Asked, Placed
from penstock.policies.placement.transports import Between
from penstock.policies.placement.widest_trees import Kept, renew, take, with_room


class Wanted(NamedTuple):
    """The trees that groups look for ways in, in the order in which they will be routed; at most P a group."""

    key: NDArray[np.int64]  # [G, P] direction, machine and, where all transports of a machine add up, component
    tree: Ints  # [G, P]
    number: Ints  # [G]
    seen: Floats  # [L] load of links when the trees were last made anew


class Sought(NamedTuple):
    """The ways that are looked for."""

    wishes: Wishes
    wanted: Wanted
    ways: Ways
    room: Room


class Cards(NamedTuple):
    """What groups would add to cards, by direction: received, sent."""

    near: Floats  # [2, G, M] with a task on each machine, to the card there
    far: Floats  # [2, G, M] to each of the others


class Reached(NamedTuple):
    """Who reaches whom."""

    groups: Groups
    between: Between
    partners: Partners  # room for them
    together: bool


@kernel
def nothing_wanted(groups: int, most: int, links: int) -> Wanted:
    """Return that no group wants a tree."""
    return Wanted(
        np.empty((groups, most), dtype=np.int64),
        np.empty((groups, most), dtype=np.int32),
        np.zeros(groups, dtype=np.int32),
        np.zeros(links),
    )


@kernel
def most_wanted(asked: Asked, machines: int, together: bool) -> int:
    """Return how many trees a group may want at most: one for every machine, `together` for every component there."""
    number = 0
    for component in range(len(asked.first) - 1):
        number += min(asked.first[component + 1] - asked.first[component], machines)
    return int(number if together else min(number, 2 * machines))


@kernel
def find_ways(sought: Sought, kept: Kept, reached: Reached, asked: Asked, placed: Placed, task: int) -> Kept:
    """Find the ways to a task that has been placed, and again those whose links were charged with it.

    Returns the trees, in larger arrays where there were too many.
    """
    wishes, wanted, ways = sought.wishes, sought.wanted, sought.ways
    left = reached.groups.left
    touched = np.zeros(len(left), dtype=np.bool_)
    kept = want_all(wanted, kept, reached, asked, placed, task, touched)
    for group in range(len(left)):
        if not left[group]:
            forget(wanted, kept, group)
            touched[group] = False
        elif touched[group]:
            wishes.rows[group, : wanted.number[group]] = wanted.tree[group, : wanted.number[group]]
        wishes.counts[group] = wanted.number[group]
    if reached.together:
        catch_up(left, wishes, touched, kept, Ways(ways.links, ways.back, wanted.seen), sought.room)
    charged = ways.load > wanted.seen
    wanted.seen[:] = ways.load
    renewed = renew(kept, charged, ways.links, ways.back, ways.load)
    lowest_widths(wishes.alone, wishes.rows, wishes.counts, touched, renewed, kept.width)
    if reached.together:
        loosen(left, wishes, touched, renewed, charged, kept, ways, sought.room.added)
    return kept


@kernel
def want_all(
    wanted: Wanted, kept: Kept, reached: Reached, asked: Asked, placed: Placed, task: int, touched: Bools
) -> Kept:
    """Let groups want the trees that they need now that a task is placed, and set which are `touched` by that. [G]"""
    if not (reached.together and reach_anew(asked, placed, task, reached.between)):
        return want(wanted, kept, reached, asked, placed, task, touched)
    most = 0
    for number in wanted.number:
        most = max(most, number)
    before = Wanted(wanted.key[:, :most].copy(), wanted.tree[:, :most].copy(), wanted.number.copy(), wanted.seen)
    wanted.number[:] = 0
    for one in one_of_each(asked, placed, reached.between):
        kept = want(wanted, kept, reached, asked, placed, int(one), touched)
    for group in range(len(touched)):
        touched[group] = not same(wanted, before, group)
        forget(before, kept, group)
    return kept


@kernel
def want(wanted: Wanted, kept: Kept, reached: Reached, asked: Asked, placed: Placed, task: int, touched: Bools) -> Kept:
    """Let the groups that reach a placed task want trees at its machine."""
    machine, machines = placed.machine[task], len(placed.load)
    # Of transports to one machine the largest alone limits; together all of them do.
    component = asked.component[task] + 1 if reached.together else 0
    partners = reached.partners
    for sends in (True, False):
        key = ((1 if sends else 0) * machines + machine) * len(asked.first) + component
        found = find_partners(partners, reached.groups, reached.between, asked, placed, task, sends)
        kept = with_room(kept, found)
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
            touched[group] = True
    return kept


@kernel
def find_key(wanted: Wanted, group: int, key: int) -> int:
    """Return where a group's tree of a key is listed, the end of the list where it is not."""
    for entry in range(wanted.number[group]):
        if wanted.key[group, entry] == key:
            return entry
    return int(wanted.number[group])


@kernel
def same(wanted: Wanted, before: Wanted, group: int) -> bool:
    """Return whether a group wants what it wanted before, in whatever order."""
    if wanted.number[group] != before.number[group]:
        return False
    for entry in range(wanted.number[group]):
        found = entry
        if before.key[group, found] != wanted.key[group, entry]:
            found = find_key(before, group, wanted.key[group, entry])
        if found == before.number[group] or before.tree[group, found] != wanted.tree[group, entry]:
            return False
    return True


@kernel
def forget(wanted: Wanted, kept: Kept, group: int) -> None:
    """Note that a group does not want its trees any more."""
    for tree in wanted.tree[group, : wanted.number[group]]:
        kept.users[tree] -= 1
    wanted.number[group] = 0


@kernel
def find_cards(
    rates: Floats,
    cards: Cards,
    reached: Reached,
    asked: Asked,
    placed: Placed,
    carried: Carried,
    card: Floats,
    task: int,
) -> bool:
    """Add what a placed task exchanges with the groups that reach it to cards, and rate them all again.

    Returns whether rates may have risen: they fall unless other tasks are reached.
    """
    anew = reached.together and reach_anew(asked, placed, task, reached.between)
    if not len(cards.near[0]):
        return anew
    if anew:
        cards.near[:], cards.far[:] = 0.0, 0.0
        for one in one_of_each(asked, placed, reached.between):
            add_partners(cards, reached, asked, placed, int(one), True)
    else:
        add_partners(cards, reached, asked, placed, task, False)
    left = reached.groups.left
    rate_cards(rates, left, card, cards.near[1], cards.far[1], carried.sent, carried.received, True)
    rate_cards(rates, left, card, cards.near[0], cards.far[0], carried.received, carried.sent, False)
    return anew


@kernel
def add_partners(cards: Cards, reached: Reached, asked: Asked, placed: Placed, task: int, anew: bool) -> None:
    """Add what groups exchange with a placed task, or `anew` with all of its component there, to the cards."""
    machine, there = placed.machine[task], placed.tasks_on[asked.component[task]]
    for way in (1, 0):
        near, far = cards.near[way], cards.far[way]
        found = find_partners(reached.partners, reached.groups, reached.between, asked, placed, task, way == 1)
        if reached.together:
            add_to_cards(near, far, reached.partners, found, machine, anew)
        else:
            raise_cards(near, far, reached.partners, found, there, machine)


@kernel
def lowest_widths(rates: Floats, rows: Ints, counts: Ints, touched: Bools, renewed: Bools, width: Floats) -> None:
    """Set the rates of the groups whose trees are others or were renewed: the lowest width of each on every machine."""
    for group in range(len(rates)):
        if needs_rating(rows[group, : counts[group]], touched[group], renewed):
            rates[group] = np.inf
            for row in rows[group, : counts[group]]:
                for machine in range(rates.shape[1]):
                    rates[group, machine] = min(rates[group, machine], width[row, machine])


@kernel
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


@kernel
def raise_cards(near: Floats, far: Floats, partners: Partners, found: int, there: Floats, machine: int) -> None:
    """Raise what groups exchange with the one component that exchanges most, `there` [M] being its placed tasks."""
    total = there.sum()
    for position in range(found):
        group, each = partners.group[position], partners.each[position]
        far[group, machine] = max(far[group, machine], each * partners.number[position])
        for other in range(near.shape[1]):
            elsewhere = total - there[other]
            if partners.paired[position]:
                elsewhere = 0.0 if other == machine else 1.0
            near[group, other] = max(near[group, other], each * elsewhere)


@kernel
def rate_cards(
    rates: Floats,
    left: Bools,
    card: Floats,
    near: Floats,
    far: Floats,
    near_load: Floats,
    far_load: Floats,
    anew: bool,
) -> None:
    """Set the rates of all groups by the cards of one direction, or lower them where they are not set `anew`."""
    for group in range(len(rates)):
        if left[group]:
            by_cards = rates_by_cards(card, near[group], far[group], near_load, far_load)
            for machine in range(len(card)):
                rates[group, machine] = min(by_cards[machine], np.inf if anew else rates[group, machine])
