"""What ways that share links allow together: a task's transports routed one after another, as they will be.

Each transport rated alone gives a bound that is cheap to keep (eq. (2)). Where the widest paths of a task's transports
share a link that cannot carry them all at that rate, they are routed one after another to know better, but only for
the machines that might be the best. What was found so is taken for a bound later, when links carry more, and still
holds where no link of the ways found was charged since.
"""

from typing import NamedTuple

import numpy as np

from penstock.model.kernel import kernel
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.placement.gammas import Demand, Supply, processing_rate
from penstock.policies.placement.imposed_rate import EQUAL
from penstock.policies.placement.widest_trees import Kept, grow_tree


class Ways(NamedTuple):
    """The network; L links."""

    links: Links
    back: Links  # every arc turned round
    load: Floats  # [L] bits a source tuple


class Wishes(NamedTuple):
    """The trees that groups want; G groups, M machines."""

    rows: Ints  # [G, P] numbers of trees
    counts: Ints  # [G] how many of them count
    rates: Floats  # [G, M] what the network allows, or a bound where it is not settled
    settled: Bools  # [G, M]
    shared: Floats  # [G, M] what the widest paths allow, each found alone, all charged at once
    best: Ints  # [G] machine that was best when its ways were found, -1: none
    used: Bools  # [G, L] the links of those ways


class Room(NamedTuple):
    """Room for one tree; V nodes, A arcs."""

    width: Floats  # [V]
    tail: Ints  # [V]
    via: Ints  # [V]
    heap_rates: Floats  # [A + 1]
    heap_nodes: Ints  # [A + 1]


@kernel
def needs_rating(rows: Ints, touched: bool, renewed: Bools) -> bool:
    """Return whether a group's trees are others than before or one of them was renewed."""
    for row in rows:
        touched = touched or renewed[row]
    return touched


@kernel
def find_shared(
    apart: Bools, alone: Floats, wishes: Wishes, touched: Bools, renewed: Bools, kept: Kept, ways: Ways
) -> None:
    """Set where a group's ways, each rated `alone`, are `apart`: they share no link that lowers the rate. [G, M]"""
    added = np.zeros(len(ways.load))
    for group in range(len(alone)):
        rows = wishes.rows[group, : wishes.counts[group]]
        if not needs_rating(rows, touched[group], renewed):
            continue
        for machine in range(alone.shape[1]):
            shared = alone[group, machine]
            for row in rows:
                charge_way(added, kept.bits[row], kept.tail[row], kept.via[row], machine)
            for row in rows:
                shared = min(shared, clear_way(added, kept.tail[row], kept.via[row], machine, ways))
            apart[group, machine] = shared == alone[group, machine]
            wishes.shared[group, machine] = shared


@kernel
def loosen(apart: Bools, alone: Floats, wishes: Wishes, touched: Bools, charged: Bools) -> None:
    """Turn what was settled into bounds, now that links are `charged` [L] and groups `touched` [G] want other ways."""
    for group in range(len(alone)):
        best = -1 if touched[group] else wishes.best[group]
        if best >= 0 and (wishes.used[group] & charged).any():
            best = -1
        for machine in range(alone.shape[1]):
            if touched[group] or apart[group, machine]:
                wishes.rates[group, machine] = alone[group, machine]
            else:
                wishes.rates[group, machine] = min(wishes.rates[group, machine], alone[group, machine])
            wishes.settled[group, machine] = apart[group, machine] or machine == best
        wishes.best[group] = best


@kernel
def charge_way(added: Floats, bits: float, tail: Ints, via: Ints, node: int) -> None:
    """Add bits to the links between a node and the root of a tree."""
    for _ in range(len(tail)):
        if via[node] < 0:
            break
        added[via[node]] += bits
        node = tail[node]


@kernel
def clear_way(added: Floats, tail: Ints, via: Ints, node: int, ways: Ways) -> float:
    """Return the lowest rate on the links between a node and a tree's root, with what was added, and take it off."""
    rate = np.inf
    for _ in range(len(tail)):
        link = via[node]
        if link < 0:
            break
        if added[link] > 0.0:
            rate = min(rate, ways.links.bandwidth[link] / (ways.load[link] + added[link]))
            added[link] = 0.0
        node = tail[node]
    return rate


@kernel
def settle(demand: Demand, supply: Supply, wishes: Wishes, kept: Kept, ways: Ways) -> None:
    """Replace bounds by what ways allow together, until no bounds stand for the best machines of the lowest groups."""
    nodes, arcs = ways.links.nodes, len(ways.links.head)
    room = Room(
        np.empty(nodes),
        np.empty(nodes, dtype=np.int32),
        np.empty(nodes, dtype=np.int32),
        np.empty(arcs + 1),
        np.empty(arcs + 1, dtype=np.int32),
    )
    loaded = np.empty(len(ways.load))
    least, highest = promises(demand, supply, wishes)
    lowest = np.inf  # γ of the groups that are settled
    for group in np.argsort(highest):
        if not demand.left[group] or least[group] > lowest:
            continue  # another group's γ is lower in any case
        rows = wishes.rows[group, : wishes.counts[group]]
        for _ in range(wishes.rates.shape[1] + 1):
            machine, floor = most_promising(demand, supply, wishes, group)
            if machine < 0:
                lowest = min(lowest, floor)
                break
            together = one_by_one(rows, kept, machine, ways, floor, loaded, room)
            wishes.rates[group, machine] = together
            wishes.settled[group, machine] = True  # or so low that it does not matter how low
            if min(together, processing_rate(demand, supply, group, machine)) > floor:
                wishes.best[group] = machine
                wishes.used[group] = loaded > ways.load


@kernel
def promises(demand: Demand, supply: Supply, wishes: Wishes) -> tuple[Floats, Floats]:
    """Return what a group's γ on its best machine is at least, and at most: [G] each."""
    groups = len(wishes.rates)
    least, highest = np.full(groups, -1.0), np.full(groups, -1.0)
    for group in range(groups):
        if not demand.left[group]:
            continue
        for machine in range(len(supply.cpu)):
            if supply.room[group, machine]:
                rate = processing_rate(demand, supply, group, machine)
                least[group] = max(least[group], min(rate, wishes.shared[group, machine]))
                highest[group] = max(highest[group], min(rate, wishes.rates[group, machine]))
    return least, highest


@kernel
def most_promising(demand: Demand, supply: Supply, wishes: Wishes, group: int) -> tuple[int, float]:
    """Return the machine with the highest bound, if that is as high as any γ, else -1; and the highest settled γ."""
    best, bound, where = -1.0, -1.0, -1
    for machine in range(len(supply.cpu)):
        if supply.room[group, machine]:
            rate = min(wishes.rates[group, machine], processing_rate(demand, supply, group, machine))
            if wishes.settled[group, machine]:
                best = max(best, rate)
            elif rate > bound:
                bound, where = rate, machine
    return where if bound >= best * (1 - EQUAL) else -1, best


@kernel
def one_by_one(rows: Ints, kept: Kept, machine: int, ways: Ways, floor: float, loaded: Floats, room: Room) -> float:
    """Return the rate that the network allows with the transports of a task on a machine routed in turn.

    Below `floor` a bound will do.
    """
    loaded[:] = ways.load
    rate = np.inf
    for row in rows:
        arcs = ways.back if kept.towards[row] else ways.links
        bits, root = kept.bits[row], kept.root[row]
        grow_tree(arcs, loaded, bits, root, machine, room.width, room.tail, room.via, room.heap_rates, room.heap_nodes)
        charge_way(loaded, bits, room.tail, room.via, machine)
        rate = min(rate, float(room.width[machine]))
        if rate < floor * (1 - EQUAL):
            return rate
    for link in range(len(loaded)):
        if loaded[link] > ways.load[link]:
            rate = min(rate, ways.links.bandwidth[link] / loaded[link])
    return rate
