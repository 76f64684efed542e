"""One's own case in the slotted simulator: an application on a cluster, and what each routing of its tuples gives.

Nothing runs: tasks serve tuples at the mean rates that their costs and their slots' shares of the machines allow, and a
tuple that is sent in one slot of time is there in the next. What comes from outside is drawn once a seed and shared by
all routings, so that they are compared on the same tuples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np

from penstock.estimate.communication import Capacity, Overload, communication_bound, largest_scale
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.placement import Placement
from penstock.model.slotted import OUTFLOW, UNLIMITED, Longs, Placed, System, build_system
from penstock.model.taskgraph import Floats, Tasks, expand_tasks
from penstock.model.topology import Application, Topology
from penstock.model.tuples import TuplePolicies
from penstock.policies.registry import PolicyKind, forecaster, names, routing, sending
from penstock.policies.streams import SPREADING, over, routings
from penstock.sim.slotted import Arrivals, Outcome, simulate
from penstock.workloads.arrivals import ArrivalProcess, Poisson

USUAL_SLOTS, USUAL_SLOT_MS = 10_000, 10.0
USUAL_SHARE = 0.8  # of what can be carried: the rate where nobody knows one
USUAL_SENDING = "fifo"
MOST_TUPLES = 10_000_000  # from outside, in one simulation
EQUAL = 1.01  # response times no further apart than this are taken for equal
SLACK = 1e-9


class Load(NamedTuple):
    """What comes, and what could be carried; rates are source tuples a second, over all sources."""

    offered_tps: float
    carried_tps: float  # with the best split of every stream; infinite where nothing is a limit
    limit: str  # what is used up then
    even_tps: float  # when every stream is split evenly, as by shuffle
    even_limit: str
    least_cost: float | None  # of communication a slot, with any routing; None where none carries the load
    phantom_tps: float = 0.0  # that are foretold and never come; served where they were sent

    @property
    def served_tps(self) -> float:
        """What there is to serve: what comes, and phantoms."""
        return self.offered_tps + self.phantom_tps

    @property
    def exceeded(self) -> bool:
        """Whether no routing can keep up."""
        return self.served_tps > self.carried_tps * (1 + SLACK)

    @property
    def uneven(self) -> bool:
        """Whether only a routing that looks at load can."""
        return not self.exceeded and self.served_tps > self.even_tps * (1 + SLACK)


class Simulated(NamedTuple):
    """What a routing gave, seed by seed."""

    routing: str
    outcomes: tuple[Outcome, ...]

    def mean(self, measure: str) -> float:
        """Return the mean over seeds of a number of the outcomes."""
        return float(np.mean([getattr(outcome, measure) for outcome in self.outcomes]))

    def deviation(self, measure: str) -> float:
        """Return the standard deviation over seeds; 0 of one alone."""
        found = [getattr(outcome, measure) for outcome in self.outcomes]
        return float(np.std(found, ddof=1)) if len(found) > 1 else 0.0


class Simulation(NamedTuple):
    """What came of all routings."""

    load: Load
    slot_ms: float
    slots: int
    warm_up: int
    results: tuple[Simulated, ...]
    sends: str | None = None  # the rule by which queues share a machine's card; None: any number may leave it
    asked_tps: float | None = None  # the rate of the arrival process, where it says one

    @property
    def best(self) -> Simulated:
        """The one with the least mean response time; of those within one percent, the one that costs least."""
        least = min(result.mean("response") for result in self.results)
        fast = [result for result in self.results if result.mean("response") <= EQUAL * least]
        return min(fast, key=lambda result: (result.mean("cost"), result.mean("response")))


@dataclass(frozen=True)
class Setting:
    """An application in time slots: its tasks, where they are, and how long a slot of time is."""

    topology: Topology
    cluster: Cluster
    placement: Placement
    slot_ms: float = USUAL_SLOT_MS
    link: int | None = None  # tuples that may leave a machine a slot; None: any number

    def __post_init__(self) -> None:
        if not 0 < self.slot_ms < np.inf:
            problem = f"expected a number of milliseconds > 0, got {self.slot_ms:g}; choose another, or leave it out"
            raise InvalidInput("slot_ms", problem)
        if self.link is not None and self.link < 1:
            raise InvalidInput("link", f"expected 1 tuple a slot or more, got {self.link}")

    @cached_property
    def tasks(self) -> Tasks:
        """The tasks, and what each processes for every source tuple."""
        return expand_tasks(self.topology)

    @cached_property
    def system(self) -> System:
        """The system; what limits a task's outflow is raised by `limited`."""
        placed = Placed(self.topology, self.placement.slots)
        return build_system([placed], self.cluster, slot_s=self.slot_ms / 1e3, capacity=self.link)

    @cached_property
    def outflow(self) -> Floats:
        """Tuples that leave each task for every source tuple. [T]"""
        task = np.repeat(np.arange(self.system.tasks), np.diff(self.system.queues))
        return self.tasks.gain * np.bincount(task, self.system.emits, self.system.tasks)

    @property
    def shares(self) -> Floats:
        """The part of all source tuples that comes to each task. [T]"""
        return np.where(self.tasks.source, self.tasks.gain, 0.0)

    def limited(self, offered: float) -> System:
        """Return the system for an offered load a slot: γ is twice the mean outflow at least, else look-ahead harms."""
        least = int(np.ceil(OUTFLOW * offered * self.outflow.max(initial=0.0)))
        return self.system._replace(limit=np.maximum(self.system.limit, least))

    def load(self, offered: float, phantoms: float = 0.0) -> Load:
        """Say what could be carried, and at which cost, given the tuples a slot that come, and phantoms beside them."""
        system, rates = self.limited(offered), offered * self.shares
        bound = communication_bound(system, rates)
        scale = bound.scale if isinstance(bound, Overload) else largest_scale(system, rates)
        full = communication_bound(system, rates * (1 + phantoms / offered)) if phantoms else bound
        second = 1e3 / self.slot_ms
        return Load(
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
        """The largest rate of source tuples a second when every stream is split evenly."""
        return self._evenly[0] * 1e3 / self.slot_ms

    @cached_property
    def _evenly(self) -> tuple[float, str]:
        """The largest rate a slot when streams are split evenly, and what is used up then."""
        tasks, system = self.tasks, self.system
        works = ~tasks.source & (tasks.gain > 0)
        served = np.where(works, system.service / np.where(works, tasks.gain, 1.0), np.inf)
        sent = np.bincount(system.machine, self.outflow, len(system.capacity))
        cards = np.where((sent > 0) & (system.capacity < UNLIMITED), system.capacity / np.maximum(sent, SLACK), np.inf)
        if served.min(initial=np.inf) <= cards.min(initial=np.inf):
            return float(served.min()), self._component(int(np.argmin(served)))
        return float(cards.min()), self._machine(int(np.argmin(cards)))

    def _named(self, bound: Overload) -> str:
        """Name what is used up first: a component, or a machine's card."""
        first = bound.binding[0]
        card = first.capacity is Capacity.CARD
        return self._machine(first.number) if card else self._component(first.number)

    def _component(self, task: int) -> str:
        return f"component {self.topology.components[self.tasks.position[self.tasks.component[task]]].name!r}"

    def _machine(self, machine: int) -> str:
        return f"the card of machine {self.cluster.machines[machine].name!r}"


class Look(NamedTuple):
    """How far ahead sources look, and who tells them what comes."""

    ahead: int = 0  # slots
    forecaster: str = "perfect"


def simulate_application(
    setting: Setting,
    routings: Sequence[str],
    *,
    sends: str | None = None,
    arrivals: ArrivalProcess | None = None,
    slots: int = USUAL_SLOTS,
    warm_up: int | None = None,
    look: Look = Look(),  # noqa: B008  a constant
    seeds: Sequence[int] = (0,),
    check: bool = False,
    on_result: Callable[[str], None] = lambda _routing: None,
) -> Simulation:
    """Simulate an application under each routing.

    arrivals: over all sources together, to whose tasks tuples are dealt at random by their share; None: Poisson at the
    application's own rate, or at 80 % of what it can carry where none is known. warm_up: slots that do not count; None:
    a tenth. sends: the rule by which queues share a machine's card, where that has a limit. check: verify in every slot
    that no tuple is lost or doubled. on_result: hears of every routing and seed that is done.
    """
    warm_up = slots // 10 if warm_up is None else warm_up
    _refuse_odd(setting, slots, warm_up, sends, look)
    chosen = [routing(spec) for spec in routings]
    refuse_idle(setting, routings)
    process = own_arrivals(setting) if arrivals is None else arrivals
    drawn = [arriving(setting, process, slots, look, seed) for seed in seeds]
    offered = float(np.mean([one.counts[:, warm_up:].sum() for one in drawn])) / (slots - warm_up)
    if offered == 0:
        raise InvalidInput("arrivals", f"nothing comes in {slots:,} slots; ask for more of them, or a higher rate")
    phantoms = float(np.mean([_phantoms(one, warm_up) for one in drawn])) / (slots - warm_up)
    system, load = setting.limited(offered), setting.load(offered, phantoms)
    chosen_rule = None if setting.link is None else sends or USUAL_SENDING
    rule = None if chosen_rule is None else sending(chosen_rule)
    results = []
    for spec, policy in zip(routings, chosen, strict=True):
        outcomes = []
        for seed, coming in zip(seeds, drawn, strict=True):
            outcomes.append(simulate(system, coming, policy, rule, warm_up=warm_up, seed=seed, check=check))
            on_result(spec)
        results.append(Simulated(spec, tuple(outcomes)))
    return Simulation(load, setting.slot_ms, slots, warm_up, tuple(results), chosen_rule, process.rate)


def all_routings(setting: Setting, named: Sequence[str] = ()) -> list[str]:
    """Return every routing that has something to decide, those named with parameters in place of the bare ones."""
    able = [name for name in names(PolicyKind.ROUTING) if routing(name).keyed is not _free(setting)]
    own = {name: [spec for spec in named if spec.partition(":")[0] == name] for name in names(PolicyKind.ROUTING)}
    return [spec for name in names(PolicyKind.ROUTING) for spec in own[name] or ([name] if name in able else [])]


def planned_routing(tuples: TuplePolicies, topology: Topology) -> str | None:
    """Return the routing that a plan's policies give all streams that leave a choice; None where they name none.

    The simulator has one for all of them, so that a plan with several is refused.
    """
    ruled = routings(over(TuplePolicies(), tuples), topology)
    if not ruled:
        return None
    free = [stream.label for stream in topology.streams if stream.grouping in SPREADING] or list(ruled)
    found = {label: ruled.get(label, "as it is grouped") for label in free}
    if len(set(found.values())) == 1:
        return found[free[0]]
    told = ", ".join(f"{label} {spec}" for label, spec in found.items())
    problem = f"expected one routing for all streams, as a simulation has, got {told}; choose one by --routing"
    raise InvalidInput("tuples.streams", problem)


def refuse_idle(setting: Setting, routings: Sequence[str]) -> None:
    """Refuse routings that have nothing to decide."""
    if _free(setting):
        return
    for spec in routings:
        if not routing(spec).keyed:
            problem = (
                f"{spec} has nothing to decide: every stream of {setting.topology.name!r} goes by key or to all tasks"
            )
            raise InvalidInput("routing", f"{problem}; use fields, or give a stream the grouping shuffle")


def _free(setting: Setting) -> bool:
    """Tell whether a sender may choose on any stream."""
    return bool((~(setting.system.copies | setting.system.keyed)).any())


def own_arrivals(setting: Setting) -> ArrivalProcess:
    """Return Poisson arrivals at the application's own rate, or at a usual share of what it can carry."""
    offered = setting.topology.offered_tps if isinstance(setting.topology, Application) else None
    if offered is None:
        offered = USUAL_SHARE * setting.even_tps
    if not np.isfinite(offered):
        name = setting.topology.name
        problem = f"expected a rate, as {name!r} has none and nothing limits it; add --arrivals poisson:rate=NUMBER"
        raise InvalidInput("arrivals", problem)
    return Poisson(rate=offered)


def arriving(setting: Setting, process: ArrivalProcess, slots: int, look: Look, seed: int) -> Arrivals:
    """Draw what comes to every task in every slot, and what is said of it beforehand."""
    rng = np.random.default_rng([seed, 1])
    timed: ArrivalProcess = msgspec.structs.replace(process, slot=setting.slot_ms / 1e3)  # type: ignore[type-var]
    total = timed.counts(slots, rng)
    if total.sum() > MOST_TUPLES:
        problem = f"expected at most {MOST_TUPLES:,} source tuples, got {total.sum():,} in {slots:,} slots"
        raise InvalidInput("slots", f"{problem}; ask for fewer or shorter slots, or a lower rate")
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
    """Return how many tuples are foretold, once the warm-up is over, and never come."""
    if coming.predicted is None:
        return 0.0
    return float(np.maximum(coming.predicted - coming.counts, 0)[:, warm_up:].sum())


def _dealt(total: Longs, weights: Floats, even: bool, rng: np.random.Generator) -> Longs:
    """Deal the tuples of every slot to sources, at random or as evenly as whole tuples allow. [sources, slots]"""
    if not even:
        return np.ascontiguousarray(rng.multinomial(total, weights).T)
    ends = np.concatenate([[0.0], np.cumsum(weights)])
    ends[-1] = 1.0
    passed = np.concatenate([[0], np.cumsum(total)])
    edges = np.floor(np.multiply.outer(ends, passed.astype(np.float64)) + 0.5).astype(np.int64)
    dealt: Longs = np.diff(np.diff(edges, axis=0), axis=1)
    return dealt


def _refuse_odd(setting: Setting, slots: int, warm_up: int, sends: str | None, look: Look) -> None:
    if slots < 1:
        raise InvalidInput("slots", f"expected 1 or more, got {slots}")
    if not 0 <= warm_up < slots:
        raise InvalidInput("warm_up", f"expected 0 to {slots - 1} of the {slots} slots, got {warm_up}; add slots")
    if look.ahead < 0:
        raise InvalidInput("look_ahead", f"expected 0 slots or more, got {look.ahead}")
    if sends is not None:
        sending(sends)
        if setting.link is None:
            problem = f"{sends} has nothing to decide where a machine may send any number of tuples a slot"
            raise InvalidInput("sending", f"{problem}; add --link TUPLES")
