"""The plant: an application that runs, as far as the control loop sees it.

Time is the plant's own: seconds since it began, real ones of a run, virtual ones of the twin. Only `wait` lets it pass.
"""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from penstock.model.cluster import Cluster
from penstock.model.plan import Plan, PlannedRoute
from penstock.model.status import Latency, Status
from penstock.model.topology import Application, Kind
from penstock.runtime.handle import Outcome

GOING = ("running", "recovering")  # phases of a run in which something can still be changed


class Reading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was seen of a plant from one reading to the next."""

    at: float  # its end, on the plant's clock
    seconds: float  # that it covers
    count: int = 0  # source tuples whose latency was seen
    mean_s: float | None = None  # their latency; None: there were none
    p99_s: float | None = None
    rates: dict[str, float] = {}  # tuples a second that each component processed; sources: gave
    tasks: dict[str, float] = {}  # the same of each task, over up to the last ten minutes; none: not known yet
    cpu: dict[str, float] = {}  # share of each machine's cores in use
    queue: int = 0  # tuples that wait, anywhere
    blocked: float = 0.0  # share of the time in which the most blocked source task could not give what was due
    epoch: int = 0  # changes when the plant has failed, recovered or lost a machine
    steady: bool = True  # it ran all the time, and nobody moved anything
    gone: tuple[str, ...] = ()  # machines that do not answer


def reading_of(
    status: Status,
    latency: Latency | None,
    at: float,
    seconds: float,
    moved: bool,
    tasks: Mapping[str, float] | None = None,
) -> Reading:
    """Return what a run's status says, with the latency of the tuples that ended in so many seconds before.

    tasks: tuples a second of each, where that is known.
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


class Ended(Exception):
    """The plant has ended, or is about to: nothing can be changed any more."""


class ControlTarget(Protocol):
    """An application that runs. Methods are called by one thread; a mistake raises `PenstockError`."""

    @property
    def application(self) -> Application:
        """What runs."""
        ...

    @property
    def cluster(self) -> Cluster:
        """What it runs on now."""
        ...

    @property
    def policy(self) -> str:
        """What decided where its tasks are."""
        ...

    def now(self) -> float:
        """Return the seconds since it began."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass; raise `Ended` where the plant ends meanwhile."""
        ...

    def placement(self) -> dict[str, str]:
        """Return the slot of every task, in the order of the task graph."""
        ...

    def routes(self) -> tuple[PlannedRoute, ...]:
        """Return the routes in force; none where the network is not routed or nobody has planned any."""
        ...

    def reading(self) -> Reading:
        """Return what was seen since the last reading."""
        ...

    def apply(self, plan: Plan) -> list[Outcome]:
        """Move the tasks that a plan puts elsewhere, and return when they run there; raise `Ended` if it has ended."""
        ...
