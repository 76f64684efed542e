"""A partial placement: slots of tasks, free capacity, and the refusal if a task has no room.

Policies that place one task after another share this bookkeeping, so that each consists only of its rule.
"""

import numpy as np

from penstock.model.placement import MEMORY_SLACK, Constraint, Hop, Infeasible, Placement
from penstock.model.routes import route_hops
from penstock.model.taskgraph import Bools, task_names
from penstock.policies.api import PlacementView


class Draft:
    """The tasks placed so far.

    `slot` [T] is -1 for tasks not placed; `slot_load` [S] and `machine_load` [M] are core-seconds per source tuple;
    `slot_free_mb` [S] is what slots have left of their own limits, infinite without one; `machine_free_mb` [M] is the
    free memory of machines, whatever limits their slots have. Both include a share `MEMORY_SLACK` of the capacity, so
    they do not tie where free memory does. `machines_with_room` respects both.
    """

    def __init__(self, view: PlacementView) -> None:
        self.view = view
        self.slot = np.full(view.tasks.number, -1, dtype=np.int32)
        self.slot_load = np.zeros(view.slots.number)
        self.machine_load = np.zeros(view.slots.machines)
        self.slot_free_mb = view.slots.memory_mb * (1 + MEMORY_SLACK)
        self.machine_free_mb = view.slots.machine_memory_mb * (1 + MEMORY_SLACK)
        self._slots_limited = bool(np.isfinite(view.slots.memory_mb).any())
        self._tasks_on = np.zeros((len(view.tasks.position), view.slots.machines), dtype=np.int32)  # [C, M]

    def slots_with_room(self, task: int) -> Bools:
        """Return which slots may take a task: its pin, the slot's and the machine's memory. [S]"""
        fits: Bools = self.slot_free_mb >= self.view.tasks.memory_mb[task]
        return fits & self.machines_allowed(task)[self.view.slots.machine]

    def machines_with_room(self, task: int) -> Bools:
        """Return which machines may take a task in at least one of their slots. [M]"""
        allowed = self.machines_allowed(task)
        if not self._slots_limited:
            return allowed
        fits = self.slot_free_mb >= self.view.tasks.memory_mb[task]
        return allowed & np.logical_or.reduceat(fits, self.view.slots.first[:-1])

    def machines_allowed(self, task: int) -> Bools:
        """Return on which machines a task may be by its pin, anti-affinity, their memory and resources. [M]"""
        allowed: Bools = self.machine_free_mb >= self.view.tasks.memory_mb[task]
        if self.view.conflicts is not None:
            allowed &= ~self.machines_with_conflict(task)
        if self.view.tasks.resources:
            allowed &= self.view.machines_with_resources(task)
        pin = self.view.pins[task]
        if pin >= 0:
            only = np.zeros_like(allowed)
            only[pin] = allowed[pin]
            return only
        return allowed

    def machines_with_conflict(self, task: int) -> Bools:
        """Return which machines have a task that this one may not share a machine with. [M]"""
        assert self.view.conflicts is not None, "checked by the caller"
        rivals = self.view.conflicts[self.view.tasks.component[task]]
        found: Bools = (self._tasks_on[rivals] > 0).any(axis=0)
        return found

    def has_room(self, task: int, slot: int) -> bool:
        """Return whether a task may be in a slot: its pin, anti-affinity, memory and resources."""
        fits = self.slot_free_mb[slot] >= self.view.tasks.memory_mb[task]
        return bool(fits and self.machines_allowed(task)[self.view.slots.machine[slot]])

    def put(self, task: int, slot: int) -> None:
        """Place a task in a slot."""
        machine = self.view.slots.machine[slot]
        memory = self.view.tasks.memory_mb[task]
        self.slot[task] = slot
        self.slot_load[slot] += self.view.work[task]
        self.machine_load[machine] += self.view.work[task]
        self.slot_free_mb[slot] -= memory
        self.machine_free_mb[machine] -= memory
        self._tasks_on[self.view.tasks.component[task], machine] += 1

    def put_on(self, task: int, machine: int) -> None:
        """Place a task in the least loaded slot of a machine that has room for it, ties by number."""
        self.put_among(task, int(self.view.slots.first[machine]), int(self.view.slots.first[machine + 1]))

    def put_among(self, task: int, first: int, last: int) -> None:
        """Place a task in the least loaded slot from `first` to before `last` that has room for it."""
        load = self.slot_load[first:last]
        if self._slots_limited:
            load = np.where(self.slot_free_mb[first:last] >= self.view.tasks.memory_mb[task], load, np.inf)
        self.put(task, first + int(np.argmin(load)))

    def put_pinned(self) -> int | None:
        """Place the pinned tasks on their machines; return the first that has no room, if any."""
        for task in np.flatnonzero(self.view.pins >= 0).tolist():
            if not self.machines_with_room(task).any():
                return int(task)
            self.put_on(task, int(self.view.pins[task]))
        return None

    def refusal(self, task: int, only: int | None = None) -> Infeasible:
        """Return the refusal for a task without room: in no slot at all, or in none of the machine `only`."""
        view = self.view
        name, needed = task_names(view.topology)[task], float(view.tasks.memory_mb[task])
        pin = int(view.pins[task])
        where = "any machine"
        if pin >= 0:
            only, where = pin, f"machine {view.cluster.machines[pin].name!r}, to which it is pinned,"
        elif only is not None:
            where = f"machine {view.cluster.machines[only].name!r}"
        able = view.machines_with_resources(task)
        machines = [m for m in (range(view.slots.machines) if only is None else [only]) if able[m]]
        if not machines:
            return self._without_resource(task, "no machine has" if only is None else f"{where} has not")
        if view.conflicts is not None:
            rivals = self.machines_with_conflict(task)
            machines = [m for m in machines if not rivals[m]]
            if not machines:
                return self._without_machine(task)
        in_slots = (self.slot_free_mb[view.slots.first[m] : view.slots.first[m + 1]].max() for m in machines)
        left = max(min(room, self.machine_free_mb[m]) for room, m in zip(in_slots, machines, strict=True))
        return Infeasible(
            constraint=Constraint.MEMORY,
            reason=f"task {name} needs {needed:g} MB and the most left on {where} is {round(max(left, 0.0), 3):g} MB; "
            "add memory or machines, or lower the component's memory_mb",
            needed=needed,
            available=float(left),
            task=task if only is None or pin >= 0 else None,  # on another machine it might have room
            placed={int(other): int(self.slot[other]) for other in np.flatnonzero(self.slot >= 0)},
        )

    def _without_machine(self, task: int) -> Infeasible:
        """Return the refusal for a task that anti-affinity keeps off every machine that it could use."""
        return Infeasible(
            constraint=Constraint.ANTI_AFFINITY,
            reason=f"task {task_names(self.view.topology)[task]} has no machine without a task of its "
            "anti_affinity; add machines or shorten anti_affinity",
            needed=1.0,
            available=0.0,
        )

    def _without_resource(self, task: int, where: str) -> Infeasible:
        tasks = self.view.tasks
        wanted = ", ".join(name for name, need in zip(tasks.resources, tasks.needs[task], strict=True) if need > 0)
        return Infeasible(
            constraint=Constraint.RESOURCE,
            reason=f"task {task_names(self.view.topology)[task]} needs {wanted}, which {where}; "
            "add it to the resources of a machine",
            needed=float(tasks.needs[task].max()),
            available=0.0,
            proven=where.startswith("no machine") or self.view.pins[task] >= 0,
        )

    def done(self, gap: float | None = None, note: str = "") -> Placement | Infeasible:
        """Return the finished placement with its routes, or the hop without a route."""
        return complete(self.view, self.slot.tolist(), gap, note)


def complete(view: PlacementView, slots: list[int], gap: float | None = None, note: str = "") -> Placement | Infeasible:
    """Return the placement of all tasks with its routes, or a refusal if two machines are not connected."""
    if not view.cluster.routed:
        return Placement(tuple(slots), gap=gap, note=note)
    routes = route_hops(view.tasks, view.slots, view.links, slots)
    if isinstance(routes, Hop):
        machines = view.cluster.machines
        return Infeasible(
            constraint=Constraint.ROUTE,
            reason=f"stream {view.topology.streams[routes.stream].label} must go from {machines[routes.source].name!r} "
            f"to {machines[routes.target].name!r} and no links with bandwidth lead there; add one",
            needed=1.0,
            available=0.0,
            placed=dict(enumerate(slots)),
        )
    return Placement(tuple(slots), routes, gap, note)
