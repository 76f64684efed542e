"""What the network allows for every group of alike tasks on every machine, as tasks are placed: eq. (2)'s second half.

`alone` each transport is rated by itself, as eq. (2) has it. `together` the transports between a task and the placed
tasks around it are loaded at once, so that two that share a link add up: of the placed tasks then only those count
that can be reached through tasks not placed yet, as what lies beyond them is routed already.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.model.kernel import kernel
from penstock.model.taskgraph import Bools, Floats, Ints, Tasks
from penstock.policies.api import PlacementView
from penstock.policies.placement.gammas import Demand, Supply
from penstock.policies.placement.joint_ways import Ways, Wishes, find_shared, loosen, needs_rating, settle
from penstock.policies.placement.network_rates import Mesh, Network, Routed, rates_by_cards
from penstock.policies.placement.transports import Between, Transports, smallest_between
from penstock.policies.placement.widest_trees import Trees


class Groups(NamedTuple):
    """Alike tasks that are left; G groups."""

    members: list[list[int]]  # tasks, those left in ascending order
    component: Ints  # [G]
    left: Bools  # [G] whether it has any


class Bounds(Protocol):
    """The rates that the network allows: `rates` [G, M] with a task of each group on each machine; 0: no way.

    `risen` says whether any may have risen since the task before the last: they fall unless other tasks are reached.
    """

    rates: Floats
    risen: bool

    def note(self, task: int, machine: int) -> None:
        """Take account of a task that has been put on a machine and charged."""
        ...

    def settle(self, demand: Demand, supply: Supply) -> None:
        """Make sure that `rates` are exact on the best machine of the lowest group; elsewhere they may be too high."""
        ...


def group_alike(view: PlacementView, between: Between) -> Groups:
    """Return groups of the tasks that are not pinned: of a component, with equal gain and no partner of their own."""
    tasks = view.tasks
    partnered: Bools = np.logical_or(between.aligned.any(axis=0), between.aligned.any(axis=1))
    found: dict[tuple[int, float, int], list[int]] = {}
    for task in np.flatnonzero(view.pins < 0).tolist():
        component = int(tasks.component[task])
        alone = task if partnered[component] and len(tasks.of(component)) > 1 else -1
        found.setdefault((component, float(tasks.gain[task]), alone), []).append(task)
    components = np.array([key[0] for key in found], dtype=np.int32)
    return Groups(list(found.values()), components, np.ones(len(found), dtype=np.bool_))


def bounds_of(view: PlacementView, groups: Groups, transports: Transports, network: Network, together: bool) -> Bounds:
    """Return what a network allows with nothing placed."""
    reached = Reached(view.tasks, groups, transports, together)
    if isinstance(network, Routed):
        return RoutedBounds(view, reached, network)
    assert isinstance(network, Mesh)
    return MeshBounds(view, reached, network)


class Partners(NamedTuple):
    """The groups that exchange something with a placed task and those like it on its machine; P groups."""

    sends: bool  # whether the groups send
    group: NDArray[np.int64]  # [P]
    each: Floats  # [P] bits a source tuple, at least, with each of the placed tasks
    number: Floats  # [P] of placed tasks on the machine
    paired: Bools  # [P] whether the placed task is the only one of its component that is reached


class Reached:
    """The smallest transports between groups and the placed tasks that they reach."""

    def __init__(self, tasks: Tasks, groups: Groups, transports: Transports, together: bool) -> None:
        self.groups, self.together = groups, together
        self.machine = np.full(tasks.number, -1, dtype=np.int32)
        self.tasks_on = transports.tasks_on  # [C, M]
        self._tasks = tasks
        self._between = transports.between
        first = np.array([members[0] for members in groups.members], dtype=np.int32)
        self._number = first - tasks.first[groups.component]  # within the component
        self._receives = tasks.gain[first] > 0

    def note(self, task: int, machine: int) -> bool:
        """Note a placed task; return whether what is reached is another set now, not just a larger one."""
        self.machine[task] = machine
        component = self._tasks.of(int(self._tasks.component[task]))
        if not self.together or (self.machine[component.start : component.stop] < 0).any():
            return False
        whole = np.logical_and.reduceat(self.machine >= 0, self._tasks.first[:-1])
        self._between = smallest_between(self._tasks, whole)
        return True

    def partners(self, placed: int) -> Iterator[Partners]:
        """Return the groups left that send to a placed task, then those it sends to, directly or through others."""
        tasks, groups = self._tasks, self.groups
        component = int(tasks.component[placed])
        for sends, bits, aligned in (
            (True, self._between.bits[:, component], self._between.aligned[:, component]),
            (False, self._between.bits[component], self._between.aligned[component]),
        ):
            each, paired = bits[groups.component], aligned[groups.component]
            reach = groups.left & self._receives & np.isfinite(each) & (each > 0)
            reach &= ~paired | (self._number == placed - tasks.first[component])
            count = np.where(paired, 1.0, self.tasks_on[component, self.machine[placed]])
            group = np.flatnonzero(reach & (count > 0))
            yield Partners(sends, group, each[group], count[group], paired[group])

    def placed(self) -> list[int]:
        """Return one placed task of every component on every machine, or all where tasks have partners of their own."""
        found = {}
        for task in np.flatnonzero(self.machine >= 0).tolist():
            component = int(self._tasks.component[task])
            number = task if self._between.aligned[component].any() or self._between.aligned[:, component].any() else -1
            found[component, int(self.machine[task]), number] = task
        return list(found.values())


class RoutedBounds:
    """Widest paths between each machine and those of the tasks reached."""

    def __init__(self, view: PlacementView, reached: Reached, network: Routed) -> None:
        number = len(reached.groups.members)
        self.rates = np.full((number, view.slots.machines), np.inf)
        self._component = view.tasks.component
        self.risen = reached.together
        self._reached = reached
        self._ways = Ways(view.links, network.back, network.load)
        # What each transport's widest path allows; together they may allow less.
        self._alone = self.rates.copy() if reached.together else self.rates
        self._apart = np.ones(self.rates.shape, dtype=np.bool_)  # where they do not hinder one another
        self._settled = self._apart.copy()
        self._shared = self._alone.copy()
        self._best = np.full(number, -1, dtype=np.int32)
        self._used = np.zeros((number, len(network.load)), dtype=np.bool_)
        self._wishes: Wishes | None = None
        self._trees = Trees(view.links, network.back, network.load)
        self._wanted: list[dict[tuple[bool, int, int], int]] = [{} for _ in range(number)]
        self._rows = np.zeros((number, 8), dtype=np.int32)

    def note(self, task: int, machine: int) -> None:
        """Find the ways to a task that has been placed, and again those whose links were charged with it."""
        touched = np.zeros(len(self._wanted), dtype=np.bool_)
        if self._reached.note(task, machine):
            before, self._wanted = self._wanted, [{} for _ in self._wanted]
            for placed in self._reached.placed():
                self._want(placed, touched)
            for group, trees in enumerate(before):
                touched[group] = trees != self._wanted[group]
                self._forget(trees)
        else:
            self._want(task, touched)
        for group in np.flatnonzero(~self._reached.groups.left).tolist():
            self._forget(self._wanted[group])
        for group in np.flatnonzero(touched).tolist():
            self._list(group)
        renewed = self._trees.refresh()
        counts = np.array([len(wanted) for wanted in self._wanted], dtype=np.int32)
        touched &= self._reached.groups.left
        kept = self._trees.kept
        lowest_widths(self._alone, self._rows, counts, touched, renewed, kept.width)
        if self._reached.together:
            wishes = Wishes(self._rows, counts, self.rates, self._settled, self._shared, self._best, self._used)
            find_shared(self._apart, self._alone, wishes, touched, renewed, kept, self._ways)
            loosen(self._apart, self._alone, wishes, touched, self._trees.charged)
            self._wishes = wishes

    def settle(self, demand: Demand, supply: Supply) -> None:
        """Find out what ways that share links allow together, for machines that might be a group's best."""
        if self._wishes is not None:
            settle(demand, supply, self._wishes, self._trees.kept, self._ways)

    def _want(self, placed: int, touched: Bools) -> None:
        machine = int(self._reached.machine[placed])
        # Of transports to one machine the largest alone limits; together all of them do.
        component = int(self._component[placed]) if self._reached.together else -1
        for partners in self._reached.partners(placed):
            key = partners.sends, machine, component
            for group, bits in zip(partners.group.tolist(), (partners.each * partners.number).tolist(), strict=True):
                before = self._wanted[group].get(key)
                if before is not None:
                    if self._trees.kept.bits[before] >= bits:
                        continue
                    self._trees.drop(before)
                self._wanted[group][key] = self._trees.take(partners.sends, machine, bits)
                touched[group] = True

    def _forget(self, wanted: dict[tuple[bool, int, int], int]) -> None:
        for tree in wanted.values():
            self._trees.drop(tree)
        wanted.clear()

    def _list(self, group: int) -> None:
        trees = list(self._wanted[group].values())
        if len(trees) > self._rows.shape[1]:
            self._rows = np.pad(self._rows, ((0, 0), (0, len(trees))))
        self._rows[group, : len(trees)] = trees


class MeshBounds:
    """Network cards on both ends of every transport."""

    def __init__(self, view: PlacementView, reached: Reached, network: Mesh) -> None:
        machines = view.slots.machines
        self._card = view.slots.machine_network
        self._carded = bool(np.isfinite(self._card).any())
        shape = len(reached.groups.members), machines
        self.rates = np.full(shape, np.inf)
        self.risen = False
        self._network, self._reached = network, reached
        kept = shape if self._carded else (0, 0)
        self._near = {sends: np.zeros(kept) for sends in (True, False)}
        self._far = {sends: np.zeros(kept) for sends in (True, False)}
        self._component = view.tasks.component

    def note(self, task: int, machine: int) -> None:
        """Add what a placed task exchanges with the groups that reach it, and rate all cards again."""
        changed = self._reached.note(task, machine)
        self.risen = changed
        if not self._carded:
            return
        if changed:
            for amounts in (*self._near.values(), *self._far.values()):
                amounts[:] = 0.0
        for placed in self._reached.placed() if changed else [task]:
            self._add(placed, anew=changed)
        network = self._network
        for sends, near_load, far_load in (
            (True, network.sent, network.received),
            (False, network.received, network.sent),
        ):
            near, far = self._near[sends], self._far[sends]
            rate_cards(self.rates, self._reached.groups.left, self._card, near, far, near_load, far_load, sends)

    def settle(self, demand: Demand, supply: Supply) -> None:
        """Do nothing: what passes a card adds up without looking for ways."""

    def _add(self, placed: int, anew: bool) -> None:
        machine = int(self._reached.machine[placed])
        there = self._reached.tasks_on[self._component[placed]]
        for partners in self._reached.partners(placed):
            near, far = self._near[partners.sends], self._far[partners.sends]
            if self._reached.together:
                add_to_cards(near, far, partners.group, partners.each * (partners.number if anew else 1.0), machine)
            else:
                raise_cards(near, far, partners, there, machine)


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
def add_to_cards(near: Floats, far: Floats, group: NDArray[np.int64], bits: Floats, machine: int) -> None:
    """Add transports between a machine and every other for the groups that have them; `near`, `far` are [G, M]."""
    for position in range(len(group)):
        far[group[position], machine] += bits[position]
        for other in range(near.shape[1]):
            if other != machine:
                near[group[position], other] += bits[position]


@kernel
def raise_cards(near: Floats, far: Floats, partners: Partners, there: Floats, machine: int) -> None:
    """Raise what groups exchange with the one component that exchanges most, `there` [M] being its placed tasks."""
    total = there.sum()
    for position in range(len(partners.group)):
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
