"""What a policy is: a pure function from a read-only view to a small value, one verb a kind.

A placement policy is any object with `place(view, rng)`. Its parameters are the fields of a frozen dataclass. It
remembers nothing between calls, takes all randomness from `rng`, leaves the view unchanged, and answers a case that
it cannot place with `Infeasible`, never with an exception. It does not check its own result: `checks` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.model.cluster import Cluster, check_pins
from penstock.model.placement import Infeasible, Placement
from penstock.model.slotgraph import Links, Slots, expand_links, expand_slots
from penstock.model.taskgraph import Floats, Ints, Tasks, expand_tasks
from penstock.model.topology import Topology

Evaluate = Callable[[NDArray[np.int32]], Floats]
"""From placements [B, T] (a slot for every task) to scores [B]: higher is better, -inf is not allowed at all."""


@dataclass(frozen=True)
class PlacementView:
    """What a placement policy may look at.

    `objective` and `evaluate` say what is wanted: the objective's name, and a function that scores placements. Policies
    that follow a rule of their own ignore both. Arrays are made when first wanted; nobody may write to them.
    """

    topology: Topology
    cluster: Cluster
    objective: str = "throughput"
    evaluate: Evaluate | None = None

    def __post_init__(self) -> None:
        check_pins(self.topology, self.cluster)

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks of the application, numbered in topological order."""
        return expand_tasks(self.topology)

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

    @cached_property
    def work(self) -> Floats:
        """The cpu that each task takes for a source tuple, in core-seconds at speed 1: [T]."""
        return self.tasks.cpu * self.tasks.gain


@runtime_checkable
class PlacementPolicy(Protocol):
    """Decides in which slot every task runs."""

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return a slot for every task, with routes where the network is routed, or why there is none."""
        ...
