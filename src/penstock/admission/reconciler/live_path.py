"""A path that is being run: its desired state, the state of its run, and how to start and end the run.

Starting and ending a run take a while and are called in other threads: these functions touch only the run and the split
logs, and return the outcome.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from penstock.admission.reconciler.launch import Launch, PathRun, Start, used_machines
from penstock.admission.reconciler.split_logs import Splits, settle_run
from penstock.admission.reconciler.state import PathPhase, PathState
from penstock.model.book import BookedPath
from penstock.model.errors import PenstockError
from penstock.model.status import Status
from penstock.model.topology import Kind


class Goal(StrEnum):
    """The desired state of a path."""

    RUN = "run"
    STANDBY = "standby"  # its elements work, but it has no rate
    DOWN = "down"  # one of its elements has failed
    REMOVED = "removed"  # it is no longer in the book


class EndMode(StrEnum):
    """How a run is ended."""

    DRAIN = "drain"
    STOP = "stop"
    COLLECT = "collect"  # it has ended by itself


@dataclass(eq=False)
class LivePath:
    """One path of an application; only the reconciler's thread changes it."""

    application: str
    number: int  # in the booking
    booked: BookedPath
    rates: Mapping[str, float]  # booked, by source
    goal: Goal = Goal.RUN
    phase: PathPhase = PathPhase.WAITING
    name: str = ""  # of its latest run, in the split logs
    run: PathRun | None = None
    busy: bool = False  # another thread starts or ends its run
    limits: Mapping[str, float] = field(default_factory=dict)  # in force
    rejected: "RejectedLimits | None" = None  # the last limits sent to its run, if they failed
    lower: Mapping[str, float] = field(default_factory=dict)  # limits below the booked ones, set by others, by source
    retry_at: float = 0.0  # when it may be started again
    started_at: float = 0.0
    failures: int = 0  # consecutive failures
    note: str = ""
    seen: Status | None = None  # the last status of its run

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.name or f"#{self.number}"

    def may_start(self, now: float) -> bool:
        """Return whether it is due to be started."""
        if self.phase in (PathPhase.ENDED, PathPhase.IMPOSSIBLE):
            return False
        return self.phase is not PathPhase.BACKOFF or now >= self.retry_at

    def look(self) -> bool:
        """Read the status of its run; return whether somebody else has changed its limits.

        Their limits are kept if they are lower than the booked ones. Higher ones are not, because the capacity is
        promised to others.
        """
        if self.run is None:
            return False
        self.seen = self.run.status()
        now, had = self.seen.limits, self.limits
        if self.busy or now == had:
            return False
        if self.rejected is not None and now == self.rejected.limits:  # they were set after all
            self.limits, self.rejected = dict(now), None
            return False
        changed = {source: now.get(source, math.inf) for source in had if now.get(source) != had[source]}
        lower = {source: rate for source, rate in changed.items() if rate < self.rates.get(source, math.inf)}
        self.lower = {source: rate for source, rate in self.lower.items() if source not in changed} | lower
        self.limits = dict(now)
        return True

    def allowed(self) -> dict[str, float]:
        """Return the limits that its run should have: the booked ones, or lower ones set by others."""
        return {source: min(rate, self.lower.get(source, rate)) for source, rate in self.rates.items()}

    def state(self) -> PathState:
        """Return its state for display, without asking its run."""
        run = self.run  # another thread may clear it at any time
        seen = self.seen if run is not None else None
        return PathState(
            application=self.application,
            number=self.number,
            path=self.name,
            phase=self.phase,
            machines=used_machines(self.booked),
            run="" if run is None else str(run.folder),
            booked_tps=self.booked.rate_tps,
            sources=dict(self.rates),
            emitted_tps=_rate(seen, Kind.SOURCE),
            written_tps=_rate(seen, Kind.SINK),
            emitted=0 if seen is None else seen.emitted,
            written=0 if seen is None else seen.written,
            note=self.note or (seen.warnings[0] if seen is not None and seen.warnings else ""),
        )


class RejectedLimits(NamedTuple):
    """Limits that could not be set on a run."""

    limits: Mapping[str, float]
    why: str
    until: float  # when to try again


class StartResult(NamedTuple):
    """Outcome of starting a run."""

    run: PathRun | None
    problem: str = ""
    returned: int = 0  # tuples that a failed start had taken and that were returned
    kept: str = ""  # why these could not be returned


class EndResult(NamedTuple):
    """Outcome of ending a run."""

    manner: EndMode
    error: str = ""  # of the run itself
    returned: int = 0  # tuples that were returned
    problem: str = ""  # why nothing could be returned
    stuck: bool = False  # it is not known to have ended


def start_path_run(start: Start, launch: Launch, splits: Splits, name: str) -> StartResult:
    """Start a run; if that fails, return the tuples it had taken."""
    try:
        return StartResult(start(launch))
    except Exception as error:  # of users' code, of Spark, or a defect: the path must not hang, nor others with it
        problem = describe_error(error)
    try:
        folder = splits.run_of(name)
        if folder is None or not Path(folder).is_dir():  # it failed before it could take anything
            return StartResult(None, problem)
        return StartResult(None, problem, splits.give_up(name))
    except Exception as error:
        return StartResult(None, problem, kept=describe_error(error))


def end_path_run(
    run: PathRun, manner: EndMode, within_s: float, patience_s: float, splits: Splits, name: str
) -> EndResult:
    """End a run; after its end, return the tuples that its last complete checkpoint does not cover.

    within_s: time to drain. patience_s: time to end after it was stopped.
    """
    if manner is EndMode.DRAIN:
        with suppress(Exception):  # then it is stopped
            run.drain(within_s)
    if not run.wait(0):
        manner = EndMode.STOP  # also if draining timed out
        if problem := stop_run(run, patience_s):  # tuples of a run that may still be active must not be given to others
            return EndResult(manner, problem=problem, stuck=True)
    error = _error(run)
    try:
        return EndResult(manner, error, splits.give_back(name, settle_run(run.folder, splits.flow)))
    except Exception as problem:
        return EndResult(manner, error, problem=describe_error(problem))


def stop_run(run: PathRun, patience_s: float) -> str:
    """Stop a run and wait for its end, up to a limit; return the problem, empty if it has ended."""
    errors: list[str] = []

    def ask() -> None:
        try:
            run.stop()
        except Exception as error:  # it may have ended by itself in the meantime
            errors.append(describe_error(error))

    Thread(target=ask, name="penstock stop", daemon=True).start()
    if run.wait(patience_s):
        return ""
    return errors[0] if errors else f"it has not ended within {patience_s:g} s"


def describe_error(error: BaseException) -> str:
    """Describe an error in one line: its own message if it is ours, else with its type."""
    first = (str(error).splitlines() or [""])[0]
    return first if isinstance(error, PenstockError) and first else f"{type(error).__name__}: {first}".rstrip(": ")


def _error(run: PathRun) -> str:
    """Return the error with which a run has ended."""
    try:
        return run.status().error
    except Exception as error:
        return f"its result is unknown, {describe_error(error)}"


def _rate(seen: Status | None, kind: Kind) -> float:
    return 0.0 if seen is None else sum(part.rate_tps for part in seen.components if part.kind == kind.value)
