"""Protocols of policies: a policy is a pure function from a read-only view to a small value, one verb per kind.

A placement policy is any object with `place(view, rng)`. Its parameters are the fields of a frozen dataclass. It has no
state between calls, takes all randomness from `rng`, leaves the view unchanged, and returns `Infeasible` if it cannot
place the tasks; exceptions are for invalid parameters and for views that lack something it needs. It does not check its
own result: `checks` does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.model.instance import Instance
from penstock.model.parallelism import Bounds, Parallelism, bounds, parallelism_of
from penstock.model.placement import Infeasible, Placement
from penstock.model.slotted import Longs
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


class TaskLoads(NamedTuple):
    """Measurements of all tasks over an interval; T tasks in task-graph order. Of a source, tuples are emitted ones."""

    arrival_tps: Floats  # [T] tuples that arrived per second
    processed_tps: Floats  # [T] tuples processed per second
    true_tps: Floats  # [T] true processing rate: tuples per second of the time in service; NaN if there were none
    busy: Floats  # [T] utilisation: share of the time in service
    blocked: Floats  # [T] back-pressure: share of the time blocked by a full out-queue
    queue: Floats  # [T] waiting tuples, mean; of a source, due ones that it has not emitted


class Sized(NamedTuple):
    """A parallelism with its placement, and its predicted performance."""

    parallelism: Parallelism
    placement: Placement  # of the application with this parallelism
    throughput_tps: float
    machines: int


@dataclass(frozen=True)
class ScalingView(Instance):
    """Input of a scaling policy: the application with its present parallelism, and the loads of the last interval.

    Intervals have equal lengths; a policy is asked at the end of each. `predicted_tps` and `size` are answers of an
    estimator, which rule-based policies ignore.
    """

    loads: TaskLoads
    selectivity: Mapping[str, float]  # by stream, `source->target`: tuples emitted per tuple processed by its source
    target_tps: float  # source tuples per second of all sources together that the tasks should carry
    interval_s: float
    backlog: int = 0  # source tuples that are due and not emitted, at the end of the interval
    arrived: Longs = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # [N] by interval, the last one last
    steady: float = inf  # intervals since the last rescale
    machines: int = 0  # in use
    most: int | None = None  # maximum number of tasks of any component; None: no limit but their own
    predicted_tps: float | None = None  # rate that the present tasks sustain where they are; None: unknown
    size: Callable[[float], Sized | Infeasible] | None = None  # from a rate to the least machines and tasks for it

    @property
    def parallelism(self) -> dict[str, int]:
        """The present number of tasks of each component, upstream before downstream."""
        return parallelism_of(self.topology)

    @cached_property
    def bounds(self) -> dict[str, Bounds]:
        """The minimum and maximum number of tasks of each component."""
        return bounds(self.topology, self.cluster, self.most)


@dataclass(frozen=True)
class Resize:
    """The result of a scaling policy: the number of tasks of every component.

    `placement` is set by policies that place the tasks, too; otherwise a placement policy has to. `note` is the reason.
    """

    parallelism: Parallelism
    placement: Placement | None = None
    note: str = ""


@runtime_checkable
class ScalingPolicy(Protocol):
    """Decides how many tasks each component has."""

    def resize(self, view: ScalingView, rng: np.random.Generator) -> Resize:
        """Return the number of tasks of every component, within `view.bounds`."""
        ...
