"""The twin of a cluster: the predicted behaviour of an application on it, in virtual time, for any placement."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from penstock.api.sources.pace import ArrivalProcess
from penstock.estimate.bottleneck import elements
from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.errors import InvalidInput, UnknownName, nearest
from penstock.model.instance import Instance
from penstock.model.placement import Hop, Placement
from penstock.model.routes import hop_bits
from penstock.model.taskgraph import Floats
from penstock.model.topology import Application
from penstock.sim.events.layout import PathTable
from penstock.sim.events.run import TwinRun, TwinSetup
from penstock.sim.events.span import TwinSpan
from penstock.sim.events.system import NEAR, TURNS, TwinSystem, build_twin_system
from penstock.workloads.arrivals import Constant, Poisson

OVERLOAD = 2.0  # relative to the capacity with evenly split streams
RESOLUTION = 0.02  # relative; `maximum_tps` tries rates so far below and above that under overload
STEADY = 0.5  # of the resolution; throughputs of spans that differ by less are considered equal
SPAN_TUPLES = 5_000  # source tuples of the first span under overload, at the default resolution
SPANS = 10
FIRST, TRIALS, AGREE = 4, 7, 2  # spans of a trial: length of the first one, maximum number, consecutive ones that agree
SLOWER = 0.75  # growth of a backlog relative to that in the previous span, below which it slows down


class _Search(NamedTuple):
    """A search for a maximum rate; a finer resolution takes proportionally longer spans."""

    slots: Sequence[int]
    seed: int
    routes: Mapping[Hop, tuple[int, ...]] | None
    resolution: float

    @property
    def steady(self) -> float:
        return STEADY * self.resolution

    @property
    def span_tuples(self) -> float:
        return SPAN_TUPLES * RESOLUTION / self.resolution


class Twin:
    """An application on a cluster with an engine's costs; its tables are built once, for any number of runs.

    It models the emulated runtime: a slot serves one tuple at a time, the one of its tasks that has waited longest; the
    busy slots of a machine share its cores evenly; the results of a tuple leave when its service ends, as one frame per
    lane; lanes have credits, and a task is blocked while an out-queue is full; frames pass network cards or links one
    after another. In addition, serialisation costs are added to service times (`Costs`); keys are uniformly
    distributed; a source's in-flight limit counts whole trees.
    """

    def __init__(self, application: Application, cluster: Cluster, costs: Costs = Costs()) -> None:  # noqa: B008  a constant
        self.application = costs.applied(application)
        self.cluster = cluster
        self.costs = costs
        self.instance = Instance(self.application, cluster)

    @cached_property
    def _system(self) -> TwinSystem:
        return build_twin_system(self.instance, self.costs)

    def start(
        self,
        slots: Sequence[int],
        *,
        rates: Mapping[str, ArrivalProcess | float] | None = None,
        seed: int = 0,
        records: float = 0.0,
        routes: Mapping[Hop, tuple[int, ...]] | None = None,
        name: str = "twin",
    ) -> TwinRun:
        """Start a run with a placement, at time 0 with empty queues.

        slots: the slot of each task, in task-graph order. rates: arrivals of each source component, Poisson if it is a
        number of tuples per second; default: the application's own. records: source tuples traced per second and task;
        negative: all. routes: the links of hops on a routed network; default: the widest path of an idle network.
        """
        self._refuse_odd(slots, seed)
        setup = TwinSetup(self.instance, self._system, self.costs, routes, self._processes(rates))
        return TwinRun(setup, slots, seed, records, name)

    def maximum_tps(
        self,
        slots: Sequence[int],
        seed: int = 0,
        routes: Mapping[Hop, tuple[int, ...]] | None = None,
        resolution: float = RESOLUTION,
    ) -> float:
        """Return the largest source rate at which queues stay bounded, if every source task emits its share.

        Queues are empty at first and source tuples arrive evenly. Below the returned rate by the relative resolution
        queues stay bounded, above it by as much they grow. A quarter of the resolution takes about five times as long.
        Infinite if nothing limits it.

        The rate carried under overload (`saturated_tps`) is tried first. It is the maximum in most cases, but not where
        senders share an element in order of arrival: once queues are full, a sender gets a share of the element in
        proportion to its windows and not to its load, so that others are blocked. Such a placement carries less after
        an overload than before it, until the arrival rate is low enough.
        """
        if not 0.0 < resolution < 1.0:
            raise InvalidInput("resolution", f"expected a number between 0 and 1, such as 0.02, got {resolution}")
        search = _Search(slots, seed, routes, resolution)
        carried = self._saturated_tps(search)
        if not 0.0 < carried < np.inf:
            return carried
        lowest, highest, step = 0.0, np.inf, (1 + resolution) / (1 - resolution)
        rate_tps = carried * (1 - resolution)
        while highest > lowest * (1 + search.steady):
            if self._sustains(rate_tps, search):
                lowest = rate_tps
            else:
                highest = rate_tps
            if 0.0 < lowest < carried < highest < np.inf:
                return carried
            if lowest > 0.0 and np.isfinite(highest):
                rate_tps = float(np.sqrt(lowest * highest))
            else:
                rate_tps, step = rate_tps * step if lowest > 0.0 else rate_tps / step, step**2
        return lowest

    def _sustains(self, rate_tps: float, search: _Search) -> bool:
        """Return whether queues stay bounded if source tuples arrive evenly at a rate.

        Spans double until the number of tuples in the system stays the same, or only that at the sources grows, and the
        next span confirms it. A backlog whose growth slows down is bounded. So may be one whose tuples wait for less
        time than it takes to fill the windows of lanes to the same slot: full ones give way to the source.
        """
        slot = search.span_tuples / rate_tps
        rates = {name: Constant(rate=rate, slot=slot) for name, rate in self._shared(rate_tps).items()}
        run = self.start(search.slots, rates=rates, seed=search.seed, routes=search.routes)
        length, waiting, inside, growth = FIRST * slot, 0, 0, 0.0
        bounded = growing = slowing = 0
        queue = np.zeros(self._system.tasks)
        for _ in range(TRIALS):
            span = run.advance(length)
            before, growth = growth, (span.waiting - waiting) / span.offered
            grown = (span.in_flight - inside) / span.offered
            settled = grown <= search.steady / 2 and not self._gives_way(search, span, queue)
            bounded = bounded + 1 if growth + grown <= search.steady / 2 else 0
            growing = growing + 1 if settled and growth > max(search.steady, SLOWER * before) else 0
            slowing = slowing + 1 if settled and growth < SLOWER * before else 0
            if AGREE in (bounded, growing):
                break
            length *= 1 if bounded or growing else 2
            waiting, inside, queue = span.waiting, span.in_flight, span.queue.astype(np.float64)
        return bounded == AGREE or slowing >= AGREE

    def _gives_way(self, search: _Search, span: TwinSpan, queue: Floats) -> bool:
        """Return whether lanes may yet give way to a source in the slot of their task; queue: before the span."""
        placed, system = np.asarray(search.slots), self._system
        grows = system.source & (span.queue - queue > search.steady * span.taken)
        wait_s = np.zeros(self.instance.slots.number)
        np.maximum.at(wait_s, placed[grows], span.queue[grows] * span.seconds / np.maximum(span.taken[grows], 1))
        beside = wait_s[placed[system.target]]
        chosen = np.isin(system.bound, (TURNS, NEAR))[system.queue] & (span.edge_tuples > 0)
        return bool((chosen & (beside > 0) & (span.edge_tuples * beside < system.window * span.seconds)).any())

    def saturated_tps(
        self, slots: Sequence[int], seed: int = 0, routes: Mapping[Hop, tuple[int, ...]] | None = None
    ) -> float:
        """Return the rate that a placement carries under permanent overload; infinite if nothing limits it.

        The sources have an unlimited supply of tuples, and none gets further ahead than the others, so the load keeps
        the ratio of the application's rates. Spans double until back-pressure has settled: the number of completed
        tuples equals that of the previous span, and that emitted by the most blocked source, and every task processes
        the same number as before. Senders with a choice of task then avoid slow ones.
        """
        return self._saturated_tps(_Search(slots, seed, routes, RESOLUTION))

    def _saturated_tps(self, search: _Search) -> float:
        even = self._even_tps(search.slots, search.seed, search.routes)
        if not np.isfinite(even):
            return float("inf")
        run = self.start(search.slots, rates=self._shared(even), seed=search.seed, routes=search.routes)
        supply = run.saturate(OVERLOAD * search.span_tuples)
        length, before, reached, processed = search.span_tuples / even, 0.0, 0.0, np.zeros(self._system.tasks)
        for _ in range(SPANS):
            span = run.advance(length)
            given = (supply.reached - reached) / length
            settled = all(abs(span.throughput_tps - one) <= search.steady * one for one in (before, given))
            apart = np.abs(span.processed / length - processed).sum()
            if settled and supply.held_up and apart <= search.resolution * processed.sum():
                break
            processed = span.processed / length
            length, before, reached = 2 * length, span.throughput_tps, supply.reached
        return span.throughput_tps

    def _even_tps(self, slots: Sequence[int], seed: int, routes: Mapping[Hop, tuple[int, ...]] | None) -> float:
        """Return the rate at which a resource is exhausted if streams split evenly."""
        self._refuse_odd(slots, seed)
        tasks = self.instance.tasks
        placed = np.asarray(slots, dtype=np.int32)
        chosen: dict[Hop, tuple[int, ...]] = {}
        if self.cluster.routed:
            paths = PathTable(self.instance, routes)
            chosen = {hop: paths.links(hop) for hop in hop_bits(tasks, self.instance.slots, placed)}
        limits = elements(tasks, self.instance.slots, self.cluster, Placement(tuple(slots), chosen))
        return limits[0].rate_tps if limits else float("inf")

    def _shared(self, tps: float) -> dict[str, float]:
        """Divide a rate among the sources in proportion to the application's own rates."""
        rates = self.application.rate_tps or {source.name: 1.0 for source in self.application.sources}
        return {name: tps * rate / sum(rates.values()) for name, rate in rates.items()}

    def _processes(self, rates: Mapping[str, ArrivalProcess | float] | None) -> dict[str, ArrivalProcess]:
        sources = [source.name for source in self.application.sources]
        given = self.application.rate_tps if rates is None else rates
        for name in given:
            if name not in sources:
                raise UnknownName(f"rates.{name}", f"no source is named {name!r}; {nearest(name, sources)}")
        if not given:
            problem = f"expected a rate for each source of {self.application.name!r}, which has none; pass rates"
            raise InvalidInput("rates", problem)
        return {
            name: Poisson(rate=float(rate)) if isinstance(rate, int | float) else rate for name, rate in given.items()
        }

    def _refuse_odd(self, slots: Sequence[int], seed: int) -> None:
        if len(slots) != self._system.tasks:
            raise InvalidInput("slots", f"expected the slot of each of {self._system.tasks} tasks, got {len(slots)}")
        number = self.instance.slots.number
        for task, slot in enumerate(slots):
            if not 0 <= slot < number:
                raise InvalidInput(f"slots[{task}]", f"expected a slot from 0 to {number - 1}, got {slot}")
        if seed < 0:
            raise InvalidInput("seed", f"expected a whole number ≥ 0, got {seed}")
