"""A run of another process as a control target over its control socket, and the exploration of one."""

from pathlib import Path
from time import monotonic, sleep

from penstock.autopilot.control_target import GOING, Reading, TargetEnded, make_reading
from penstock.exploration.guarded_exploration import Exploration, Limits, explore_live
from penstock.exploration.index import Index, Trials
from penstock.exploration.spans import Span, applied_at, cut_span, records_of
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.plan import Plan, PlannedRoute
from penstock.model.status import Status
from penstock.model.taskgraph import task_names
from penstock.model.telemetry import write_records
from penstock.model.topology import Application
from penstock.runtime.control_socket import ApplyPlan, GetStatus, ask
from penstock.runtime.handle import MovedTask
from penstock.runtime.storage.run_folder import NoRun, RunInfo
from penstock.startup.executor_discovery import discover
from penstock.startup.resume import emulated_cluster

APPLY_S = 120.0  # maximum time for a plan's moves
FLUSH_S = 4.0  # after which workers have written their records


class RemoteTarget:
    """A run of another process. Its latency covers the last five seconds, so readings should not be closer."""

    def __init__(self, info: RunInfo, application: Application, cluster: Cluster) -> None:
        self._info = info
        self.application = application
        self.cluster = cluster
        if (phase := ask(info, GetStatus()).phase) not in GOING:
            raise NoRun(f"run: run {info.run} is about to end ({phase}); name one that runs")
        self._placement = self.placement()
        self._read = self.now()

    @property
    def policy(self) -> str:
        """The policy that placed its tasks."""
        return self._status().policy

    def now(self) -> float:
        """Return the time since an arbitrary origin."""
        return monotonic()

    def wait(self, seconds: float) -> None:
        """Wait."""
        sleep(seconds)
        self._status()

    def refuse_piloted(self) -> None:
        """Raise if an autopilot would move tasks of the run; one that has stopped does not."""
        piloted = self._status().autopilot
        if piloted and not piloted.startswith("stopped"):
            problem = f"the autopilot of run {self._info.run} is on ({piloted}) and would move tasks"
            raise InvalidInput("run", f"{problem}; penstock autopilot off {self._info.called}")

    def routes(self) -> tuple[PlannedRoute, ...]:
        """Return no routes: a run's status does not contain them."""
        return ()

    def placement(self) -> dict[str, str]:
        """Return the slot of every task, in the order of the task graph."""
        found = self._status().placement
        names = task_names(self.application)
        if set(found) != set(names):
            problem = f"run {self._info.run} has other tasks than {self.application.name!r}; use its own application"
            raise InvalidInput("application", problem)
        return {name: found[name] for name in names}

    def reading(self) -> Reading:
        """Return the latest measurements."""
        status, now = self._status(), self.now()
        seconds, self._read = now - self._read, now
        moved = status.placement != self._placement
        self._placement = dict(status.placement)
        return make_reading(status, status.latency, now, seconds, moved)

    def apply(self, plan: Plan) -> list[MovedTask]:
        """Move the tasks whose slots differ in a plan."""
        self._status()
        return ask(self._info, ApplyPlan(plan), APPLY_S)

    def _status(self) -> Status:
        try:
            status = ask(self._info, GetStatus())
        except NoRun:
            raise TargetEnded from None
        if status.phase not in GOING:
            raise TargetEnded
        return status


def explore_run(
    info: RunInfo,
    target: RemoteTarget,
    output: Path,
    trials: Trials,
    limits: Limits,
    *,
    application: Application | None = None,
    flush_s: float = FLUSH_S,
) -> tuple[Index, Exploration]:
    """Try random placements on a run; write its telemetry for each that was held to the end, and the index.

    Data is written however the exploration ends, except for placements that are missing in the telemetry.
    application: with measured costs, if the run's own are unknown.
    """
    target.refuse_piloted()
    done = explore_live(target, trials, limits, application)
    if done.runs:
        sleep(flush_s)
        _write_spans(info, output, done, trials)
    names = target.application.name, target.cluster.name
    return trials.index(*names, live=True, runs=done.runs, stopped=done.stopped, left=done.left), done


def _write_spans(info: RunInfo, output: Path, done: Exploration, trials: Trials) -> None:
    """Cut the run's telemetry at the times when plans were applied; a plan's policy name is the name of its span."""
    applied = applied_at(info.telemetry_path, info.run)
    for name in list(done.runs):
        if name not in applied:
            problem = f"{info.telemetry_path}: no record of when {name} was applied; does it lose records?"
            done.stopped = "; ".join(filter(None, (done.stopped, problem)))
            del done.runs[name]
            continue
        start = applied[name] + trials.settle_s
        span = Span(name, start, start + trials.hold_s)
        write_records(cut_span(records_of(info.telemetry_path, info.run, span), span), output, name)


def machines_of(info: RunInfo) -> Cluster:
    """Return the cluster that a run is on; raises if only its driver knows it."""
    emulated = emulated_cluster(info)
    if emulated is not None:
        return emulated
    if info.master != "embedded":
        problem = f"run {info.run} is on Spark's executors, which only its driver knows"
        raise InvalidInput("run", f"{problem}; explore a run with emulated machines, an embedded one, or the twin")
    return discover((), True, info.config.execution.slots)
