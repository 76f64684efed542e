"""Visits: one run in which one placement follows another, each held for a while, at last under more than it carries.

When more begins to come is part of the arrivals, which workers draw by themselves, so that it is known beforehand;
there is time to spare before it. Moves take as long as they take: placements for which no time is left are left out.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from penstock.control.live import start
from penstock.experiments.predictive_live.settings import Phases, Setting
from penstock.model.placement import Placement
from penstock.model.plan import Plan, to_plan
from penstock.runtime.controller import RunFailed
from penstock.runtime.run import Run

Tell = Callable[[str], None]

LOOK_S = 0.5  # between two looks at whether the emulation is true
SPARE_S = 15.0  # that moves may take longer in all than they are given
WINDOW = 16  # tuples under way in a channel, few so that back-pressure settles within seconds


class Place(NamedTuple):
    """A placement and what it is called."""

    name: str
    placement: Placement


class Lengths(NamedTuple):
    """The parts of a visit in seconds; the first visit needs no moves."""

    moves: float  # that they are given; a marker of every move passes all channels, and moves follow one another
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
    spare: float = SPARE_S

    @property
    def steady_s(self) -> float:
        """How long the load stays as it is."""
        return self.first.whole + self.each.whole * (len(self.steady) - 1) + self.spare


class Visit(NamedTuple):
    """When a placement was held, on the controller's clock, which is the driver's."""

    place: Place
    start: float
    end: float
    saturated: bool
    moved_s: float  # that the moves took which led there
    late: float  # share of looks at which the emulation was not true


class Toured(NamedTuple):
    """A run that visited placements."""

    telemetry: Path
    visits: tuple[Visit, ...]


def tour(setting: Setting, table: Timetable, over_tps: float, folder: Path, seed: int, tell: Tell) -> Toured:
    """Visit placements in one run; its telemetry is below a folder."""
    run = start(
        setting.flow(Phases(setting.rate_tps, table.steady_s, over_tps), seed),
        emulate=setting.cluster,
        plan=_plan(setting, table.steady[0]),
        runs=folder,
        sample_tps=-1.0,
        checkpoint_s=0,
        window=WINDOW,
        seed=seed,
    )
    try:
        visits = list(_visits(run, setting, table, tell))
    finally:
        run.stop()
    if error := run.status().error:
        raise RunFailed(error)
    return Toured(run.info.telemetry_path, tuple(visits))


def _visits(run: Run, setting: Setting, table: Timetable, tell: Tell) -> Iterator[Visit]:
    """Visit those under load for which there is time, then those that are saturated."""
    over = monotonic() - run.status().seconds + table.steady_s
    for number, place in enumerate(table.steady):
        lengths = table.each if number else table.first
        tell(f"placement {number + 1} of {len(table.steady)}: {place.name}")
        moved_s = _go(run, setting, place)
        if monotonic() + lengths.settle + lengths.hold > over:
            tell(f"no time is left for {place.name} and those after it")
            break
        yield _hold(run, place, lengths, moved_s, saturated=False)
    sleep(max(0.0, over - monotonic()))
    for number, place in enumerate(table.saturated):
        tell(f"saturated, {number + 1} of {len(table.saturated)}: {place.name}")
        yield _hold(run, place, table.filled, _go(run, setting, place), saturated=True)


def _go(run: Run, setting: Setting, place: Place) -> float:
    """Move tasks to where a placement has them; return how long that took."""
    began = monotonic()
    run.apply(_plan(setting, place))
    return monotonic() - began


def _hold(run: Run, place: Place, lengths: Lengths, moved_s: float, saturated: bool) -> Visit:
    sleep(lengths.settle)
    begin = monotonic()
    late = looks_late(run, begin + lengths.hold)
    return Visit(place, begin, begin + lengths.hold, saturated, moved_s, late)


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
