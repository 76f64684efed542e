"""What a policy is: a pure function from a read-only view to a small value, one verb a kind.

A placement policy is any object with `place(view, rng)`. Its parameters are the fields of a frozen dataclass. It
remembers nothing between calls, takes all randomness from `rng`, leaves the view unchanged, and answers a case that
it cannot place with `Infeasible`; exceptions are for parameters that make no sense and for views that lack what it
needs. It does not check its own result: `checks` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.model.instance import Instance
from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Floats

Evaluate = Callable[[NDArray[np.int32]], Floats]
"""From placements [B, T] (a slot for every task) to scores [B]: higher is better, -inf is not allowed at all."""


@dataclass(frozen=True)
class PlacementView(Instance):
    """What a placement policy may look at.

    `objective` and `evaluate` say what is wanted: the objective's name, and a function that scores placements. Policies
    that follow a rule of their own ignore both.
    """

    objective: str = "throughput"
    evaluate: Evaluate | None = None


@runtime_checkable
class PlacementPolicy(Protocol):
    """Decides in which slot every task runs."""

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return a slot for every task, with routes where the network is routed, or why there is none."""
        ...


@runtime_checkable
class BoundingPolicy(PlacementPolicy, Protocol):
    """A placement policy that can say how far its answers may be from the best, where there is time for it."""

    def bounded(self, view: PlacementView, found: Placement, seconds: float) -> Placement:
        """Return a placement of its own with its gap and a note of it, by what so many seconds show."""
        ...


class Rule(NamedTuple):
    """A tuple policy as kernels know it: which decision it is, and its parameters."""

    kind: int
    settings: Floats  # [SETTINGS]


SETTINGS = 6


def rule(kind: int, *settings: float) -> Rule:
    """Return a rule; settings that are not given are 0."""
    return Rule(kind, np.array([*settings, *[0.0] * (SETTINGS - len(settings))]))


@runtime_checkable
class RoutingPolicy(Protocol):
    """Decides how many tuples of a task's out-queues go to each downstream task; `tuples.routing.route` does so."""

    __slots__ = ()

    keyed: ClassVar[bool]
    """Whether a tuple's key has a say: then `tuples.routing.route_keyed` decides."""

    looks: ClassVar[bool] = False
    """Whether it wants to know how loaded the tasks are that it chooses from."""

    compares: ClassVar[bool] = False
    """Whether it can choose between the two tasks of a key."""

    holds: ClassVar[bool] = False
    """Whether it may keep tuples waiting though there is room for them."""

    @property
    def rule(self) -> Rule:
        """The decision, one of those in `tuples.routing`."""
        ...

    @property
    def price_of_cost(self) -> float | None:
        """What a unit of cost adds to the price of a tuple, where tasks are to say their prices; None: they need not.

        Prices add up along streams, so all that ask for them must have the same.
        """
        return None

    @property
    def looks_onward(self) -> bool:
        """Whether it wants to know the least cost of all that follows from a tuple at each task."""
        return False


@runtime_checkable
class SendingPolicy(Protocol):
    """Decides how many tuples each of the out-queues that share a link may send; `tuples.sending.send` does so."""

    @property
    def rule(self) -> Rule:
        """The decision, one of those in `tuples.sending`."""
        ...
