"""Visits: one run in which one placement follows another, each held for a while, at last under more than it carries.

When what comes changes is part of the arrivals, which workers draw by themselves; so visits keep to a timetable that
is known beforehand. What moves take longer than they are given is taken from the time that a placement is held.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from penstock.control.live import start
from penstock.experiments.predictive_live.settings import Phases, Setting
from penstock.model.errors import PenstockError
from penstock.model.placement import Placement
from penstock.model.plan import Plan, to_plan
from penstock.runtime.controller import RunFailed
from penstock.runtime.run import Run

Tell = Callable[[str], None]

LOOK_S = 0.5  # between two looks at whether the emulation is true
SHORTEST_S = 1.0  # that a visit has to last
WINDOW = 16  # tuples under way in a channel, few so that back-pressure settles within seconds


class Unvisited(PenstockError):
    """A placement that was not held for long enough to say anything of it."""


class Place(NamedTuple):
    """A placement and what it is called."""

    name: str
    placement: Placement


class Lengths(NamedTuple):
    """The parts of a visit in seconds; the first visit needs no moves."""

    moves: float  # that tasks are given to move
    settle: float
    hold: float

    @property
    def whole(self) -> float:
        """All of it."""
        return self.moves + self.settle + self.hold


class Timetable(NamedTuple):
    """Which placements are visited, and for how long."""

    steady: Sequence[Place]  # under the load
    saturated: Sequence[Place]  # then under more than any carries
    first: Lengths  # longer, as the twin is calibrated by it
    each: Lengths
    filled: Lengths  # of those that are saturated

    @property
    def steady_s(self) -> float:
        """How long the load stays as it is."""
        return self.first.whole + self.each.whole * (len(self.steady) - 1)


class Visit(NamedTuple):
    """When a placement was held, on the controller's clock, which is the driver's."""

    place: Place
    start: float
    end: float
    saturated: bool
    late: float  # share of looks at which the emulation was not true


def tour(setting: Setting, table: Timetable, over_tps: float, folder: Path, seed: int, tell: Tell) -> "Toured":
    """Visit placements in one run; its telemetry is below a folder."""
    phases = Phases(setting.rate_tps, table.steady_s, over_tps)
    flow = setting.flow(phases, seed)
    run = start(
        flow,
        emulate=setting.cluster,
        plan=_plan(setting, table.steady[0]),
        runs=folder,
        sample_tps=-1.0,
        checkpoint_s=0,
        window=WINDOW,
        seed=seed,
    )
    try:
        begun = monotonic() - run.status().seconds
        visits, at = [], begun
        for number, place in enumerate([*table.steady, *table.saturated]):
            saturated = number >= len(table.steady)
            lengths = table.first if number == 0 else table.filled if saturated else table.each
            which = f"placement {number + 1} of {len(table.steady)}" if not saturated else "saturated"
            tell(f"{which}: {place.name}")
            visits.append(_visit(run, setting, place, at, lengths, saturated))
            at += lengths.whole
    finally:
        run.stop()
    if error := run.status().error:
        raise RunFailed(error)
    return Toured(run.info.telemetry_path, tuple(visits))


class Toured(NamedTuple):
    """A run that visited placements."""

    telemetry: Path
    visits: tuple[Visit, ...]


def _visit(run: Run, setting: Setting, place: Place, at: float, lengths: Lengths, saturated: bool) -> Visit:
    """Go to a placement and hold it to the end of its time."""
    end = at + lengths.whole
    sleep(max(0.0, at - monotonic()))
    run.apply(_plan(setting, place))
    begin = max(at + lengths.moves, monotonic()) + lengths.settle
    if end - begin < SHORTEST_S:
        took = monotonic() - at
        raise Unvisited(f"visit: moving to {place.name} took {took:.1f} s; run it again on a host that is less busy")
    sleep(max(0.0, begin - monotonic()))
    late = looks_late(run, end)
    return Visit(place, begin, end, saturated, late)


def looks_late(run: Run, until: float) -> float:
    """Wait, looking now and then whether the emulation is true; return the share of looks at which it was not."""
    looks = []
    while (left := until - monotonic()) > 0:
        sleep(min(left, LOOK_S))
        looks.append(is_late(run))
    return sum(looks) / max(1, len(looks))


def is_late(run: Run) -> bool:
    """Say whether the emulation was not true lately; raise where the run has failed."""
    status = run.status()
    if status.error:
        raise RunFailed(status.error)
    return any("emulation" in warning for warning in status.warnings)


def _plan(setting: Setting, place: Place) -> Plan:
    return to_plan(setting.application, setting.cluster, place.placement, policy=place.name, objective="throughput")
