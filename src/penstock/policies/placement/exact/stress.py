"""Time that the busiest element works per source tuple: the inverse of the bottleneck rate (SPARCLE, eq. (1a)).

The exact policy minimises this `stress`, which, unlike the rate, is linear in the placement.
"""

from collections.abc import Mapping

import numpy as np

from penstock.model.placement import Hop
from penstock.model.routes import BITS, card_bits, hop_bits
from penstock.model.taskgraph import Floats, Ints, sum_by
from penstock.policies.api import PlacementView
from penstock.policies.placement.affinity import task_traffic


def stress(view: PlacementView, placed: Ints, routes: Mapping[Hop, tuple[int, ...]] | None) -> float:
    """Return the seconds per source tuple of the busiest element; without routes, links do not count."""
    tasks, slots = view.tasks, view.slots
    machine = slots.machine[placed]
    found = max(
        _worst(sum_by(placed, view.work, slots.number), slots.cpu),
        _worst(sum_by(machine, view.work, slots.machines), slots.machine_cpu),
    )
    for column in range(len(tasks.resources)):
        load = sum_by(machine, tasks.needs[:, column] * tasks.gain, slots.machines)
        found = max(found, _worst(load, slots.capacity[:, column]))
    if view.cluster.routed:
        return found if routes is None else max(found, _link_stress(view, placed, routes))
    return max(found, _card_stress(view, placed)) if np.isfinite(slots.machine_network).any() else found


def worst_stress(view: PlacementView) -> float:
    """Return an upper bound of finite stress: everything on the weakest element of each kind."""
    tasks, slots = view.tasks, view.slots
    found = view.work.sum() / slots.cpu.min()
    for column, need in enumerate((tasks.needs * tasks.gain[:, None]).sum(axis=0)):
        found = max(found, need / slots.capacity[slots.capacity[:, column] > 0, column].min(initial=np.inf))
    bits = task_traffic(view).sum() / 2 * BITS  # each tuple is sent once and received once
    bandwidth = view.links.bandwidth[view.links.bandwidth > 0] if view.cluster.routed else slots.machine_network
    return float(max(found, bits / bandwidth.min(initial=np.inf)))


def least_stress(view: PlacementView) -> float:
    """Return a lower bound of the stress: all work spread evenly, or the worst task in its best place."""
    slots, tasks = view.slots, view.tasks
    slot_cpu = slots.cpu[slots.first[:-1]]
    cpu = np.minimum(slots.machine_cpu, slot_cpu * np.diff(slots.first))  # maximum used by a machine's slots
    bound = view.work.sum() / cpu.sum()
    pinned = view.pins >= 0
    bound = max(bound, (np.bincount(view.pins[pinned], view.work[pinned], slots.machines) / cpu).max())
    needs = tasks.needs * tasks.gain[:, None]
    whole = slots.capacity.sum(axis=0)
    for column in np.flatnonzero(whole > 0).tolist():
        bound = max(bound, needs[:, column].sum() / whole[column])
    apart = np.stack([tasks.component, tasks.gain, view.pins])
    _, kinds = np.unique(apart, axis=1, return_index=True)  # others are equivalent
    alone = view.work[kinds, None] / slot_cpu  # [kinds, M]
    for column in range(needs.shape[1]):
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = np.fmax(alone, needs[kinds, column, None] / slots.capacity[:, column])
    elsewhere = pinned[kinds, None] & (view.pins[kinds, None] != np.arange(slots.machines))
    alone = np.where(elsewhere, np.inf, alone)
    return float(max(bound, alone.min(axis=1).max()))


def _link_stress(view: PlacementView, placed: Ints, routes: Mapping[Hop, tuple[int, ...]]) -> float:
    load = np.zeros(len(view.links.bandwidth))
    for hop, bits in hop_bits(view.tasks, view.slots, placed).items():
        load[list(routes[hop])] += bits
    return _worst(load, view.links.bandwidth)


def _card_stress(view: PlacementView, placed: Ints) -> float:
    return _worst(np.stack(card_bits(view.tasks, view.slots, placed)), view.slots.machine_network)


def _worst(load: Floats, capacity: Floats) -> float:
    used = load > 0
    with np.errstate(divide="ignore"):
        return float((load[used] / capacity[used]).max(initial=0.0))
