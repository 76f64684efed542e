"""The control target: a running application, as the control loop sees it.

Time is the target's own: seconds since its start, real for a run, virtual for the twin. Only `wait` advances it.

Tasks of a component do not all process the same number of tuples, because keys may be skewed. A task's share does not
depend on its slot, so counts continue across moves. The last ten minutes count, as in Li's weights of eqs. (2.2),
(2.3).
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from penstock.estimate.latency_loads import RECENT_S
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan, PlannedRoute
from penstock.model.status import Latency, Status
from penstock.model.topology import Application, Kind
from penstock.runtime.handle import MovedTask

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
    unreachable: tuple[str, ...] = ()  # machines that do not respond


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
        unreachable=tuple(machine.name for machine in status.machines if not machine.alive),
    )


class TargetEnded(Exception):
    """The target has ended, or is about to: changes are no longer possible."""


class ControlTarget(Protocol):
    """A running application. One thread calls its methods; invalid input raises `PenstockError`."""

    @property
    def application(self) -> Application:
        """The application."""

    @property
    def cluster(self) -> Cluster:
        """The cluster that it runs on now."""

    @property
    def policy(self) -> str:
        """The policy that placed its tasks."""

    def now(self) -> float:
        """Return the seconds since its start."""

    def wait(self, seconds: float) -> None:
        """Advance time; raises `TargetEnded` if the target ends."""

    def placement(self) -> dict[str, str]:
        """Return the slot of every task, in the order of the task graph."""

    def routes(self) -> tuple[PlannedRoute, ...]:
        """Return the routes in force; empty if the network is not routed or no routes were planned."""

    def reading(self) -> Reading:
        """Return the measurements since the last reading."""

    def apply(self, plan: Plan) -> list[MovedTask]:
        """Move the tasks whose slots differ in a plan, and return when they run there; raises `TargetEnded`."""


class _Count(NamedTuple):
    at: float  # on the target's clock
    processed: dict[str, float]  # by task, since its start


class TaskCounts:
    """What tasks had processed at each of the last readings."""

    def __init__(self) -> None:
        self._taken: deque[_Count] = deque()

    def take(self, at: float, processed: Mapping[str, float]) -> dict[str, float]:
        """Record what tasks have processed; return tuples per second of each, over up to the last ten minutes.

        Returns nothing if there is no earlier count. Time in which the target stood still counts for all tasks.
        """
        if self._taken and not self._is_continued(processed):
            self._taken.clear()
        self._taken.append(_Count(at, dict(processed)))
        while self._taken[0].at < at - RECENT_S and len(self._taken) > 2:
            self._taken.popleft()
        first = self._taken[0]
        seconds = at - first.at
        if seconds <= 0:
            return {}
        return {task: _rounded((count - first.processed[task]) / seconds) for task, count in processed.items()}

    def _is_continued(self, processed: Mapping[str, float]) -> bool:
        """Whether these are counts of the same tasks, none of them reset."""
        last = self._taken[-1].processed
        return last.keys() == processed.keys() and all(processed[task] >= count for task, count in last.items())


def processed_by(status: Status) -> dict[str, float]:
    """Return what each task of a run has processed, by name; empty if its status does not contain that."""
    return {f"{one.name}[{task}]": count for one in status.components for task, count in enumerate(one.processed)}


def _rounded(rate: float) -> float:
    """Round a rate to a useful precision, because the ledger has all rates of every reading."""
    return float(f"{rate:.4g}")
