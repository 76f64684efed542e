"""An application on a cluster in the slotted simulator, under one or more routing policies.

Nothing is executed: tasks serve tuples at the mean rates given by their costs and their share of the machine, and a
tuple sent in one slot arrives in the next. Arrivals are generated once per seed and shared by all routings, so that all
are compared on the same tuples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.api.sources.pace import ArrivalProcess
from penstock.estimate.communication import Capacity, Overload, communication_bound, largest_scale
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.placement import Placement
from penstock.model.slotted import OUTFLOW, UNLIMITED, Longs, PlacedApplication, SlottedSystem, build_slotted_system
from penstock.model.taskgraph import Floats, Tasks, expand_tasks
from penstock.model.topology import Application, Topology
from penstock.model.tuples import TuplePolicies, over
from penstock.policies.registry import PolicyKind, forecaster, names, routing_policy, sending_policy
from penstock.policies.streams import SPREADING, routings
from penstock.sim.slotted import Arrivals, SlottedResult, simulate
from penstock.workloads.arrivals import Poisson

DEFAULT_SLOTS, DEFAULT_SLOT_MS = 10_000, 10.0
DEFAULT_LOAD = 0.8  # default arrival rate if the application has none, relative to capacity
DEFAULT_SENDING = "fifo"
MAX_TUPLES = 10_000_000  # maximum source tuples in one simulation
EQUAL = 1.01  # response times within this ratio are considered equal
SLACK = 1e-9


class SlottedLoad(NamedTuple):
    """The offered load and the capacity, in source tuples per second over all sources."""

    offered_tps: float
    carried_tps: float  # capacity with optimal routing; infinite if nothing limits it
    limit: str  # the bottleneck at that rate
    even_tps: float  # capacity with evenly split streams, as by shuffle
    even_limit: str
    least_cost: float | None  # communication cost per slot with optimal routing; None above capacity
    phantom_tps: float = 0.0  # predicted tuples that never arrive; served where they were sent

    @property
    def served_tps(self) -> float:
        """The load to serve: arrivals and phantoms."""
        return self.offered_tps + self.phantom_tps

    @property
    def exceeded(self) -> bool:
        """Whether the load exceeds capacity under every routing."""
        return self.served_tps > self.carried_tps * (1 + SLACK)

    @property
    def uneven(self) -> bool:
        """Whether only load-aware routing can sustain the load."""
        return not self.exceeded and self.served_tps > self.even_tps * (1 + SLACK)


class RoutingResult(NamedTuple):
    """The results of one routing, by seed."""

    routing: str
    outcomes: tuple[SlottedResult, ...]

    def mean(self, measure: str) -> float:
        """Return the mean over seeds of an outcome's field."""
        return float(np.mean([getattr(outcome, measure) for outcome in self.outcomes]))

    def deviation(self, measure: str) -> float:
        """Return the standard deviation over seeds; 0 for a single seed."""
        found = [getattr(outcome, measure) for outcome in self.outcomes]
        return float(np.std(found, ddof=1)) if len(found) > 1 else 0.0


class RoutingComparison(NamedTuple):
    """The results of all routings."""

    load: SlottedLoad
    slot_ms: float
    slots: int
    warm_up: int
    results: tuple[RoutingResult, ...]
    sends: str | None = None  # the sending policy of a machine's card; None: unlimited cards
    asked_tps: float | None = None  # the rate of the arrival process, if it has one

    @property
    def best(self) -> RoutingResult:
        """The routing with the lowest mean response time, or the cheapest of those within one percent of it."""
        least = min(result.mean("response") for result in self.results)
        fast = [result for result in self.results if result.mean("response") <= EQUAL * least]
        return min(fast, key=lambda result: (result.mean("cost"), result.mean("response")))


class LookAhead(NamedTuple):
    """The look-ahead of sources and the forecaster that predicts their arrivals."""

    ahead: int = 0  # slots
    forecaster: str = "perfect"


@dataclass(frozen=True)
class SlottedApplication:
    """An application in time slots: its tasks, their placement, and the length of a slot."""

    topology: Topology
    cluster: Cluster
    placement: Placement
    slot_ms: float = DEFAULT_SLOT_MS
    link: int | None = None  # maximum tuples per slot that leave a machine; None: unlimited
    sends: str | None = None  # the sending policy of a machine's card, with `link`; None: fifo
    look: LookAhead = LookAhead()  # noqa: RUF009  a constant

    def __post_init__(self) -> None:
        if not 0 < self.slot_ms < np.inf:
            problem = f"expected a number of milliseconds > 0, got {self.slot_ms:g}; choose another, or leave it out"
            raise InvalidInput("slot_ms", problem)
        if self.link is not None and self.link < 1:
            raise InvalidInput("link", f"expected 1 tuple per slot or more, got {self.link}")
        if self.look.ahead < 0:
            raise InvalidInput("look_ahead", f"expected 0 slots or more, got {self.look.ahead}")
        if self.sends is not None:
            sending_policy(self.sends)
            if self.link is None:
                problem = f"{self.sends} has nothing to decide if a machine may send any number of tuples per slot"
                raise InvalidInput("sending", f"{problem}; add --link TUPLES")

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks, with the number of tuples that each processes per source tuple."""
        return expand_tasks(self.topology)

    @cached_property
    def system(self) -> SlottedSystem:
        """The system without an outflow limit for a particular load; see `limited`."""
        placed = PlacedApplication(self.topology, self.placement.slots)
        return build_slotted_system([placed], self.cluster, slot_s=self.slot_ms / 1e3, capacity=self.link)

    @cached_property
    def outflow(self) -> Floats:
        """Tuples emitted by each task per source tuple. [T]"""
        task = np.repeat(np.arange(self.system.tasks), np.diff(self.system.queues))
        return self.tasks.gain * np.bincount(task, self.system.emits, self.system.tasks)

    @property
    def shares(self) -> Floats:
        """The fraction of source tuples that arrives at each task. [T]"""
        return np.where(self.tasks.source, self.tasks.gain, 0.0)

    def limited(self, offered: float) -> SlottedSystem:
        """Return the system for an offered load per slot: γ is at least twice the mean outflow."""
        least = int(np.ceil(OUTFLOW * offered * self.outflow.max(initial=0.0)))
        return self.system._replace(limit=np.maximum(self.system.limit, least))

    def load(self, offered: float, phantoms: float = 0.0) -> SlottedLoad:
        """Return the capacity and the communication cost at a load, with `phantoms` in addition; both per slot."""
        system, rates = self.limited(offered), offered * self.shares
        bound = communication_bound(system, rates)
        scale = bound.scale if isinstance(bound, Overload) else largest_scale(system, rates)
        full = communication_bound(system, rates * (1 + phantoms / offered)) if phantoms else bound
        second = 1e3 / self.slot_ms
        return SlottedLoad(
            offered_tps=offered * second,
            carried_tps=scale * offered * second,
            limit=self._named(full) if isinstance(full, Overload) else "",
            even_tps=self.even_tps,
            even_limit=self._evenly[1],
            least_cost=None if isinstance(bound, Overload) else bound.cost,
            phantom_tps=phantoms * second,
        )

    @property
    def even_tps(self) -> float:
        """The maximum total rate of sources, in tuples per second, if every stream is split evenly."""
        return self._evenly[0] * 1e3 / self.slot_ms

    @cached_property
    def _evenly(self) -> tuple[float, str]:
        """The maximum rate per slot if streams are split evenly, and the bottleneck."""
        tasks, system = self.tasks, self.system
        works = ~tasks.source & (tasks.gain > 0)
        served = np.where(works, system.service / np.where(works, tasks.gain, 1.0), np.inf)
        sent = np.bincount(system.machine, self.outflow, len(system.capacity))
        cards = np.where((sent > 0) & (system.capacity < UNLIMITED), system.capacity / np.maximum(sent, SLACK), np.inf)
        if served.min(initial=np.inf) <= cards.min(initial=np.inf):
            return float(served.min()), self._component(int(np.argmin(served)))
        return float(cards.min()), self._machine(int(np.argmin(cards)))

    def _named(self, bound: Overload) -> str:
        """Return a description of the bottleneck: a component, or a machine's card."""
        first = bound.binding[0]
        card = first.capacity is Capacity.CARD
        return self._machine(first.number) if card else self._component(first.number)

    def _component(self, task: int) -> str:
        return f"component {self.topology.components[self.tasks.position[self.tasks.component[task]]].name!r}"

    def _machine(self, machine: int) -> str:
        return f"the card of machine {self.cluster.machines[machine].name!r}"


def simulate_application(
    setting: SlottedApplication,
    routings: Sequence[str],
    *,
    arrivals: ArrivalProcess | None = None,
    slots: int = DEFAULT_SLOTS,
    warm_up: int | None = None,
    seeds: Sequence[int] = (0,),
    check: bool = False,
    on_result: Callable[[str], None] = lambda _routing: None,
) -> RoutingComparison:
    """Simulate an application under each routing.

    arrivals: total over all sources; each tuple goes to a source task at random, in proportion to its share; default:
    Poisson at the application's own rate, or at 80 % of capacity if it has none. warm_up: slots excluded from the
    results; default: a tenth. check: verify in every slot that no tuple is lost or duplicated. on_result: called after
    each routing and seed.
    """
    warm_up = slots // 10 if warm_up is None else warm_up
    _refuse_odd(slots, warm_up)
    chosen = [routing_policy(spec) for spec in routings]
    refuse_idle(setting, routings)
    process = own_arrivals(setting) if arrivals is None else arrivals
    drawn = [arriving(setting, process, slots, seed) for seed in seeds]
    offered = float(np.mean([one.counts[:, warm_up:].sum() for one in drawn])) / (slots - warm_up)
    if offered == 0:
        raise InvalidInput("arrivals", f"no tuple arrives in {slots:,} slots; simulate more slots, or a higher rate")
    phantoms = float(np.mean([_phantoms(one, warm_up) for one in drawn])) / (slots - warm_up)
    system, load = setting.limited(offered), setting.load(offered, phantoms)
    chosen_rule = None if setting.link is None else setting.sends or DEFAULT_SENDING
    rule = None if chosen_rule is None else sending_policy(chosen_rule)
    results = []
    for spec, policy in zip(routings, chosen, strict=True):
        outcomes = []
        for seed, coming in zip(seeds, drawn, strict=True):
            outcomes.append(simulate(system, coming, policy, rule, warm_up=warm_up, seed=seed, check=check))
            on_result(spec)
        results.append(RoutingResult(spec, tuple(outcomes)))
    return RoutingComparison(load, setting.slot_ms, slots, warm_up, tuple(results), chosen_rule, process.rate)


def all_routings(setting: SlottedApplication, named: Sequence[str] = ()) -> list[str]:
    """Return every applicable routing; those in `named` have parameters and replace the plain ones."""
    able = [name for name in names(PolicyKind.ROUTING) if routing_policy(name).keyed is not _free(setting)]
    own = {name: [spec for spec in named if spec.partition(":")[0] == name] for name in names(PolicyKind.ROUTING)}
    return [spec for name in names(PolicyKind.ROUTING) for spec in own[name] or ([name] if name in able else [])]


def planned_routing(tuples: TuplePolicies, topology: Topology) -> str | None:
    """Return a plan's routing for all streams with a choice of task; None if it names none.

    The simulator supports one routing for all of them, so a plan with several is rejected.
    """
    ruled = routings(over(TuplePolicies(), tuples), topology)
    if not ruled:
        return None
    free = [stream.label for stream in topology.streams if stream.grouping in SPREADING] or list(ruled)
    found = {label: ruled.get(label, "by its grouping") for label in free}
    if len(set(found.values())) == 1:
        return found[free[0]]
    found_text = ", ".join(f"{label} {spec}" for label, spec in found.items())
    problem = f"expected one routing for all streams, got {found_text}; choose one with --routing"
    raise InvalidInput("tuples.streams", problem)


def refuse_idle(setting: SlottedApplication, routings: Sequence[str]) -> None:
    """Raise for routings that have nothing to decide."""
    if _free(setting):
        return
    for spec in routings:
        if not routing_policy(spec).keyed:
            name = setting.topology.name
            problem = f"{spec} has nothing to decide: every stream of {name!r} uses keys or goes to all tasks"
            raise InvalidInput("routing", f"{problem}; use fields, or give a stream the grouping shuffle")


def _free(setting: SlottedApplication) -> bool:
    """Return whether a sender has a choice of task on any stream."""
    return bool((~(setting.system.copies | setting.system.keyed)).any())


def own_arrivals(setting: SlottedApplication) -> ArrivalProcess:
    """Return Poisson arrivals at the application's own rate, or at 80 % of capacity if it has none."""
    offered = setting.topology.offered_tps if isinstance(setting.topology, Application) else None
    if offered is None:
        offered = DEFAULT_LOAD * setting.even_tps
    if not np.isfinite(offered):
        name = setting.topology.name
        problem = f"expected a rate, as {name!r} has none and nothing limits it; add --arrivals poisson:rate=NUMBER"
        raise InvalidInput("arrivals", problem)
    return Poisson(rate=offered)


def arriving(setting: SlottedApplication, process: ArrivalProcess, slots: int, seed: int) -> Arrivals:
    """Generate the arrivals of every task in every slot, and their predictions."""
    rng, look = np.random.default_rng([seed, 1]), setting.look
    timed: ArrivalProcess = msgspec.structs.replace(process, slot=setting.slot_ms / 1e3)  # type: ignore[type-var]
    total = timed.counts(slots, rng)
    if total.sum() > MAX_TUPLES:
        problem = f"expected at most {MAX_TUPLES:,} source tuples, got {total.sum():,} in {slots:,} slots"
        raise InvalidInput("slots", f"{problem}; use fewer or shorter slots, or a lower rate")
    counts = np.zeros((setting.system.tasks, slots), dtype=np.int64)
    sources = np.flatnonzero(setting.shares)
    weights = setting.shares[sources] / setting.shares[sources].sum()
    counts[sources] = _dealt(total, weights, getattr(process, "even", False), rng)
    if look.ahead == 0:
        return Arrivals(counts)
    predicted = np.zeros_like(counts)
    teller = forecaster(look.forecaster)
    for task in sources:
        predicted[task] = teller.forecast(counts[task], look.ahead, rng)
    return Arrivals(counts, predicted, np.where(setting.shares > 0, look.ahead, 0).astype(np.int64))


def _phantoms(coming: Arrivals, warm_up: int) -> float:
    """Return the number of predicted tuples after the warm-up that never arrive."""
    if coming.predicted is None:
        return 0.0
    return float(np.maximum(coming.predicted - coming.counts, 0)[:, warm_up:].sum())


def _dealt(total: Longs, weights: Floats, even: bool, rng: np.random.Generator) -> Longs:
    """Divide the tuples of every slot among sources, at random or as evenly as possible. [sources, slots]"""
    if not even:
        return np.ascontiguousarray(rng.multinomial(total, weights).T)
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    ends[-1] = 1.0
    passed = np.concatenate([[0], np.cumsum(total)])
    edges = np.floor(np.multiply.outer(ends, passed.astype(np.float64)) + 0.5).astype(np.int64)
    dealt: Longs = np.diff(np.diff(edges, axis=0), axis=1)
    return dealt


def _refuse_odd(slots: int, warm_up: int) -> None:
    if slots < 1:
        raise InvalidInput("slots", f"expected 1 or more, got {slots}")
    if not 0 <= warm_up < slots:
        raise InvalidInput("warm_up", f"expected 0 to {slots - 1} of the {slots} slots, got {warm_up}; add slots")
