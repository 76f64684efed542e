"""An application on a cluster, in array form: what policies look at and estimators compute with."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.model.cluster import Cluster, check_pins
from penstock.model.slotgraph import Links, Slots, expand_links, expand_slots
from penstock.model.taskgraph import Bools, Edges, Floats, Ints, Tasks, expand_edges, expand_tasks
from penstock.model.topology import Topology


@dataclass(frozen=True)
class Instance:
    """One application and one cluster; arrays are made when first wanted, and nobody may write to them."""

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
        """Every edge between two of its tasks: many."""
        return expand_edges(self.tasks)

    @cached_property
    def slots(self) -> Slots:
        """The slots of the cluster."""
        return expand_slots(self.cluster, self.tasks.resources)

    @cached_property
    def links(self) -> Links:
        """The links of the cluster; none on a full mesh."""
        return expand_links(self.cluster)

    @cached_property
    def pins(self) -> Ints:
        """The machine to which each task is pinned, -1 where it is free: [T]."""
        where = self.cluster.machine_index
        pins = [self.topology.components[position].pinned for position in self.tasks.position]
        machine = np.array([-1 if pin is None else where[pin] for pin in pins], dtype=np.int32)
        return machine[self.tasks.component]

    def machines_with_resources(self, task: int) -> Bools:
        """Return which machines have some of every resource beside cpu that a task needs. [M]"""
        needs = self.tasks.needs[task] * self.tasks.gain[task]
        found: Bools = ((needs == 0) | (self.slots.capacity > 0)).all(axis=1)
        return found

    @cached_property
    def work(self) -> Floats:
        """The cpu that each task takes for a source tuple, in core-seconds at speed 1: [T]."""
        return self.tasks.cpu * self.tasks.gain
