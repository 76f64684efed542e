"""Refusals that explain with figures why there is no placement at all."""

from dataclasses import replace

import numpy as np

from penstock.model.placement import MEMORY_SLACK, Constraint, Infeasible
from penstock.policies.api import PlacementView
from penstock.policies.placement.draft import Draft
from penstock.policies.placement.drafts import packed


def without_room(view: PlacementView) -> Infeasible | None:
    """Return a refusal that needs no search: a task too large for any slot, or too little memory in total."""
    empty = Draft(view)
    for task in range(view.tasks.number):
        if not empty.slots_with_room(task).any():
            return replace(empty.refusal(task), proven=True)
    return _memory_in_all(view)


def unpackable(view: PlacementView) -> Infeasible:
    """Return the refusal for tasks that are proven not to fit together: where packing them fails."""
    stuck = packed(view)
    if isinstance(stuck, Infeasible):
        reason = f"no arrangement fits all tasks: largest first, {stuck.reason}"
        return replace(stuck, reason=reason, proven=True)
    return Infeasible(
        constraint=Constraint.RESOURCE,
        reason="no arrangement fits the memory and has every task on a machine with its resources; "
        "add memory to these machines",
        needed=1.0,
        available=0.0,
        proven=True,
    )


def unroutable() -> Infeasible:
    """Return the refusal for a network that is proven not to connect any placement."""
    return Infeasible(
        constraint=Constraint.ROUTE,
        reason="in every arrangement that fits, some stream has no route over links with bandwidth; add links",
        needed=1.0,
        available=0.0,
        proven=True,
    )


def too_slow(offered_tps: float, best_tps: float) -> Infeasible:
    """Return the refusal for an offered load that no placement sustains; `best_tps` is the maximum found."""
    return Infeasible(
        constraint=Constraint.CPU,
        reason=f"the offered load is {offered_tps:g} tuples/s and the best placement found sustains {best_tps:g}; "
        "add machines or lower rate_tps",
        needed=offered_tps,
        available=best_tps,
    )


def too_large(what: str, needed: float, available: float) -> Infeasible:
    """Return the refusal for a case that is too large for an exact policy."""
    return Infeasible(
        constraint=Constraint.SIZE,
        reason=f"an exact result takes {what}, the limit is {available:g}; use local-search",
        needed=needed,
        available=available,
    )


def out_of_time(seconds: float) -> Infeasible:
    """Return the refusal if no placement that fits was found in time."""
    return Infeasible(
        constraint=Constraint.SIZE,
        reason=f"within {seconds:g} s, no placement was found nor proven impossible; allow more time",
        needed=1.0,
        available=0.0,
    )


def _memory_in_all(view: PlacementView) -> Infeasible | None:
    """Return the refusal if the tasks pinned to a machine, or all tasks, need more memory than there is."""
    slots, memory = view.slots, view.tasks.memory_mb
    room = np.minimum(slots.machine_memory_mb, np.add.reduceat(slots.memory_mb, slots.first[:-1]))
    pinned = view.pins >= 0
    on_machine = np.bincount(view.pins[pinned], memory[pinned], slots.machines)
    for machine in np.flatnonzero(on_machine > room * (1 + MEMORY_SLACK)):
        name = f"the tasks pinned to machine {view.cluster.machines[machine].name!r}"
        return _short_of_memory(name, float(on_machine[machine]), float(room[machine]))
    if memory.sum() > room.sum() * (1 + MEMORY_SLACK):
        return _short_of_memory("all tasks together", float(memory.sum()), float(room.sum()))
    return None


def _short_of_memory(who: str, needed: float, available: float) -> Infeasible:
    return Infeasible(
        constraint=Constraint.MEMORY,
        reason=f"{who} need {needed:g} MB and there are {available:g} MB; "
        "add memory or machines, or lower the components' memory_mb",
        needed=needed,
        available=available,
        proven=True,
    )
