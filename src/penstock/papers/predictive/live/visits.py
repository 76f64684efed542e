"""Visits: one run in which placements follow each other, each held for a while, and once more in overload.

In overload a placement carries its maximum rate. If that lasted, out-queues would fill up with thousands of tuples,
which takes minutes in slow motion, and the marker of a move would wait behind them. So slightly more tuples arrive than
a placement carries, for some seconds: its bottleneck is busy from the first of them on, no other queue is full yet, and
the subsequent load lets queues run empty while tasks move.

Overload is part of the arrivals, which workers generate themselves, so its time is fixed in advance. A source does not
emit while its task moves; its delay follows from the duration of moves. Moves take as long as they take: placements
without any time left are skipped.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

from penstock.experiments.live_cases import Report, looks_late, measured_run
from penstock.experiments.slow_motion import Phases, Raised
from penstock.exploration.random_placements import Drawing
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.plan import Plan, to_plan
from penstock.papers.predictive.live.settings import DEFAULT, SlowedApplication
from penstock.planning.planner import Planner
from penstock.runtime.run import Run

POLICIES = ("t-storm", "t-heron", "r-storm", "predictive", "greedy-random")
MARGIN = 0.25  # capacity of every placement beyond its load, according to the estimator
SPARE_S = 15.0  # by which moves may exceed their planned time in total
WINDOW = 16  # tuples in flight per channel; few, so that back-pressure settles within seconds
ENOUGH = 0.4  # minimum share of the planned time for a saturated placement; otherwise it is skipped


class NamedPlacement(NamedTuple):
    """A placement and its name."""

    name: str
    placement: Placement


def named_placements(setting: SlowedApplication, number: int, seed: int) -> list[NamedPlacement]:
    """Return a number of placements, the default first, without those of policies that do not sustain the load."""
    drawing = Drawing(setting.application, setting.cluster, margin=MARGIN, seed=seed)
    planner = Planner(setting.application, setting.cluster, Objective.DELAY, seed)
    found = [NamedPlacement(DEFAULT, setting.default)]
    for policy in POLICIES:
        placed = planner.decide(policy).result
        if len(found) < number and isinstance(placed, Placement) and drawing.sustains(placed):
            found.append(NamedPlacement(policy, placed))
    return found + [NamedPlacement(f"random {turn + 1}", drawing.draw()) for turn in range(number - len(found))]


class Lengths(NamedTuple):
    """The parts of a visit in seconds; the first visit needs no moves."""

    moves: float  # planned; a marker of every move passes all channels, and moves follow one another
    settle: float
    hold: float

    @property
    def whole(self) -> float:
        """Total duration."""
        return self.moves + self.settle + self.hold


class Flood(NamedTuple):
    """A placement and its arrivals, which exceed its maximum rate."""

    place: NamedPlacement
    tps: float


class Timetable(NamedTuple):
    """The placements to visit, and the durations."""

    steady: Sequence[NamedPlacement]  # under the load
    floods: Sequence[Flood]  # then under more
    first: Lengths  # longer, because the twin is calibrated with it
    each: Lengths
    flooded: Lengths  # in overload, which starts at the end of the moves
    spare: float = SPARE_S

    @property
    def steady_s(self) -> float:
        """Duration of the initial constant load."""
        return self.first.whole + self.each.whole * (len(self.steady) - 1) + self.spare

    @property
    def raised(self) -> tuple[Raised, ...]:
        """Intervals of overload, and their rates."""
        length = self.flooded.whole
        ends = [self.steady_s + length * (number + 1) for number in range(len(self.floods))]
        more = self.flooded.settle + self.flooded.hold
        return tuple(Raised(end - more, end, flood.tps) for end, flood in zip(ends, self.floods, strict=True))


class Visit(NamedTuple):
    """The interval in which a placement was held, on the controller's clock, which is the driver's."""

    place: NamedPlacement
    start: float
    end: float
    moved_s: float  # duration of the preceding moves
    late: float  # share of checks at which the emulation lagged
    over_tps: float | None = None  # arrival rate in overload


class Toured(NamedTuple):
    """A run that visited placements."""

    telemetry: Path
    visits: tuple[Visit, ...]


def tour(setting: SlowedApplication, table: Timetable, folder: Path, seed: int, report: Report) -> Toured:
    """Visit placements in one run; its telemetry is below a folder."""
    running = measured_run(
        setting.flow(Phases(setting.rate_tps, table.raised), seed),
        setting.cluster,
        folder,
        seed,
        plan=_plan(setting, table.steady[0]),
        window=WINDOW,
    )
    with running as run:
        visits = list(_Tour(run, setting, table, report).visits())
    return Toured(run.info.telemetry_path, tuple(visits))


class _Tour:
    """A run that is moved from placement to placement."""

    def __init__(self, run: Run, setting: SlowedApplication, table: Timetable, report: Report) -> None:
        self.run, self.setting, self.table, self.report = run, setting, table, report
        self.began = monotonic() - run.status().seconds
        self.behind: dict[str, float] = defaultdict(float)  # maximum delay of a source task's schedule in s
        self.sources = {source.name for source in setting.application.sources}

    def visits(self) -> Iterator[Visit]:
        """Visit those under load for which there is time, then those that are saturated."""
        yield from self._steady()
        for number, (flood, raised) in enumerate(zip(self.table.floods, self.table.raised, strict=True)):
            self.report(f"saturated, {number + 1} of {len(self.table.floods)}: {flood.place.name}")
            visit = self._flooded(flood, raised)
            if visit is None:
                self.report(f"moves took too long to hold {flood.place.name}")
            else:
                yield visit

    def _steady(self) -> Iterator[Visit]:
        table, last = self.table, self.began + self.table.steady_s
        for number, place in enumerate(table.steady):
            lengths = table.each if number else table.first
            self.report(f"placement {number + 1} of {len(table.steady)}: {place.name}")
            moved_s = self._go(place)
            if monotonic() + lengths.settle + lengths.hold > last:
                self.report(f"no time is left for {place.name} and those after it")
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

    def _go(self, place: NamedPlacement) -> float:
        """Move tasks to their slots in a placement; return the duration."""
        began = monotonic()
        for moved in self.run.apply(_plan(self.setting, place)):
            if moved.task.partition("[")[0] in self.sources:
                self.behind[moved.task] += moved.seconds
        return monotonic() - began


def _plan(setting: SlowedApplication, place: NamedPlacement) -> Plan:
    return to_plan(setting.application, setting.cluster, place.placement, policy=place.name, objective="throughput")
