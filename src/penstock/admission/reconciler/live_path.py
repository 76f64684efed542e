"""A path while it is operated: what is wanted of it, what its run is about, and the two things that take a while.

Starting a run and ending it are functions of their own, to be called in another thread: they touch nothing but the run
and the split logs, and return what became of it.
"""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from penstock.admission.reconciler.covered_positions import settle
from penstock.admission.reconciler.launch import Launch, PathRun, Start, machines_of
from penstock.admission.reconciler.split_logs import Splits
from penstock.admission.reconciler.state import PathState, Phase
from penstock.model.book import BookedPath
from penstock.model.errors import PenstockError
from penstock.model.status import Status
from penstock.model.topology import Kind


class Goal(StrEnum):
    """What the book wants of a path."""

    RUN = "run"
    STANDBY = "standby"  # it works, but gets no rate
    DOWN = "down"  # one of its elements has failed
    GONE = "gone"  # it is not in the book any more


class Manner(StrEnum):
    """How a run is ended."""

    DRAIN = "drain"
    STOP = "stop"
    COLLECT = "collect"  # it has ended by itself


@dataclass(eq=False)
class LivePath:
    """One path of an application; only the operator's thread changes it."""

    application: str
    number: int  # in the booking
    booked: BookedPath
    rates: Mapping[str, float]  # booked, by source
    goal: Goal = Goal.RUN
    phase: Phase = Phase.WAITING
    name: str = ""  # in the split logs, of its latest run
    run: PathRun | None = None
    busy: bool = False  # something is being done to it in another thread
    limits: Mapping[str, float] = field(default_factory=dict)  # in force
    refused: "Refused | None" = None  # limits that its run was told last, and did not take
    lower: Mapping[str, float] = field(default_factory=dict)  # those of them that somebody else has set, by source
    again_at: float = 0.0  # when it may be started again
    begun_at: float = 0.0
    mishaps: int = 0  # failures in a row
    note: str = ""
    seen: Status | None = None  # the last status of its run

    @property
    def called(self) -> str:
        """What people know it by."""
        return self.name or f"#{self.number}"

    def may_begin(self, now: float) -> bool:
        """Return whether it may be started, where that is wanted."""
        if self.phase in (Phase.ENDED, Phase.IMPOSSIBLE):
            return False
        return self.phase is not Phase.RESTING or now >= self.again_at

    def look(self) -> bool:
        """Ask its run how it is; return whether somebody else has changed its limits since.

        What they set stands where it is lower than what is booked; what is higher does not, as others have been
        promised the rest.
        """
        if self.run is None:
            return False
        self.seen = self.run.status()
        now, had = self.seen.limits, self.limits
        if self.busy or now == had:
            return False
        if self.refused is not None and now == self.refused.limits:  # it has taken them after all
            self.limits, self.refused = dict(now), None
            return False
        changed = {source: now.get(source, math.inf) for source in had if now.get(source) != had[source]}
        lower = {source: rate for source, rate in changed.items() if rate < self.rates.get(source, math.inf)}
        self.lower = {source: rate for source, rate in self.lower.items() if source not in changed} | lower
        self.limits = dict(now)
        return True

    def allowed(self) -> dict[str, float]:
        """Return the limits that its run ought to have: those booked, lower where somebody wants it so."""
        return {source: min(rate, self.lower.get(source, rate)) for source, rate in self.rates.items()}

    def state(self) -> PathState:
        """Return what is to be said of it now, without asking its run."""
        run = self.run  # another thread may ask while it ends
        seen = self.seen if run is not None else None
        return PathState(
            application=self.application,
            number=self.number,
            path=self.name,
            phase=self.phase,
            machines=machines_of(self.booked),
            run="" if run is None else str(run.folder),
            booked_tps=self.booked.rate_tps,
            sources=dict(self.rates),
            given_tps=_rate(seen, Kind.SOURCE),
            written_tps=_rate(seen, Kind.SINK),
            emitted=0 if seen is None else seen.emitted,
            written=0 if seen is None else seen.written,
            note=self.note or (seen.warnings[0] if seen is not None and seen.warnings else ""),
        )


class Refused(NamedTuple):
    """Limits that a run did not take."""

    limits: Mapping[str, float]
    why: str
    until: float  # when they are tried again


class Begun(NamedTuple):
    """How the start of a run came out."""

    run: PathRun | None
    problem: str = ""
    returned: int = 0  # tuples that a start which failed had taken, and that were given back
    kept: str = ""  # why these could not be given back


class Over(NamedTuple):
    """How a run has ended."""

    manner: Manner
    error: str = ""  # of the run itself
    returned: int = 0  # tuples that were given back
    problem: str = ""  # why nothing could be given back
    stuck: bool = False  # it has not ended, for all that is known


def begin(start: Start, launch: Launch, splits: Splits, name: str) -> Begun:
    """Start a run; where that fails, give back what it has taken by then."""
    try:
        return Begun(start(launch))
    except Exception as error:  # of a user, of Spark, or a defect: the path must not hang, nor others with it
        problem = in_a_line(error)
    try:
        folder = splits.run_of(name)
        if folder is None or not Path(folder).is_dir():  # it had come to nothing yet
            return Begun(None, problem)
        return Begun(None, problem, splits.give_up(name))
    except Exception as error:
        return Begun(None, problem, kept=in_a_line(error))


def finish(run: PathRun, manner: Manner, within_s: float, patience_s: float, splits: Splits, name: str) -> Over:
    """End a run, and only when it has ended give back what its last complete checkpoint does not cover.

    within_s: to drain. patience_s: to end once it was stopped.
    """
    if manner is Manner.DRAIN:
        with suppress(Exception):  # it is stopped then
            run.drain(within_s)
    if not run.wait(0):
        manner = Manner.STOP  # also where the time to drain is over
        if problem := stop(run, patience_s):  # what has not ended for certain must not be given to others
            return Over(manner, problem=problem, stuck=True)
    error = _error(run)
    try:
        return Over(manner, error, splits.give_back(name, settle(run.folder, splits.flow)))
    except Exception as problem:
        return Over(manner, error, problem=in_a_line(problem))


def stop(run: PathRun, patience_s: float) -> str:
    """Stop a run and wait for its end, but not longer than that; return what stands in the way, empty: nothing."""
    said: list[str] = []

    def ask() -> None:
        try:
            run.stop()
        except Exception as error:  # it may have ended by itself meanwhile
            said.append(in_a_line(error))

    Thread(target=ask, name="penstock stop", daemon=True).start()
    if run.wait(patience_s):
        return ""
    return said[0] if said else f"it has not ended within {patience_s:g} s"


def in_a_line(error: BaseException) -> str:
    """Say what is wrong: a mistake in its own words, anything else with its type."""
    first = (str(error).splitlines() or [""])[0]
    return first if isinstance(error, PenstockError) and first else f"{type(error).__name__}: {first}".rstrip(": ")


def _error(run: PathRun) -> str:
    """Return with what a run has ended."""
    try:
        return run.status().error
    except Exception as error:
        return f"how it went cannot be told, {in_a_line(error)}"


def _rate(seen: Status | None, kind: Kind) -> float:
    return 0.0 if seen is None else sum(part.rate_tps for part in seen.components if part.kind == kind.value)
