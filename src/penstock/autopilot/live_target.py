"""A run on Spark as a control target. Nothing here blocks the runtime: it uses the run's public operations."""

from time import monotonic

from penstock.autopilot.control_target import GOING, Reading, TargetEnded, TaskCounts, make_reading, processed_by
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan, PlannedRoute
from penstock.model.status import Status
from penstock.model.topology import Application
from penstock.runtime.handle import MovedTask
from penstock.runtime.run import Run


class LiveTarget:
    """A run, observed through its status."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._began = monotonic() - run.status().seconds
        self._read = self.now()
        self._placement = self.placement()
        self._counts = TaskCounts()
        self._counts.take(self._read, processed_by(run.status()))

    @property
    def application(self) -> Application:
        """The application."""
        return self._run.application

    @property
    def cluster(self) -> Cluster:
        """The cluster that it runs on now."""
        return self._run.cluster

    @property
    def policy(self) -> str:
        """The policy that placed its tasks."""
        return self._run.status().policy

    def now(self) -> float:
        """Return the seconds since its start."""
        return monotonic() - self._began

    def wait(self, seconds: float) -> None:
        """Wait."""
        self._run.wait(seconds)
        self._refuse_ended(self._run.status())

    def placement(self) -> dict[str, str]:
        """Return the slot of every task."""
        return dict(self._run.status().placement)

    def routes(self) -> tuple[PlannedRoute, ...]:
        """Return the routes in force."""
        return self._run.routes

    def reading(self) -> Reading:
        """Return the measurements since the last reading."""
        now = self.now()
        seconds, self._read = now - self._read, now
        status, latency = self._run.status(), self._run.latency(seconds)
        moved = status.placement != self._placement
        self._placement = dict(status.placement)
        tasks = self._counts.take(now, processed_by(status))
        return make_reading(status, latency, now, seconds, moved, tasks)

    def apply(self, plan: Plan) -> list[MovedTask]:
        """Move the tasks whose slots differ in a plan."""
        self._refuse_ended(self._run.status())
        moved = self._run.apply(plan)
        self._placement = self.placement()
        self._read = self.now()  # tuples that completed during the moves belong to no reading
        return moved

    @staticmethod
    def _refuse_ended(status: Status) -> None:
        if status.phase not in GOING:
            raise TargetEnded
