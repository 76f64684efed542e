"""Protocols of policies: a policy is a pure function from a read-only view to a small value, one verb per kind.

A placement policy is any object with `place(view, rng)`. Its parameters are the fields of a frozen dataclass. It has no
state between calls, takes all randomness from `rng`, leaves the view unchanged, and returns `Infeasible` if it cannot
place the tasks; exceptions are for invalid parameters and for views that lack something it needs. It does not check its
own result: `checks` does.
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
    """Input of a placement policy.

    `objective` is the objective's name, `evaluate` a function that scores placements. Rule-based policies ignore both.
    """

    objective: str = "throughput"
    evaluate: Evaluate | None = None


@runtime_checkable
class PlacementPolicy(Protocol):
    """Decides in which slot every task runs."""

    def place(self, view: PlacementView, rng: np.random.Generator) -> Placement | Infeasible:
        """Return a slot for every task, with routes if the network is routed, or why there is none."""
        ...


@runtime_checkable
class BoundingPolicy(PlacementPolicy, Protocol):
    """A placement policy that can bound how far its results are from the optimum, given time."""

    def bounded(self, view: PlacementView, found: Placement, seconds: float) -> Placement:
        """Return a placement of its own with its gap and a note, after searching for a bound for some seconds."""
        ...


class Rule(NamedTuple):
    """A tuple policy in the form that kernels use: the number of its decision, and its parameters."""

    kind: int
    settings: Floats  # [SETTINGS]


SETTINGS = 6


def rule(kind: int, *settings: float) -> Rule:
    """Return a rule; settings that are missing are 0."""
    return Rule(kind, np.array([*settings, *[0.0] * (SETTINGS - len(settings))]))


@runtime_checkable
class RoutingPolicy(Protocol):
    """Decides how many tuples of a task's out-queues go to each downstream task; `tuples.routing.route` does so."""

    __slots__ = ()

    keyed: ClassVar[bool]
    """Whether tuples' keys matter: then `tuples.routing.choose_keyed` decides."""

    looks: ClassVar[bool] = False
    """Whether it uses the load of the tasks that it selects from."""

    compares: ClassVar[bool] = False
    """Whether it can select one of the two tasks of a key."""

    holds: ClassVar[bool] = False
    """Whether it may hold tuples back although there is room for them."""

    @property
    def rule(self) -> Rule:
        """The decision, one of those in `tuples.routing`."""
        ...

    @property
    def price_of_cost(self) -> float | None:
        """Weight of cost in the price of a tuple if tasks report prices; None: they need not.

        Prices add up along streams, so all policies that use them need the same weight.
        """
        return None

    @property
    def looks_onward(self) -> bool:
        """Whether it uses the minimum cost of all that follows from a tuple at each task."""
        return False


@runtime_checkable
class SendingPolicy(Protocol):
    """Decides how many tuples each of the out-queues that share a link may send; `tuples.sending.send` does so."""

    @property
    def rule(self) -> Rule:
        """The decision, one of those in `tuples.sending`."""
        ...
