"""A path while it is operated: what is wanted of it, what its run is about, and the two things that take a while.

Starting a run and ending it are functions of their own, to be called in another thread: they touch nothing but the run
and the split logs, and return what became of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from penstock.control.operating.covered import settle
from penstock.control.operating.launching import Launch, PathRun, Start, machines_of
from penstock.control.operating.splits import Splits
from penstock.control.operating.state import PathState, Phase
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
    goal: Goal = Goal.RUN
    phase: Phase = Phase.WAITING
    name: str = ""  # in the split logs, of its latest run
    run: PathRun | None = None
    busy: bool = False  # something is being done to it in another thread
    limits: Mapping[str, float] = field(default_factory=dict)  # in force
    again_at: float = 0.0  # when it may be started again
    begun_at: float = 0.0
    mishaps: int = 0  # failures in a row
    note: str = ""
    seen: Status | None = None  # the last status of its run

    def may_begin(self, now: float) -> bool:
        """Return whether it may be started, where that is wanted."""
        if self.phase in (Phase.ENDED, Phase.IMPOSSIBLE):
            return False
        return self.phase is not Phase.RESTING or now >= self.again_at

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
            given_tps=_rate(seen, Kind.SOURCE),
            written_tps=_rate(seen, Kind.SINK),
            emitted=0 if seen is None else seen.emitted,
            written=0 if seen is None else seen.written,
            note=self.note or (seen.warnings[0] if seen is not None and seen.warnings else ""),
        )


class Begun(NamedTuple):
    """How the start of a run came out."""

    run: PathRun | None
    problem: str = ""


class Over(NamedTuple):
    """How a run has ended."""

    manner: Manner
    error: str = ""  # of the run itself
    returned: int = 0  # tuples that were given back
    problem: str = ""  # why nothing could be given back


def begin(start: Start, launch: Launch) -> Begun:
    """Start a run."""
    try:
        return Begun(start(launch))
    except PenstockError as problem:
        return Begun(None, str(problem))
    except Exception as error:  # of Spark, or a defect: the path must not hang, nor others with it
        return Begun(None, f"{type(error).__name__}: {_first_line(error)}")


def finish(run: PathRun, manner: Manner, within_s: float, splits: Splits, name: str) -> Over:
    """End a run, and only when it has ended give back what its last complete checkpoint does not cover."""
    try:
        if manner is Manner.DRAIN:
            run.drain(within_s)
        if not run.wait(0):
            manner = Manner.STOP  # also where the time to drain is over
            run.stop()
        run.wait()
        error = run.status().error
    except Exception as problem:  # what has not ended for certain must not be given to others
        return Over(manner, problem=_first_line(problem))
    try:
        return Over(manner, error, splits.give_back(name, settle(run.folder)))
    except (PenstockError, OSError) as problem:
        return Over(manner, error, problem=_first_line(problem))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _rate(seen: Status | None, kind: Kind) -> float:
    return 0.0 if seen is None else sum(part.rate_tps for part in seen.components if part.kind == kind.value)
