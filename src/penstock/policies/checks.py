"""Check the placements of policies, so that policies need not do so themselves."""

from collections.abc import Sequence

import numpy as np

from penstock.model.placement import MEMORY_SLACK, Placement
from penstock.model.routes import hop_bits
from penstock.model.taskgraph import Ints, task_names
from penstock.policies.api import PlacementView


def violations(view: PlacementView, placement: Placement) -> list[str]:
    """Return every rule that a placement breaks, one sentence each."""
    tasks, slots = view.tasks, view.slots
    if len(placement.slots) != tasks.number:
        return [f"{len(placement.slots)} slots for {tasks.number} tasks"]
    placed = np.asarray(placement.slots, dtype=np.int64)
    names = task_names(view.topology)
    outside = np.flatnonzero((placed < 0) | (placed >= slots.number))
    if len(outside):
        return [f"task {names[t]} is in slot {placed[t]}, there are {slots.number}" for t in outside]
    machine = slots.machine[placed]
    called = [m.name for m in view.cluster.machines]
    found = [
        f"task {names[t]} is on {called[machine[t]]!r}, pinned to {called[view.pins[t]]!r}"
        for t in np.flatnonzero((view.pins >= 0) & (view.pins != machine))
    ]
    if view.conflicts is not None:
        found += _together(view, machine, names, called)
    if tasks.resources:
        found += [
            f"task {names[t]} is on {called[machine[t]]!r}, which lacks a resource or a label that it needs"
            for t in range(tasks.number)
            if not view.machines_with_resources(t)[machine[t]]
        ]
    for label, where, limit, known in (
        ("slot", placed, slots.memory_mb, list(view.cluster.slot_names)),
        ("machine", machine, slots.machine_memory_mb, called),
    ):
        used = np.bincount(where, tasks.memory_mb, len(limit))
        over = np.flatnonzero(used > limit * (1 + MEMORY_SLACK))
        found += [f"{label} {known[i]!r} holds {used[i]:g} MB of tasks and has {limit[i]:g} MB" for i in over]
    return found + (_broken_routes(view, placement) if view.cluster.routed else [])


def _together(view: PlacementView, machine: Ints, names: Sequence[str], called: Sequence[str]) -> list[str]:
    """Return the tasks that share a machine despite their anti-affinity, one sentence each."""
    assert view.conflicts is not None, "checked by the caller"
    component, found = view.tasks.component, []
    for number in np.unique(machine).tolist():
        there = np.flatnonzero(machine == number)
        rivals = view.conflicts[component[there][:, None], component[there]]
        found += [
            f"tasks {names[there[a]]} and {names[there[b]]} are both on {called[number]!r}, against their anti_affinity"
            for a, b in np.argwhere(np.triu(rivals, 1)).tolist()
        ]
    return found


def _broken_routes(view: PlacementView, placement: Placement) -> list[str]:
    found = []
    cluster = view.cluster
    for hop in hop_bits(view.tasks, view.slots, np.asarray(placement.slots, dtype=np.int32)):
        label = f"{view.topology.streams[hop.stream].label} from {hop.source} to {hop.target}"
        node = hop.source
        for number in placement.routes.get(hop, ()):
            link = cluster.links[number]
            ends = cluster.node_index[link.source], cluster.node_index[link.target]
            if node == ends[0]:
                node = ends[1]
            elif node == ends[1] and not link.directed:
                node = ends[0]
            else:
                found.append(f"the route of {label} takes link {link.label} from another node")
                break
        else:
            if node != hop.target:
                found.append(f"the route of {label} ends at node {node}")
    return found
