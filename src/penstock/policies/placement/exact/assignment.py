"""Number of tasks of each group in each bin as an integer program: memory, pins and loads.

A bin is a slot, or a whole machine if its slots make no difference. The stress column is `SCALE` if the busiest element
works `most` seconds per source tuple, the maximum that is acceptable; so rows of loads have coefficients near 1.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from penstock.model.placement import MEMORY_SLACK
from penstock.model.taskgraph import Floats, Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.exact.program import SCALE, Columns, Program
from penstock.policies.placement.exact.task_groups import Group

Terms = list[tuple[int, float]]

ROUNDING = 1e-9  # relative


class Assignment:
    """The counts of every group in every bin, within memory and pins; methods add further constraints.

    `most` is the maximum acceptable stress, infinite if stress does not matter. `ordered`: the slots of a machine are
    interchangeable, so only one order of them is considered.
    """

    def __init__(
        self, view: PlacementView, groups: tuple[Group, ...], by_slot: bool, most: float = np.inf, ordered: bool = True
    ) -> None:
        self.view, self.groups, self.most = view, groups, most
        self.program = Program()
        self._by_slot = by_slot
        self._first = view.slots.first if by_slot else np.arange(view.slots.machines + 1)
        self._upper = np.array([self._room(group) for group in groups])
        self._counts = self.program.columns(self._upper, whole=True)  # [G, B]
        self._unary: dict[tuple[int, int], Columns] = {}
        for number, group in enumerate(groups):
            everywhere = [(int(column), 1.0) for column in self._counts[number]]
            self.program.row(everywhere, len(group.tasks), len(group.tasks))
        self._limit_memory()
        self._keep_apart()
        if by_slot and ordered:
            self._order_slots()

    def on(self, group: int, machine: int, factor: float = 1.0) -> Terms:
        """Return the number of a group's tasks on a machine, times a factor."""
        bins = self._bins(machine)
        return [(int(self._counts[group, b]), factor) for b in bins if self._upper[group, b] > 0]

    def most_on(self, group: int, machine: int) -> int:
        """Return the maximum number of a group's tasks on a machine."""
        return int(min(self._upper[group, self._bins(machine)].sum(), len(self.groups[group].tasks)))

    def unary(self, group: int, machine: int) -> Columns:
        """Return binary columns that add up to the number of a group's tasks on a machine, ones first."""
        key, bins = (group, machine), self._bins(machine)
        if len(bins) == 1 and self._upper[group, bins[0]] == 1:
            return self._counts[group, bins]
        if key not in self._unary:
            ones = self.program.columns(np.ones(self.most_on(group, machine)), whole=True)
            self.program.row([*((int(one), 1.0) for one in ones), *self.on(group, machine, -1.0)], 0.0, 0.0)
            for fewer, more in pairwise(ones):
                self.program.row([(int(fewer), 1.0), (int(more), -1.0)], low=0.0)
            self._unary[key] = ones
        return self._unary[key]

    def add_stress(self, least: float) -> int:
        """Add the stress column, at least `least`, and keep slots, machines and other resources below it."""
        column = int(self.program.columns([SCALE * (1 + ROUNDING)])[0])
        self.program.row([(column, 1.0)], low=SCALE * min(least / self.most, 1.0))
        slots, groups = self.view.slots, range(len(self.groups))
        work = [group.work for group in self.groups]
        for number in range(slots.number):
            self.stay_below(column, [(int(self._counts[g, number]), work[g]) for g in groups], slots.cpu[number])
        for machine in range(slots.machines):
            bins = self._bins(machine)
            if len(bins) * slots.cpu[bins[0]] > slots.machine_cpu[machine]:
                load = [(int(self._counts[g, b]), work[g]) for g in groups for b in bins]
                self.stay_below(column, load, slots.machine_cpu[machine])
            for resource, capacity in enumerate(slots.capacity[machine]):
                load = [term for g in groups for term in self.on(g, machine, self.groups[g].needs[resource])]
                self.stay_below(column, load, capacity)
        return column

    def stay_below(self, stress: int, load: Terms, capacity: float) -> None:
        """Keep the load of an element per source tuple, relative to its capacity per second, below the stress."""
        terms = [(column, amount / capacity / self.most * SCALE) for column, amount in load if amount != 0]
        if terms:
            self.program.row([*terms, (stress, -1.0)], high=0.0)

    def reward(self, group: int, place: int, count: int) -> None:
        """Lower the cost by one for each task of a group in a bin, up to a number."""
        staying = int(self.program.columns([count])[0])
        self.program.row([(staying, 1.0), (int(self._counts[group, place]), -1.0)], high=0.0)
        self.program.cost(staying, -1.0)

    def counts(self, values: Floats) -> NDArray[np.int64]:
        """Return how many tasks of each group are in each bin, given the values of all columns: [G, B]."""
        return np.rint(values[self._counts]).astype(np.int64)

    def slots(self, values: Floats) -> Ints | None:
        """Return the slot of every task [T], given the values of all columns; None if memory does not quite fit."""
        counts = self.counts(values)
        draft = Draft(self.view)
        for number, group in enumerate(self.groups):
            for task, place in zip(group.tasks, np.repeat(np.arange(counts.shape[1]), counts[number]), strict=True):
                if self._by_slot:
                    draft.put(task, int(place))
                else:
                    draft.put_on(task, int(place))
        fits = min(draft.slot_free_mb.min(), draft.machine_free_mb.min()) >= 0
        return draft.slot if fits else None

    def _bins(self, machine: int) -> range:
        return range(int(self._first[machine]), int(self._first[machine + 1]))

    def _room(self, group: Group) -> Floats:
        """Return the maximum number of a group's tasks in each bin if it is empty otherwise. [B]"""
        slots, some = self.view.slots, 1 + ROUNDING
        with np.errstate(divide="ignore", invalid="ignore"):  # any number of tasks that need nothing
            on_machine = slots.machine_memory_mb * (1 + MEMORY_SLACK) / group.memory_mb
            on_machine = np.fmin(on_machine, self.most * slots.machine_cpu * some / group.work)
            for resource, need in enumerate(group.needs):
                on_machine = np.fmin(on_machine, self.most * slots.capacity[:, resource] * some / need)
            in_slot = np.fmin(
                slots.memory_mb * (1 + MEMORY_SLACK) / group.memory_mb, self.most * slots.cpu * some / group.work
            )
        if group.pin >= 0:
            on_machine = np.where(np.arange(slots.machines) == group.pin, on_machine, 0.0)
        on_machine = np.where(self.view.machines_with_resources(group.tasks[0]), on_machine, 0.0)
        room = np.fmin(on_machine[slots.machine], in_slot) if self._by_slot else on_machine
        return np.floor(np.fmin(room, len(group.tasks)))

    def _limit_memory(self) -> None:
        slots, groups = self.view.slots, range(len(self.groups))
        memory = [group.memory_mb for group in self.groups]
        for machine in range(slots.machines):
            bins = self._bins(machine)
            load = [(int(self._counts[g, b]), memory[g]) for g in groups for b in bins if self._upper[g, b] > 0]
            self._fit(load, float(slots.machine_memory_mb[machine]))
            for b in bins if self._by_slot else ():
                load = [(int(self._counts[g, b]), memory[g]) for g in groups if self._upper[g, b] > 0]
                self._fit(load, float(slots.memory_mb[b]))

    def _keep_apart(self) -> None:
        """Keep tasks off the machines of those in their anti-affinity."""
        if (conflicts := self.view.conflicts) is None:
            return
        component = [int(self.view.tasks.component[group.tasks[0]]) for group in self.groups]
        members = {
            c: [g for g, own in enumerate(component) if own == c] for c in range(len(conflicts)) if conflicts[c].any()
        }
        for machine in range(self.view.slots.machines):
            used = {c: int(self.program.columns([1.0], whole=True)[0]) for c in members}
            for c, groups in members.items():
                there = [term for g in groups for term in self.on(g, machine)]
                most = 1.0 if conflicts[c, c] else float(sum(len(self.groups[g].tasks) for g in groups))
                self.program.row([*there, (used[c], -most)], high=0.0)
            for c, d in np.argwhere(np.triu(conflicts, 1)).tolist():
                self.program.row([(used[c], 1.0), (used[d], 1.0)], high=1.0)

    def _fit(self, load: Terms, capacity: float) -> None:
        if sum(group.memory_mb * len(group.tasks) for group in self.groups) > capacity:
            terms = [(column, amount / capacity * SCALE) for column, amount in load if amount > 0]
            self.program.row(terms, high=SCALE * (1 + MEMORY_SLACK))

    def _order_slots(self) -> None:
        """Break the symmetry of a machine's slots: the busiest first."""
        heaviest = max(group.work for group in self.groups)
        if heaviest == 0:
            return
        weight = [group.work / heaviest for group in self.groups]
        for machine in range(self.view.slots.machines):
            bins = self._bins(machine)
            for busy, idle in pairwise(bins):
                terms = [(int(self._counts[g, busy]), w) for g, w in enumerate(weight) if w > 0]
                terms += [(int(self._counts[g, idle]), -w) for g, w in enumerate(weight) if w > 0]
                self.program.row(terms, low=0.0)
