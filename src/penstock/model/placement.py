"""What a placement policy decides: a slot for every task, a route for every stream that crosses a routed network.

A policy that cannot place says so with `Infeasible`, a value like any other: which constraint binds, how much is
needed, how much there is.
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

    `gap` is set by policies that prove how good the placement is: how far its objective may at most be from the
    best, relative to the best; 0 when it is known to be the best.
    """

    slots: tuple[int, ...]
    routes: Mapping[Hop, tuple[int, ...]] = field(default_factory=dict)
    gap: float | None = None
    note: str = ""


class Constraint(StrEnum):
    """What can stand in the way of a placement."""

    MEMORY = "memory"
    SLOTS = "slots"
    PIN = "pin"
    ANTI_AFFINITY = "anti-affinity"
    CPU = "cpu"
    RESOURCE = "resource"
    ROUTE = "route"
    SIZE = "size"


@dataclass(frozen=True)
class Infeasible:
    """No placement, and why.

    `needed` and `available` are in the constraint's unit (MB, slots, core-seconds a second, …). `task` is the task that
    found no room after the tasks in `placed` had theirs, where the policy places one task at a time.
    """

    constraint: Constraint
    reason: str  # one line: which element, how much it needs, how much there is, what would help
    needed: float
    available: float
    task: int | None = None
    placed: Mapping[int, int] = field(default_factory=dict)  # task -> slot, when the policy gave up
    proven: bool = False  # whether no placement exists; otherwise another policy may find one

    def __post_init__(self) -> None:
        object.__setattr__(self, "constraint", member("constraint", Constraint, self.constraint))
