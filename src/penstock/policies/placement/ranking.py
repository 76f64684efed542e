"""SPARCLE's dynamic ranking: γ of eq. (2) for every task that is left and every machine, kept up to date.

Tasks of a component are alike unless forward streams give each its own partner, so γ is kept for groups of alike
tasks. While tasks are placed loads grow and γ falls: a group's best machine stays its best for as long as γ there has
not changed, and only then are the others looked through again.
"""

import numpy as np

from penstock.model.taskgraph import Floats
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.gammas import Demand, Supply, rank
from penstock.policies.placement.imposed_rate import ImposedRate
from penstock.policies.placement.network_bounds import bounds_of, group_alike


class Ranking:
    """The tasks of a draft that are left, ranked by the rate that each would have on its best machine."""

    def __init__(self, draft: Draft, imposed: ImposedRate, together: bool) -> None:
        view, slots = draft.view, draft.view.slots
        self._draft, self._imposed = draft, imposed
        self._groups = group_alike(view, imposed.transports.between)
        self._bounds = bounds_of(view, self._groups, imposed.transports, imposed.network, together)
        first = np.array([members[0] for members in self._groups.members], dtype=np.int32)
        self._group_of = {task: group for group, members in enumerate(self._groups.members) for task in members}
        self._demand = Demand(first, self._groups.left, view.work[first], imposed.needs[first])
        shape = len(first), slots.machines
        self._supply = Supply(
            cpu=slots.machine_cpu,
            load=draft.machine_load,
            slot_cpu=slots.cpu[slots.first[:-1]],
            slot_load=np.zeros(shape),
            capacity=slots.capacity,
            used=imposed.used,
            room=np.array([draft.machines_with_room(task) for task in first.tolist()], dtype=np.bool_).reshape(shape),
        )
        self._limited = bool(np.isfinite(slots.memory_mb).any())
        self._best = np.zeros(len(first))
        self._where = np.full(len(first), -1, dtype=np.int32)
        self._risen = False  # whether any γ may have, since the last rank

    def note(self, task: int, machine: int) -> None:
        """Take account of a task that has been put on a machine and charged."""
        group = self._group_of.get(task)
        if group is not None:
            members = self._groups.members[group]
            members.remove(task)
            self._demand.left[group] = bool(members)
            self._demand.task[group] = members[0] if members else -1
        self._look_for_room(machine)
        self._bounds.note(task, machine)
        self._risen |= self._bounds.risen

    def first(self) -> int:
        """Return the task to place next, of the lowest γ on its best machine (Algorithm 2, line 16)."""
        self._bounds.settle(self._demand, self._supply)
        group = rank(self._demand, self._supply, self._bounds.rates, self._best, self._where, not self._risen)
        self._risen = False
        return int(self._demand.task[group])

    def rates(self, task: int) -> Floats:
        """Return γ of a task on every machine that may take it, -1 on the others. [M]"""
        group = self._group_of[task]
        network, room = self._bounds.rates[group], self._supply.room[group]
        usable = room & (network > 0)
        rate = np.minimum(self._imposed.processing(task), network)
        return np.where(usable if usable.any() else room, rate, -1.0)

    def _look_for_room(self, machine: int) -> None:
        draft, slots = self._draft, self._draft.view.slots
        first, last = slots.first[machine], slots.first[machine + 1]
        memory = draft.view.tasks.memory_mb[self._demand.task]
        load, room = draft.slot_load[first:last], draft.machine_free_mb[machine] >= memory
        if self._limited:
            fits = draft.slot_free_mb[first:last] >= memory[:, None]
            self._supply.slot_load[:, machine] = np.where(fits, load, np.inf).min(axis=1)
            room &= fits.any(axis=1)
        else:
            self._supply.slot_load[:, machine] = load.min()
        self._supply.room[:, machine] &= room
