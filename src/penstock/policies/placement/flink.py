"""Flink's default scheduler: slots shared by one task of every component, machines filled one after another.

Subtask k of every component goes to the k-th slot, so that a slot holds a whole pipeline and no two tasks of one
component; the application takes as many slots as its widest component has tasks. Flink's slot sharing ignores memory;
here a task without room moves on to the next slot, so the result differs only if Flink's would not run.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.placement import Constraint, Infeasible, Placement
from penstock.model.taskgraph import Bools, Ints
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft


@dataclass(frozen=True, slots=True)
class Flink:
    """Put subtask k of every component in the k-th slot, as the cluster lists them."""

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return the placement; `rng` is not used."""
        return share_slots(view, np.arange(view.slots.number, dtype=np.int32))


def share_slots(view: PlacementView, turn: Ints) -> Placement | Infeasible:
    """Put subtask k of every component in the k-th slot of `turn`; if pinned, in the k-th of its machine."""
    if (refusal := _too_wide(view)) is not None:
        return refusal
    draft = Draft(view)
    pin = view.pins[view.tasks.first[:-1]]
    for component in np.argsort(pin < 0, kind="stable").tolist():  # pinned ones first, because they have no choice
        for machine in np.unique(view.pins[view.tasks.of(component)]).tolist():
            mine = turn if machine < 0 else turn[view.slots.machine[turn] == machine]
            tasks = [task for task in view.tasks.of(component) if view.pins[task] == machine]
            if (refusal := _put_component(draft, component, tasks, mine)) is not None:
                return refusal
    return draft.done()


def _too_wide(view: PlacementView) -> Infeasible | None:
    """Return the refusal for the widest of the components that have more tasks than there are slots for them."""
    groups, width = np.unique(np.stack([view.tasks.component, view.pins]), axis=1, return_counts=True)
    pin = groups[1]
    there = np.where(pin < 0, view.slots.number, np.diff(view.slots.first)[pin])
    worst = int(np.argmax(np.where(width > there, width, 0)))
    if width[worst] <= there[worst]:
        return None
    who = view.cluster.machines[pin[worst]].name if pin[worst] >= 0 else view.cluster.name
    kind = "machine" if pin[worst] >= 0 else "cluster"
    return _no_slot(view, int(groups[0, worst]), int(there[worst]), f"{kind} {who!r} has {there[worst]}")


def _put_component(draft: Draft, component: int, tasks: list[int], turn: Ints) -> Infeasible | None:
    """Put tasks of a component that may use the same slots in the next slots."""
    taken = np.zeros(draft.view.slots.number, dtype=np.bool_)  # by this component
    late = []
    for number, task in enumerate(tasks):
        slot = int(turn[number])
        if draft.has_room(task, slot):
            draft.put(task, slot)
            taken[slot] = True
        else:
            late.append((number, task))
    for number, task in late:  # after the others, so that each keeps the slot of its own pipeline
        room = draft.slots_with_room(task)
        ahead = turn[number:]  # earlier slots are taken by its component, or full
        open_to_it = ahead[(room & ~taken)[ahead]]
        if not len(open_to_it):
            return _crowded(draft, component, task, room, taken)
        draft.put(task, int(open_to_it[0]))
        taken[open_to_it[0]] = True
    return None


def _crowded(draft: Draft, component: int, task: int, room: Bools, taken: Bools) -> Infeasible:
    """Return the refusal for a task without a slot: no memory anywhere, or only with another task of its component."""
    if not room.any():
        return draft.refusal(task)
    slots = int(taken.sum())
    return _no_slot(draft.view, component, slots, f"with the other tasks only {slots} have room for one")


def _no_slot(view: PlacementView, component: int, slots: int, problem: str) -> Infeasible:
    named = view.topology.components[view.tasks.position[component]]
    return Infeasible(
        constraint=Constraint.SLOTS,
        reason=f"the {named.parallelism} tasks of component {named.name!r} need a slot each and {problem}; "
        "add slots or memory, or lower its parallelism",
        needed=float(named.parallelism),
        available=float(slots),
    )
