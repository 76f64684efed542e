"""The control target: a running application, as the control loop sees it.

Time is the target's own: seconds since its start, real for a run, virtual for the twin. Only `wait` advances it.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from penstock.model.cluster import Cluster
from penstock.model.plan import Plan, PlannedRoute
from penstock.model.status import Latency, Status
from penstock.model.topology import Application, Kind
from penstock.runtime.handle import Outcome

GOING = ("running", "recovering")  # phases of a run in which changes are still possible


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Measurements of a target between two readings."""

    at: float  # its end, on the target's clock
    seconds: float  # covered
    count: int = 0  # source tuples with a measured latency
    mean_s: float | None = None  # their mean latency; None: there were none
    p99_s: float | None = None
    rates: dict[str, float] = {}  # tuples per second that each component processed; of sources, emitted
    tasks: dict[str, float] = {}  # the same by task, over up to the last ten minutes; empty: unknown yet
    cpu: dict[str, float] = {}  # used share of each machine's cores
    queue: int = 0  # waiting tuples, in all queues
    blocked: float = 0.0  # maximum over source tasks of the share of time in which they were blocked
    epoch: int = 0  # changes when the target has failed, recovered or lost a machine
    steady: bool = True  # it ran all the time, and no task moved
    gone: tuple[str, ...] = ()  # machines that do not respond


def make_reading(
    status: Status,
    latency: Latency | None,
    at: float,
    seconds: float,
    moved: bool,
    tasks: Mapping[str, float] | None = None,
) -> Reading:
    """Return a reading from a run's status, with the latency of the tuples that completed in the last `seconds`.

    tasks: tuples per second of each, if known.
    """
    sources = [component for component in status.components if component.kind == Kind.SOURCE.value]
    return Reading(
        at=at,
        seconds=seconds,
        count=0 if latency is None else latency.count,
        mean_s=None if latency is None else latency.mean_ms / 1e3,
        p99_s=None if latency is None else latency.p99_ms / 1e3,
        rates={component.name: component.rate_tps for component in status.components},
        tasks=dict(tasks or {}),
        cpu={machine.name: machine.cpu for machine in status.machines},
        queue=sum(component.queue + component.waiting_out for component in status.components),
        blocked=max((source.blocked for source in sources), default=0.0),
        epoch=status.epoch,
        steady=status.phase == "running" and not moved,
        gone=tuple(machine.name for machine in status.machines if not machine.alive),
    )


class TargetEnded(Exception):
    """The target has ended, or is about to: changes are no longer possible."""


class ControlTarget(Protocol):
    """A running application. One thread calls its methods; invalid input raises `PenstockError`."""

    @property
    def application(self) -> Application:
        """The application."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The cluster that it runs on now."""
        ...

    @property
    def policy(self) -> str:
        """The policy that placed its tasks."""
        ...

    def now(self) -> float:
        """Return the seconds since its start."""
        ...

    def wait(self, seconds: float) -> None:
        """Advance time; raises `TargetEnded` if the target ends."""
        ...

    def placement(self) -> dict[str, str]:
        """Return the slot of every task, in the order of the task graph."""
        ...

    def routes(self) -> tuple[PlannedRoute, ...]:
        """Return the routes in force; empty if the network is not routed or no routes were planned."""
        ...

    def reading(self) -> Reading:
        """Return the measurements since the last reading."""
        ...

    def apply(self, plan: Plan) -> list[Outcome]:
        """Move the tasks whose slots differ in a plan, and return when they run there; raises `TargetEnded`."""
        ...
