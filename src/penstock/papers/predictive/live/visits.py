"""Visits: one run in which one placement follows another, each held for a while, and once more with too much to carry.

A placement carries the most that it can when more comes. If that went on, out-queues would fill up to thousands of
tuples, which takes minutes in slow motion, and the marker of a move would wait behind them. So a little more comes than
a placement carries, for some seconds: what limits it is busy all the time from the first of them on, nothing else is
full yet, and the load that follows lets queues run empty while tasks move.

When more comes is part of the arrivals, which workers draw by themselves, so that it is known beforehand. The pace of a
source stands still while its task moves; by how much it is behind is told by what moves took. Moves take as long as
they take: placements for which no time is left are left out.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from penstock.model.placement import Placement
from penstock.model.plan import Plan, to_plan
from penstock.papers.predictive.live.settings import Phases, Raised, Setting
from penstock.runtime.controller.state_machine import RunFailed
from penstock.runtime.run import Run
from penstock.startup.start import start

Tell = Callable[[str], None]

LOOK_S = 0.5  # between two looks at whether the emulation is true
SPARE_S = 15.0  # that moves may take longer in all than they are given
WINDOW = 16  # tuples under way in a channel, few so that back-pressure settles within seconds
ENOUGH = 0.4  # of the time to hold a saturated placement for, with less of which it is left out


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


class Flood(NamedTuple):
    """A placement and what comes to it, which is more than it carries."""

    place: Place
    tps: float


class Timetable(NamedTuple):
    """Which placements are visited, and for how long."""

    steady: Sequence[Place]  # under the load
    floods: Sequence[Flood]  # then under more
    first: Lengths  # longer, as the twin is calibrated by it
    each: Lengths
    flooded: Lengths  # of those that are saturated; more comes from the end of its moves on
    spare: float = SPARE_S

    @property
    def steady_s(self) -> float:
        """How long the load stays as it is at first."""
        return self.first.whole + self.each.whole * (len(self.steady) - 1) + self.spare

    @property
    def raised(self) -> tuple[Raised, ...]:
        """When more than the load comes, and how much."""
        length = self.flooded.whole
        ends = [self.steady_s + length * (number + 1) for number in range(len(self.floods))]
        more = self.flooded.settle + self.flooded.hold
        return tuple(Raised(end - more, end, flood.tps) for end, flood in zip(ends, self.floods, strict=True))


class Visit(NamedTuple):
    """When a placement was held, on the controller's clock, which is the driver's."""

    place: Place
    start: float
    end: float
    moved_s: float  # that the moves took which led there
    late: float  # share of looks at which the emulation was not true
    over_tps: float | None = None  # that came where it was more than the load


class Toured(NamedTuple):
    """A run that visited placements."""

    telemetry: Path
    visits: tuple[Visit, ...]


def tour(setting: Setting, table: Timetable, folder: Path, seed: int, tell: Tell) -> Toured:
    """Visit placements in one run; its telemetry is below a folder."""
    run = start(
        setting.flow(Phases(setting.rate_tps, table.raised), seed),
        emulate=setting.cluster,
        plan=_plan(setting, table.steady[0]),
        runs=folder,
        sample_tps=-1.0,
        checkpoint_s=0,
        window=WINDOW,
        seed=seed,
    )
    try:
        visits = list(_Tour(run, setting, table, tell).visits())
    finally:
        run.stop()
    if error := run.status().error:
        raise RunFailed(error)
    return Toured(run.info.telemetry_path, tuple(visits))


class _Tour:
    """A run on its way from placement to placement."""

    def __init__(self, run: Run, setting: Setting, table: Timetable, tell: Tell) -> None:
        self.run, self.setting, self.table, self.tell = run, setting, table, tell
        self.began = monotonic() - run.status().seconds
        self.behind: dict[str, float] = defaultdict(float)  # s, at most, that the pace of a source task is behind
        self.sources = {source.name for source in setting.application.sources}

    def visits(self) -> Iterator[Visit]:
        """Visit those under load for which there is time, then those that are saturated."""
        yield from self._steady()
        for number, (flood, raised) in enumerate(zip(self.table.floods, self.table.raised, strict=True)):
            self.tell(f"saturated, {number + 1} of {len(self.table.floods)}: {flood.place.name}")
            visit = self._flooded(flood, raised)
            if visit is None:
                self.tell(f"moves took too long to hold {flood.place.name}")
            else:
                yield visit

    def _steady(self) -> Iterator[Visit]:
        table, last = self.table, self.began + self.table.steady_s
        for number, place in enumerate(table.steady):
            lengths = table.each if number else table.first
            self.tell(f"placement {number + 1} of {len(table.steady)}: {place.name}")
            moved_s = self._go(place)
            if monotonic() + lengths.settle + lengths.hold > last:
                self.tell(f"no time is left for {place.name} and those after it")
                return
            sleep(lengths.settle)
            begin = monotonic()
            late = looks_late(self.run, begin + lengths.hold)
            yield Visit(place, begin, begin + lengths.hold, moved_s, late)

    def _flooded(self, flood: Flood, raised: Raised) -> Visit | None:
        """Hold a placement from when it has settled until one of the sources may give less again."""
        lengths = self.table.flooded
        moved_s = self._go(flood.place)
        more = self.began + raised.begin + max(self.behind.values(), default=0.0)
        begin, end = max(more, monotonic()) + lengths.settle, self.began + raised.end
        if end - begin < ENOUGH * lengths.hold:
            sleep(max(0.0, end - monotonic()))
            return None
        sleep(max(0.0, begin - monotonic()))
        return Visit(flood.place, begin, end, moved_s, looks_late(self.run, end), flood.tps)

    def _go(self, place: Place) -> float:
        """Move tasks to where a placement has them; return how long that took."""
        began = monotonic()
        for moved in self.run.apply(_plan(self.setting, place)):
            if moved.task.partition("[")[0] in self.sources:
                self.behind[moved.task] += moved.seconds
        return monotonic() - began


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
