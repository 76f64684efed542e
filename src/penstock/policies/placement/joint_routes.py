"""Rate allowed by routes that share links: a task's transports routed one after another, as they finally will be.

Rating each transport separately gives a bound that is cheap to maintain (eq. (2)). If the widest paths of a task's
transports share a link that cannot carry them all at that rate, they are routed one after another for the exact rate,
but only for machines that might be the best. Such a result later becomes a bound, when links carry more; it stays exact
if no link of these routes was charged since.

If the only link of a machine cannot carry all of a task's transports at the best rate so far, the machine is not
examined further, unless the task stays unplaced and its routes unchanged: then a bound is needed, and the routes are
found.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import part, stage
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Bools, Floats, Ints
from penstock.policies.placement.gammas import EQUAL, Demand, Supply, gamma, processing_rate
from penstock.policies.placement.partial_placement import Scratch
from penstock.policies.placement.widest_trees import Trees, grow_tree


class Network(NamedTuple):
    """The network; L links."""

    links: Links
    back: Links  # with every arc reversed
    load: Floats  # [L] bits per source tuple


class Bounds(NamedTuple):
    """The trees that groups need; G groups, M machines, at most P trees per group."""

    rows: Ints  # [G, P] numbers of trees
    counts: Ints  # [G] number of them that count
    alone: Floats  # [G, M] rate of each transport's widest path by itself; together they may allow less
    rates: Floats  # [G, M] rate that the network allows, or a bound if it is not settled
    settled: Bools  # [G, M]
    checked: Bools  # [G, M] whether the next two are known
    disjoint: Bools  # [G, M] the widest paths share no link that lowers the rate: settled, too
    shared: Floats  # [G, M] rate of these paths, all charged at once
    best: Ints  # [G] machine that was best when its routes were found, -1: none
    used: Bools  # [G, L] the links of those routes
    deferred: Floats  # [G, M] rate below which routes were not worth finding, -1: they were found


def empty_bounds(groups: int, machines: int, most: int, links: int, together: bool) -> Bounds:
    """Allocate arrays for what groups need; less if transports are not rated `together`."""
    alone = np.empty((groups, machines))
    shape = (groups, machines) if together else (0, 0)
    return Bounds(
        np.empty((groups, most), dtype=np.int32),
        np.empty(groups, dtype=np.int32),
        alone,
        np.empty(shape) if together else alone,
        np.empty(shape, dtype=np.bool_),
        np.empty(shape, dtype=np.bool_),
        np.empty(shape, dtype=np.bool_),
        np.empty(shape),
        np.empty(groups, dtype=np.int32),
        np.empty((groups if together else 0, links), dtype=np.bool_),
        np.empty(shape),
    )


@part
def clear_bounds(bounds: Bounds) -> None:
    """Record that groups need nothing yet."""
    bounds.counts[:], bounds.best[:] = 0, -1
    bounds.alone[:], bounds.rates[:] = np.inf, np.inf
    bounds.settled[:], bounds.checked[:], bounds.used[:], bounds.deferred[:] = True, False, False, -1.0


@stage
def find_only_links(network: Network, only: Ints) -> None:
    """Set the only link of each machine, which all its traffic uses, or -1. [M]"""
    for machine in range(len(only)):
        only[machine], number = -1, 0
        for forwards in (True, False):
            arcs = network.links if forwards else network.back
            for arc in range(arcs.start[machine], arcs.start[machine + 1]):
                if arcs.link[arc] != only[machine]:
                    only[machine] = arcs.link[arc]
                    number += 1
        if number != 1:
            only[machine] = -1


@part
def needs_rating(rows: Ints, touched: bool, renewed: Bools) -> bool:
    """Return whether a group's trees have changed or one of them was renewed."""
    for row in rows:
        touched = touched or renewed[row]
    return touched


@stage
def check_sharing(group: int, machine: int, bounds: Bounds, trees: Trees, network: Network, added: Floats) -> None:
    """Determine whether a group's routes to a machine share a link that lowers the rate, unless it is known."""
    if bounds.checked[group, machine]:
        return
    rows = bounds.rows[group, : bounds.counts[group]]
    alone = bounds.alone[group, machine]
    shared = alone
    for row in rows:
        charge_path(added, trees.bits[row], trees.tail[row], trees.via[row], machine)
    for row in rows:
        shared = min(shared, clear_path(added, trees.tail[row], trees.via[row], machine, network))
    bounds.checked[group, machine] = True
    bounds.disjoint[group, machine] = shared == alone
    bounds.shared[group, machine] = shared


@stage
def rate_deferred(left: Bools, bounds: Bounds, touched: Bools, trees: Trees, before: Network, room: Scratch) -> None:
    """Find deferred routes of the groups to which they still matter, as they were `before` the last charge.

    The rate that they allowed then is a bound from now on.
    """
    for group in range(len(left)):
        for machine in range(len(room.only)):
            floor = bounds.deferred[group, machine]
            if floor < 0.0:
                continue
            bounds.deferred[group, machine] = -1.0
            if left[group] and not touched[group]:
                rows = bounds.rows[group, : bounds.counts[group]]
                bounds.rates[group, machine] = rate_in_turn(rows, trees, machine, before, floor, room)


@stage
def loosen_bounds(
    left: Bools, bounds: Bounds, touched: Bools, charged: Bools, trees: Trees, network: Network, added: Floats
) -> None:
    """Turn settled rates into bounds after links were `charged` [L] and groups `touched` [G] need other routes."""
    for group in range(len(left)):
        if not left[group]:
            continue
        best = -1 if touched[group] else bounds.best[group]
        if best >= 0:
            for link in range(len(charged)):
                if bounds.used[group, link] and charged[link]:
                    best = -1
                    break
        if needs_rating(bounds.rows[group, : bounds.counts[group]], touched[group], trees.renewed):
            bounds.checked[group] = False
        for machine in range(bounds.alone.shape[1]):
            alone = bounds.alone[group, machine]
            if not touched[group] and bounds.rates[group, machine] < alone:  # its routes were found one after another
                check_sharing(group, machine, bounds, trees, network, added)
                if not bounds.disjoint[group, machine]:
                    alone = bounds.rates[group, machine]
            bounds.rates[group, machine] = alone
            bounds.settled[group, machine] = machine == best
        bounds.best[group] = best


@part
def charge_path(added: Floats, bits: float, tail: Ints, via: Ints, node: int) -> None:
    """Add bits to the links between a node and the root of a tree."""
    for _ in range(len(tail)):
        if via[node] < 0:
            break
        added[via[node]] += bits
        node = tail[node]


@part
def clear_path(added: Floats, tail: Ints, via: Ints, node: int, network: Network) -> float:
    """Return the minimum rate on the links between a node and a tree's root, with added bits, and remove these."""
    rate = np.inf
    for _ in range(len(tail)):
        link = via[node]
        if link < 0:
            break
        if added[link] > 0.0:
            rate = min(rate, network.links.bandwidth[link] / (network.load[link] + added[link]))
            added[link] = 0.0
        node = tail[node]
    return rate


@stage
def rate_jointly(
    order: NDArray[np.int64],
    demand: Demand,
    supply: Supply,
    bounds: Bounds,
    trees: Trees,
    network: Network,
    room: Scratch,
) -> None:
    """Replace bounds by rates of joint routes, until the best machines of the lowest groups have no bounds.

    `order` [G] has the groups by upper bound.
    """
    lowest = np.inf  # γ of the groups that are settled
    for group in order:
        if not demand.left[group]:
            continue
        set_speeds(demand, supply, group, room.speed)
        if exceeds(lowest, group, bounds, trees, network, room):
            continue  # another group's γ is lower anyway
        rows = bounds.rows[group, : bounds.counts[group]]
        for _ in range(bounds.rates.shape[1] + 1):
            machine, floor = most_promising(group, bounds, trees, network, room)
            if machine < 0:
                lowest = min(lowest, floor)
                break
            bounds.settled[group, machine] = True  # or so low that its exact value does not matter
            through = rate_through(room.only[machine], rows, trees, machine, network)
            if through < floor * (1 - EQUAL):
                bounds.rates[group, machine], bounds.deferred[group, machine] = through, floor
                continue
            together = rate_in_turn(rows, trees, machine, network, floor, room)
            bounds.rates[group, machine] = together
            if min(together, room.speed[machine]) > floor:
                bounds.best[group] = machine
                for link in range(len(network.load)):
                    bounds.used[group, link] = room.loaded[link] > network.load[link]


@part
def set_upper_bounds(demand: Demand, supply: Supply, bounds: Bounds, upper_bounds: Floats) -> None:
    """Set the upper bound of each group's γ on its best machine. [G]"""
    for group in range(len(upper_bounds)):
        upper_bounds[group] = -1.0
        if demand.left[group]:
            for machine in range(len(supply.cpu)):
                bound = gamma(demand, supply, bounds.rates, group, machine)
                upper_bounds[group] = max(upper_bounds[group], bound)


@part
def set_speeds(demand: Demand, supply: Supply, group: int, speed: Floats) -> None:
    """Set the rate that each machine would allow with the next task of a group, -1 without room."""
    for machine in range(len(speed)):
        speed[machine] = -1.0
        if supply.room[group, machine]:
            speed[machine] = processing_rate(demand, supply, group, machine)


@stage
def exceeds(rate: float, group: int, bounds: Bounds, trees: Trees, network: Network, room: Scratch) -> bool:
    """Return whether γ of a group certainly exceeds a rate, because known routes allow more."""
    if rate == np.inf:
        return False
    for machine in range(len(room.speed)):
        if min(room.speed[machine], bounds.alone[group, machine]) > rate:
            check_sharing(group, machine, bounds, trees, network, room.added)
            if min(room.speed[machine], bounds.shared[group, machine]) > rate:
                return True
    return False


@stage
def most_promising(group: int, bounds: Bounds, trees: Trees, network: Network, room: Scratch) -> tuple[int, float]:
    """Return the machine with the highest bound, if no γ is higher, else -1; and the highest settled γ."""
    best, bound, where = -1.0, -1.0, -1
    for machine in range(len(room.speed)):
        if room.speed[machine] >= 0.0 and bounds.settled[group, machine]:
            best = max(best, min(bounds.rates[group, machine], room.speed[machine]))
    for machine in range(len(room.speed)):
        rate = min(bounds.rates[group, machine], room.speed[machine])
        if room.speed[machine] < 0.0 or bounds.settled[group, machine] or rate < best * (1 - EQUAL):
            continue
        check_sharing(group, machine, bounds, trees, network, room.added)
        if bounds.disjoint[group, machine]:
            best = max(best, rate)
        elif rate > bound:
            bound, where = rate, machine
    return where if bound >= best * (1 - EQUAL) else -1, best


@part
def rate_through(link: int, rows: Ints, trees: Trees, machine: int, network: Network) -> float:
    """Return the rate that a machine's only link allows with all transports of a task there, infinite for -1."""
    if link < 0:
        return np.inf
    load = network.load[link]
    for row in rows:
        if trees.root[row] != machine:
            load += trees.bits[row]
    return float(network.links.bandwidth[link] / load) if load > network.load[link] else np.inf


@stage
def rate_in_turn(rows: Ints, trees: Trees, machine: int, network: Network, floor: float, room: Scratch) -> float:
    """Return the rate that the network allows with the transports of a task on a machine routed in turn.

    Below `floor`, a bound suffices.
    """
    loaded = room.loaded
    for link in range(len(loaded)):
        loaded[link] = network.load[link]
    rate = np.inf
    for row in rows:
        arcs = network.back if trees.towards[row] else network.links
        bits, root = trees.bits[row], trees.root[row]
        grow_tree(
            arcs, loaded, bits, int(root), machine, room.width, room.tail, room.via, room.heap_rates, room.heap_nodes
        )
        charge_path(loaded, bits, room.tail, room.via, machine)
        rate = min(rate, float(room.width[machine]))
        if rate < floor * (1 - EQUAL):
            return rate
    for link in range(len(loaded)):
        if loaded[link] > network.load[link]:
            rate = min(rate, network.links.bandwidth[link] / loaded[link])
    return rate
