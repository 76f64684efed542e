"""The result of a placement policy: a slot for every task, and a route for every stream that crosses the network.

A policy that finds no placement returns `Infeasible`: the constraint, the required amount, the available amount.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from penstock.model.errors import member

MEMORY_SLACK = 1e-9  # relative; sums of equal parts may exceed the whole by rounding


class Hop(NamedTuple):
    """The tuples of one stream that go from one machine to another."""

    stream: int  # position in the topology's streams
    source: int  # machine
    target: int  # machine


@dataclass(frozen=True)
class Placement:
    """A slot for every task, in task-graph order, and the links of every hop.

    `gap` is set by policies that bound the quality of a placement: the maximum distance of its objective from the
    optimum, relative to the optimum; 0 if it is proven to be optimal.
    """

    slots: tuple[int, ...]
    routes: Mapping[Hop, tuple[int, ...]] = field(default_factory=dict)
    gap: float | None = None
    note: str = ""


class Constraint(StrEnum):
    """The constraints that can make a placement infeasible."""

    MEMORY = "memory"
    SLOTS = "slots"
    ANTI_AFFINITY = "anti-affinity"
    CPU = "cpu"
    RESOURCE = "resource"
    ROUTE = "route"
    SIZE = "size"


@dataclass(frozen=True)
class Infeasible:
    """No placement exists or was found, and why.

    `needed` and `available` are in the constraint's unit (MB, slots, core-seconds per second, …). `task` is the task
    that did not fit after the tasks in `placed` were placed, if the policy places one task at a time.
    """

    constraint: Constraint
    reason: str  # one line: the element, the required and the available amount, a remedy
    needed: float
    available: float
    task: int | None = None
    placed: Mapping[int, int] = field(default_factory=dict)  # task -> slot, when the policy gave up
    proven: bool = False  # whether no placement exists; otherwise another policy may find one

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraint", member("constraint", Constraint, self.constraint))
