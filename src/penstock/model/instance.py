"""An application on a cluster in array form, the input of policies and estimators."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from penstock.model.cluster import Cluster, check_pins
from penstock.model.kernel import kernel
from penstock.model.slotgraph import Links, Slots, expand_links, expand_slots
from penstock.model.taskgraph import Bools, Edges, Floats, Ints, Tasks, expand_edges, expand_tasks
from penstock.model.topology import Topology


@dataclass(frozen=True)
class Instance:
    """One application and one cluster; arrays are created on first use and must not be modified."""

    topology: Topology
    cluster: Cluster

    def __post_init__(self) -> None:
        check_pins(self.topology, self.cluster)

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks of the application, numbered in topological order."""
        return expand_tasks(self.topology)

    @cached_property
    def edges(self) -> Edges:
        """Every edge between two of its tasks; their number is quadratic in the parallelism."""
        return expand_edges(self.tasks)

    @cached_property
    def slots(self) -> Slots:
        """The slots of the cluster."""
        return expand_slots(self.cluster, self.tasks.resources)

    @cached_property
    def links(self) -> Links:
        """The links of the cluster; none in a full mesh."""
        return expand_links(self.cluster)

    @cached_property
    def pins(self) -> Ints:
        """The machine to which each task is pinned, -1 if it is not: [T]."""
        where = self.cluster.machine_index
        parts = [self.topology.components[position] for position in self.tasks.position]
        pins = [-1 if pin is None else where[pin] for part in parts for pin in part.pins]
        for task in np.flatnonzero(self.tasks.gain == 0.0).tolist():
            label = parts[self.tasks.component[task]].on
            if pins[task] < 0 and label is not None:  # no tuples, so no needs that require the label
                pins[task] = next(m for m, machine in enumerate(self.cluster.machines) if label in machine.labels)
        return np.array(pins, dtype=np.int32)

    @cached_property
    def conflicts(self) -> Bools | None:
        """Which components may not share a machine; on the diagonal, tasks of the same component: [C, C]."""
        parts = [self.topology.components[position] for position in self.tasks.position]
        if not any(part.anti_affinity for part in parts):
            return None
        rank = {part.name: number for number, part in enumerate(parts)}
        found = np.zeros((len(parts), len(parts)), dtype=np.bool_)
        for number, part in enumerate(parts):
            found[number, [rank[name] for name in part.anti_affinity]] = True
        return found | found.T

    def keeps_apart(self, placed: NDArray[np.int32]) -> Bools:
        """Return for each of the placements `placed` [B, T] whether it satisfies every anti-affinity."""
        if self.conflicts is None:
            return np.ones(len(placed), dtype=np.bool_)
        return keeps_apart(self.conflicts, self.tasks.component, self.slots.machine, self.slots.machines, placed)

    def machines_with_resources(self, task: int) -> Bools:
        """Return which machines have every resource beside cpu that a task needs. [M]"""
        needs = self.tasks.needs[task] * self.tasks.gain[task]
        found: Bools = ((needs == 0) | (self.slots.capacity > 0)).all(axis=1)
        return found

    @cached_property
    def work(self) -> Floats:
        """The cpu that each task uses per source tuple, in core-seconds at speed 1: [T]."""
        return self.tasks.cpu * self.tasks.gain


@kernel
def keeps_apart(
    conflicts: Bools, component: Ints, slot_machine: Ints, machines: int, placed: NDArray[np.int32]
) -> Bools:
    """Return for each of the placements `placed` [B, T] whether no two conflicting tasks share a machine."""
    kept = np.ones(len(placed), dtype=np.bool_)
    on = np.zeros((len(conflicts), machines), dtype=np.bool_)
    for row in range(len(placed)):
        on[:] = False
        for task in range(len(component)):
            own, machine = component[task], slot_machine[placed[row, task]]
            for other in range(len(conflicts)):
                if conflicts[own, other] and on[other, machine]:
                    kept[row] = False
            on[own, machine] = True
    return kept
