"""Scaling policies on recorded arrivals, on the twin: tuples late, machine-hours, number of rescales.

The twin runs interval by interval. After each, a policy sees the measured loads and decides the number of tasks; tasks
that it does not place are placed on the fewest machines on which they are not slower. A rescale restarts the
application: no tuple is processed for a given time, and source tuples whose trees are not complete are processed again,
oldest first. They keep the times at which they were due, so what a rescale holds up counts as late. A machine counts
while a task runs on it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil
from typing import NamedTuple

import numpy as np

from penstock.api.sources.pace import ArrivalProcess
from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.errors import InvalidInput
from penstock.model.parallelism import resized
from penstock.model.placement import Infeasible, Placement
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats
from penstock.model.topology import Application
from penstock.planning.planner import Planner
from penstock.planning.sizing import USUAL_POLICY, Sizer
from penstock.policies.api import ScalingView, Sized
from penstock.policies.registry import scaling_policy
from penstock.sim.events import Twin, TwinRun, TwinSpan
from penstock.sim.events.due_times import SourceArrivals
from penstock.sim.events.measured import selectivities, task_loads
from penstock.simulation.twin import mean_tps

BIN_S = 0.01  # maximum by which the due times of tuples that are processed again are moved
RESERVE = 0.7  # utilisation of the first size at the rate of the interval before, or else of the first one
MAX_HOPS = 2_000_000_000  # maximum in one comparison of a policy


@dataclass(frozen=True)
class ScalingScenario:
    """An application, its machines, and the arrivals of a number of intervals.

    arrivals: of all sources together. intervals: number of simulated ones, each of `interval_s` seconds; those before,
    `known`, are only the past that policies see. rescale_s: time for which a rescale suspends all tasks. late_s:
    latency above which a tuple is late. policy: places tasks.
    """

    application: Application
    cluster: Cluster
    arrivals: ArrivalProcess
    intervals: int
    interval_s: float
    known: int = 0
    rescale_s: float = 0.1
    late_s: float = 0.1
    policy: str = USUAL_POLICY
    costs: Costs = field(default_factory=Costs)
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("intervals", 1), ("known", 0)):
            if getattr(self, name) < least:
                raise InvalidInput(name, f"expected {least} or more, got {getattr(self, name)}")
        for name, value in (("interval", self.interval_s), ("late", self.late_s)):
            if not 0 < value < np.inf:
                raise InvalidInput(name, f"expected a number of seconds > 0, got {value:g}; choose another --{name}")
        if not 0 <= self.rescale_s < self.interval_s:
            problem = f"expected 0 to less than an interval of {self.interval_s:g} s, got {self.rescale_s:g}"
            raise InvalidInput("pause", f"{problem}; choose another --pause")
        each = mean_tps(self.arrivals) * self.interval_s
        if (hops := each * (self.known + self.intervals * self.sizer.hops_per_tuple)) > MAX_HOPS:
            problem = f"expected at most {MAX_HOPS:,} tuples to be processed, got about {hops:,.0f}"
            raise InvalidInput("intervals", f"{problem}; use fewer intervals or a lower rate")

    @property
    def begin_s(self) -> float:
        """When the first simulated interval begins."""
        return self.known * self.interval_s

    @property
    def bin_s(self) -> float:
        """The resolution of due times, a whole number of which is an interval."""
        return self.interval_s / ceil(self.interval_s / BIN_S)

    @cached_property
    def sizer(self) -> Sizer:
        """Finds parallelisms and places them."""
        return Sizer(self.costs.applied(self.application), self.cluster, self.policy, seed=self.seed)

    @cached_property
    def _drawn(self) -> tuple[Longs, Floats]:
        """The source tuples of each interval, known ones included, and the due times in the simulated ones."""
        feed = SourceArrivals(self.arrivals, (self.seed, 0))
        counts, kept = [], [np.empty(0)]
        for interval in range(self.known + self.intervals):
            times = feed.take((interval + 1) * self.interval_s)
            counts.append(len(times))
            kept += [times] if interval >= self.known else []
        return np.array(counts, dtype=np.int64), np.concatenate(kept)

    @property
    def arrived(self) -> Longs:
        """The source tuples of each interval, known ones included."""
        return self._drawn[0]

    @property
    def due(self) -> Floats:
        """The due times of all source tuples in the simulated intervals."""
        return self._drawn[1]

    @cached_property
    def times(self) -> dict[str, Floats]:
        """The due times of the tuples of each source in the simulated intervals."""
        rates = self.application.rate_tps or {source.name: 1.0 for source in self.application.sources}
        names, weights = list(rates), np.array(list(rates.values()))
        if len(names) == 1:
            return {names[0]: self.due}
        drawn = np.random.default_rng([self.seed, 2]).choice(len(names), len(self.due), p=weights / weights.sum())
        return {name: self.due[drawn == number] for number, name in enumerate(names)}

    @cached_property
    def first(self) -> Sized:
        """The size with which every policy starts."""
        rate = float(self.arrived[max(self.known - 1, 0)]) / self.interval_s
        return _placed(self.sizer.for_rate(rate / RESERVE))


class IntervalOutcome(NamedTuple):
    """What happened in an interval."""

    offered: int  # source tuples
    late: int  # those that completed too late
    mean_s: float  # mean latency of the completed ones; NaN if there were none
    machines: int
    parallelism: Mapping[str, int]
    predicted_tps: float
    rescale: str  # the reason for the rescale at its end; empty without one

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return sum(self.parallelism.values())


@dataclass(frozen=True)
class ScalingOutcome:
    """The results of a policy."""

    policy: str
    interval_s: float
    intervals: tuple[IntervalOutcome, ...]
    unfinished_late: int  # tuples that were not complete at the end, and late already

    @property
    def offered(self) -> int:
        """Source tuples in all intervals."""
        return sum(interval.offered for interval in self.intervals)

    @property
    def late(self) -> int:
        """Source tuples that were late."""
        return sum(interval.late for interval in self.intervals) + self.unfinished_late

    @property
    def late_share(self) -> float:
        """The share of source tuples that were late."""
        return self.late / max(self.offered, 1)

    @property
    def machine_s(self) -> float:
        """Seconds of use of all machines together."""
        return sum(interval.machines for interval in self.intervals) * self.interval_s

    @property
    def rescales(self) -> int:
        """How often the number of tasks or their placement changed."""
        return sum(bool(interval.rescale) for interval in self.intervals)


def compare_scaling(
    scenario: ScalingScenario, policies: Sequence[str], on_result: Callable[[str], None] = lambda _policy: None
) -> list[ScalingOutcome]:
    """Run each policy, and a fixed size for every number of machines; dominated fixed sizes are left out."""
    for spec in policies:
        scaling_policy(spec)
    found = []
    for spec in policies:
        found.append(run_policy(scenario, spec, scenario.first))
        on_result(spec)
    fixed = []
    for machines in range(1, len(scenario.cluster.machines) + 1):
        size = scenario.sizer.highest_rate(machines)
        if isinstance(size, Sized):
            label = f"fixed on {size.machines} machine{'s' if size.machines > 1 else ''}"
            fixed.append(run_policy(scenario, "fixed", size, label))
        on_result("fixed")
    return [*found, *(one for one in fixed if on_front(one, fixed))]


def on_front(one: ScalingOutcome, others: Sequence[ScalingOutcome]) -> bool:
    """Return whether no other outcome has fewer late tuples without more machine-hours, or the reverse."""
    mine = one.late, one.machine_s
    for other in others:
        theirs = other.late, other.machine_s
        if theirs != mine and theirs[0] <= mine[0] and theirs[1] <= mine[1]:
            return False
    return True


def run_policy(scenario: ScalingScenario, spec: str, first: Sized, label: str = "") -> ScalingOutcome:
    """Run the scenario with one policy, from a first size."""
    policy, rng = scaling_policy(spec), np.random.default_rng([scenario.seed, 1])
    stage, steady, outcomes = _Stage(scenario, first, scenario.begin_s, 0), np.inf, []
    for number in range(scenario.intervals):
        span, view = stage.advance(number, steady)
        answer = policy.resize(view, rng) if number + 1 < scenario.intervals else None
        following, rescale = stage.size, ""
        if answer is not None and (answer.parallelism != stage.size.parallelism or answer.placement is not None):
            following = _following(scenario, answer.parallelism, answer.placement)
            if _differs(following, stage.size):
                rescale = answer.note or "the placement changed"
        outcomes.append(stage.outcome(span, rescale))
        steady += 1
        if rescale:
            stage, steady = stage.restarted(following, number + 1), 0.0
    return ScalingOutcome(label or spec, scenario.interval_s, tuple(outcomes), stage.unfinished_late())


class _Stage:
    """The application with one size, from a restart to the next."""

    def __init__(self, scenario: ScalingScenario, size: Sized, at: float, unfinished: int) -> None:
        """Start at a time with a number of source tuples that an earlier stage left."""
        self.scenario, self.size, self.now = scenario, size, at
        self.application = resized(scenario.application, size.parallelism)
        self.twin = Twin(self.application, scenario.cluster, scenario.costs)
        due = int(np.searchsorted(scenario.due, at))
        self._oldest = float(scenario.due[due - unfinished]) if unfinished else at
        bins = np.floor((self._oldest - scenario.begin_s) / scenario.bin_s)
        self._origin = scenario.begin_s + float(bins) * scenario.bin_s
        self._run = self._started(unfinished > 0 or at > scenario.begin_s)
        self._queue = np.zeros(len(size.placement.slots), dtype=np.int64)
        self._unfinished = unfinished

    def _started(self, restarted: bool) -> TwinRun:
        processes: dict[str, ArrivalProcess | float] = {
            name: _Recorded(times[np.searchsorted(times, self._oldest) :] - self._origin, self.scenario.bin_s)
            for name, times in self.scenario.times.items()
        }
        placement = self.size.placement
        run = self.twin.start(placement.slots, rates=processes, seed=self.scenario.seed, routes=placement.routes)
        if restarted:
            run.suspend(self.now - self._origin + self.scenario.rescale_s)
        run.advance(self.now - self._origin)
        return run

    def advance(self, number: int, steady: float) -> tuple[TwinSpan, ScalingView]:
        """Run one interval; return what happened and what a policy sees of it."""
        scenario = self.scenario
        span = self._run.advance(scenario.interval_s)
        loads = task_loads(span, self._queue)
        self._queue, self._unfinished = span.queue, span.in_flight + span.waiting
        self.now += scenario.interval_s
        view = ScalingView(
            self.application,
            scenario.cluster,
            loads,
            selectivities(self.twin.instance, span),
            target_tps=float(scenario.arrived[scenario.known + number]) / scenario.interval_s,
            interval_s=scenario.interval_s,
            backlog=span.waiting,
            arrived=scenario.arrived[: scenario.known + number + 1],
            steady=steady,
            machines=self.size.machines,
            predicted_tps=self.size.throughput_tps,
            size=scenario.sizer.for_rate,
        )
        return span, view

    def outcome(self, span: TwinSpan, rescale: str) -> IntervalOutcome:
        late = int((span.latencies > self.scenario.late_s).sum())
        size = self.size
        return IntervalOutcome(
            span.offered, late, span.mean_s, size.machines, size.parallelism, size.throughput_tps, rescale
        )

    def restarted(self, size: Sized, number: int) -> "_Stage":
        """Return the application with another size at the end of an interval."""
        at = self.scenario.begin_s + number * self.scenario.interval_s
        return _Stage(self.scenario, size, at, self._unfinished)

    def unfinished_late(self) -> int:
        """Return how many tuples are not complete and late already, if the oldest are completed first."""
        due = int(np.searchsorted(self.scenario.due, self.now))
        left = self.scenario.due[due - self._unfinished : due]
        return int((left < self.now - self.scenario.late_s).sum())


class _Recorded:
    """Arrivals at given times, which ascend from 0, as counts of short slots."""

    def __init__(self, times: Floats, slot: float) -> None:
        self._times, self.slot = times, slot
        self.rate = float(len(times) / times[-1]) if len(times) and times[-1] > 0 else 0.0

    def counts(self, slots: int, rng: np.random.Generator) -> Longs:
        """Return the number of tuples in each of the first slots; `rng` is not used."""
        edges = np.arange(slots + 1) * self.slot
        found: Longs = np.diff(np.searchsorted(self._times, edges)).astype(np.int64)
        return found


def _following(scenario: ScalingScenario, parallelism: Mapping[str, int], placement: Placement | None) -> Sized:
    """Return the placed size of a policy's answer; with a placement of its own, with the predicted rate."""
    if placement is None:
        return _placed(scenario.sizer.place(dict(parallelism)))
    planner = Planner(resized(scenario.sizer.topology, parallelism), scenario.cluster)
    found = planner.evaluator.evaluate(placement)
    return Sized(dict(parallelism), placement, found.throughput_tps, found.machines)


def _differs(one: Sized, other: Sized) -> bool:
    return one.parallelism != other.parallelism or one.placement.slots != other.placement.slots


def _placed(answer: Sized | Infeasible) -> Sized:
    if isinstance(answer, Infeasible):
        raise InvalidInput("cluster", f"the application finds no place: {answer.reason}")
    return answer
