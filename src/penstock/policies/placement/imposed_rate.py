"""The rate that putting a task on a machine would impose: SPARCLE's γ of eq. (2), and the greedy placement by it.

γ of task i and machine j is the least of what the machine would allow with i added (its cpu, its least loaded slot,
its other resources) and of what the network would allow for the transports between i and the placed tasks it can
reach. Tasks are taken in a given order, pinned ones first, each is put where γ is highest, and what it exchanges with
its placed neighbours is charged to the network: greedy policies differ in nothing but the order.
"""

from collections.abc import Iterable
from typing import Literal

import numpy as np

from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Bools, Floats
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.gammas import EQUAL
from penstock.policies.placement.network_rates import network_of
from penstock.policies.placement.transports import Transports

Ties = Literal["lowest", "near"]


class ImposedRate:
    """What each machine and the network would allow, given the tasks of a draft."""

    def __init__(self, draft: Draft) -> None:
        view = draft.view
        self._draft = draft
        self._slot_cpu = view.slots.cpu[view.slots.first[:-1]]
        self._least_slot_load = np.zeros(view.slots.machines)
        self._slots_limited = bool(np.isfinite(view.slots.memory_mb).any())
        self.needs = view.tasks.needs * view.tasks.gain[:, None]
        self.used = np.zeros_like(view.slots.capacity)
        self.transports = Transports(view)
        self.network = network_of(view, self.transports)

    def processing(self, task: int) -> Floats:
        """Return the rate that each machine would allow with a task added. [M]"""
        draft, slots = self._draft, self._draft.view.slots
        work = draft.view.work[task]
        rate = np.minimum(
            _ratio(slots.machine_cpu, draft.machine_load + work),
            _ratio(self._slot_cpu, self._slot_loads(task) + work),
        )
        for resource in range(self.needs.shape[1]):
            load = self.used[:, resource] + self.needs[task, resource]
            rate = np.minimum(rate, _ratio(slots.capacity[:, resource], load))
        return np.asarray(rate)

    def best_machine(self, task: int, room: Bools, ties: Ties) -> int:
        """Return the machine with room on which a task has the highest γ, one that ways lead to if there is any."""
        processing, network = self.processing(task), self.network.rates(task)
        usable = room & (network > 0)
        rate = np.where(usable if usable.any() else room, np.minimum(processing, network), -1.0)
        return self.pick(task, rate, ties)

    def pick(self, task: int, rate: Floats, ties: Ties) -> int:
        """Return the machine with the highest rate; `rate` is [M]."""
        best = int(np.argmax(rate))
        equal = np.flatnonzero(rate >= rate[best] * (1 - EQUAL))
        if ties == "lowest" or len(equal) == 1:
            return best
        processing, detour = self.processing(task), self.network.detour(task)
        return int(equal[np.lexsort((-processing[equal], detour[equal]))[0]])

    def put(self, task: int, machine: int) -> None:
        """Place a task on a machine and charge what it exchanges with its placed neighbours."""
        first, last = self._draft.view.slots.first[machine], self._draft.view.slots.first[machine + 1]
        self._draft.put_on(task, machine)
        self._least_slot_load[machine] = self._draft.slot_load[first:last].min()
        self.used[machine] += self.needs[task]
        self.network.put(task, machine)
        self.transports.put(task, machine)

    def done(self) -> Placement | Infeasible:
        """Return the finished placement with the routes by which it was rated, or the hop for which there is no way."""
        routes = self.network.routes()
        return self._draft.done() if routes is None else Placement(tuple(self._draft.slot.tolist()), routes)

    def _slot_loads(self, task: int) -> Floats:
        """Return the load of each machine's least loaded slot that has room. [M]"""
        if not self._slots_limited:
            return self._least_slot_load
        draft = self._draft
        fits = draft.slot_free_mb >= draft.view.tasks.memory_mb[task]
        load = np.where(fits, draft.slot_load, np.inf)
        return np.asarray(np.minimum.reduceat(load, draft.view.slots.first[:-1]))


def place_in_order(view: PlacementView, order: Iterable[int], ties: Ties) -> Placement | Infeasible:
    """Put every task where γ is highest: the pinned ones first, the others in the given order."""
    draft = Draft(view)
    imposed = ImposedRate(draft)
    pinned = np.flatnonzero(view.pins >= 0).tolist()
    for task in [*pinned, *(task for task in order if view.pins[task] < 0)]:
        room = draft.machines_with_room(task)
        if not room.any():
            return draft.stuck(task)
        pin = int(view.pins[task])
        imposed.put(task, pin if pin >= 0 else imposed.best_machine(task, room, ties))
    return imposed.done()


def _ratio(capacity: Floats, load: Floats) -> Floats:
    return np.asarray(np.divide(capacity, load, out=np.full(len(capacity), np.inf), where=load > 0))
