from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import permutations

import networkx as nx
import numpy as np
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.kernel import interpreted
from penstock.model.placement import Constraint, Hop, Infeasible, Placement
from penstock.model.routes import fewest_links
from penstock.model.taskgraph import expand_edges
from penstock.model.topology import Component, Grouping, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from penstock.policies.placement.assignment import assign
from penstock.policies.placement.equivalent_tasks import find_partners, group_equivalent, no_partners
from penstock.policies.placement.greedy_random import GreedyRandom
from penstock.policies.placement.greedy_sorted import GreedySorted, requirement
from penstock.policies.placement.imposed_rate import Ties, place_in_order
from penstock.policies.placement.partial_placement import (
    Placed,
    capacities_of,
    clear_placement,
    empty_placement,
    put,
    set_exchange,
    workload_of,
)
from penstock.policies.placement.transports import find_between
from penstock.policies.placement.widest_trees import reverse
from tests.policies.cases import chain, cluster, equal_machines, machines_of, placed, refused
from tests.policies.placement.plain_kernels import throughout
from tests.policies.placement.random_cases import Case, arcs_of, random_mesh, random_network
from tests.shared_data import needs_shared
from tests.sparcle_cases import Instance, build, instances


class EquationTwo:
    """γ of eq. (2), computed directly: every task, every path and every link, for each query."""

    def __init__(self, view: PlacementView) -> None:
        self.view = view
        self.machine: dict[int, int] = {}
        self.slot: dict[int, int] = {}
        self.load: dict[object, float] = defaultdict(
            float
        )  # bits per source tuple on links, or on cards by (machine, direction)
        self.network = arcs_of(view)
        edges = expand_edges(view.tasks)
        self.pairs = list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))
        self.bits = (view.tasks.gain[edges.source] * edges.share * edges.tuple_bytes * 8).tolist()
        self.stream = edges.stream.tolist()
        self.tasks = nx.DiGraph(self.pairs)
        component = view.tasks.component.tolist()
        self.components = nx.DiGraph((component[a], component[b]) for a, b in self.pairs)
        self.on_stream = {
            (component[a], component[b]): bits for (a, b), bits in zip(self.pairs, self.bits, strict=True)
        }

    def gamma(self, task: int, machine: int) -> float:
        limits = [*self._processing(task, machine), *self._network(task, machine)]
        return min(limits, default=np.inf)

    def _processing(self, task: int, machine: int) -> Iterable[float]:
        view, tasks, slots = self.view, self.view.tasks, self.view.slots
        here = [task, *(other for other, at in self.machine.items() if at == machine)]
        yield slots.machine_cpu[machine] / sum(view.work[t] for t in here)
        by_slot = dict.fromkeys(range(slots.first[machine], slots.first[machine + 1]), 0.0)
        for other in here[1:]:
            by_slot[self.slot[other]] += view.work[other]
        yield slots.cpu[slots.first[machine]] / (min(by_slot.values()) + view.work[task])
        for resource in range(len(tasks.resources)):
            need = sum(tasks.needs[t, resource] * tasks.gain[t] for t in here)
            if need > 0:
                yield slots.capacity[machine, resource] / need

    def _network(self, task: int, machine: int) -> Iterable[float]:
        for leaves, reached in ((True, nx.descendants(self.tasks, task)), (False, nx.ancestors(self.tasks, task))):
            partners = Counter(
                (int(self.view.tasks.component[other]), self.machine[other])
                for other in reached
                if other in self.machine and self.machine[other] != machine
            )
            for (component, other), count in partners.items():
                bits = self._smallest(int(self.view.tasks.component[task]), component, leaves) * count
                if self.view.cluster.routed:
                    yield self.widest(bits, *((machine, other) if leaves else (other, machine)))
                else:
                    yield self._card(other, "in" if leaves else "out", bits)
            for component in {component for component, _ in partners} if not self.view.cluster.routed else ():
                elsewhere = sum(count for (c, _), count in partners.items() if c == component)
                bits = self._smallest(int(self.view.tasks.component[task]), component, leaves) * elsewhere
                yield self._card(machine, "out" if leaves else "in", bits)

    def _card(self, machine: int, way: str, bits: float) -> float:
        return float(
            self.view.slots.machine_network[("out", "in").index(way), machine] / (self.load[machine, way] + bits)
        )

    def _smallest(self, component: int, other: int, leaves: bool) -> float:
        start, end = (component, other) if leaves else (other, component)
        below = nx.descendants(self.components, start) | {start}
        above = nx.ancestors(self.components, end) | {end}
        return min(float(bits) for (a, b), bits in self.on_stream.items() if a in below and b in above)

    def rate(self, bits: float, links: Iterable[int]) -> float:
        bandwidth = self.view.links.bandwidth
        return min((float(bandwidth[link] / (self.load[link] + bits)) for link in links), default=np.inf)

    def widest(self, bits: float, source: int, target: int) -> float:
        paths = nx.all_simple_edge_paths(self.network, source, target)
        return max((self.rate(bits, [link for _, _, link in path]) for path in paths), default=0.0)

    def put(self, task: int, slot: int, placement: Placement) -> None:
        machine = int(self.view.slots.machine[slot])
        self.machine[task], self.slot[task] = machine, slot
        new: dict[Hop, float] = defaultdict(float)
        for (a, b), bits, stream in zip(self.pairs, self.bits, self.stream, strict=True):
            if task in (a, b) and a in self.machine and b in self.machine and self.machine[a] != self.machine[b]:
                new[Hop(stream, self.machine[a], self.machine[b])] += bits
        for hop, bits in sorted(new.items()):
            if self.view.cluster.routed:
                self._charge(hop, bits, placement.routes[hop])
            else:
                self.load[hop.source, "out"] += bits
                self.load[hop.target, "in"] += bits

    def _charge(self, hop: Hop, bits: float, links: tuple[int, ...]) -> None:
        if not self.load[hop]:  # the first to take this hop chose its route
            assert self.rate(bits, links) == pytest.approx(self.widest(bits, hop.source, hop.target), rel=1e-9)
        self.load[hop] += bits
        for link in links:
            self.load[link] += bits


@pytest.mark.slow
@pytest.mark.parametrize("case", [random_network, random_mesh])
@pytest.mark.parametrize("ties", ["lowest", "near"])
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("by_need", [True, False])
def test_puts_every_task_where_equation_two_is_highest(case: Case, ties: Ties, seed: int, by_need: bool) -> None:
    view, rng = case(seed), np.random.default_rng(seed)
    placement = (GreedySorted(ties=ties) if by_need else GreedyRandom(ties=ties)).place(view, rng)
    assert isinstance(placement, Placement)
    shuffled = np.random.default_rng(seed).permutation(view.tasks.number)
    order = np.argsort(-requirement(view), kind="stable") if by_need else shuffled
    equation = EquationTwo(view)
    pinned = np.flatnonzero(view.pins >= 0).tolist()
    free = [task for task in order.tolist() if view.pins[task] < 0]
    for task in pinned + free:
        machine = int(view.slots.machine[placement.slots[task]])
        if view.pins[task] < 0:
            gamma = [equation.gamma(task, m) for m in range(view.slots.machines)]
            assert gamma[machine] == pytest.approx(max(gamma), rel=1e-9), f"seed {seed}, task {task}"
            better_before = max(gamma[:machine], default=0.0)
            assert ties == "near" or better_before < gamma[machine] * (1 + 1e-9)
        equation.put(task, placement.slots[task], placement)


@needs_shared
@pytest.mark.parametrize("instance", instances()[::4], ids=lambda instance: str(instance["id"]))
def test_the_mean_over_all_orders_equals_the_reference_of_gr(instance: Instance) -> None:
    application, network = build(instance)
    view, evaluator = PlacementView(application, network), Evaluator(application, network)
    rates = []
    for order in permutations(np.flatnonzero(view.pins < 0).tolist()):
        placement = place_in_order(view, order, "lowest")
        assert isinstance(placement, Placement)
        rates.append(evaluator.evaluate(placement).throughput_tps)
    assert np.mean(rates) == pytest.approx(instance["baselines"]["gr_mean_over_orders"]["rate"], rel=1e-9)


@needs_shared
def test_near_ties_raise_the_mean_rate_of_the_reference_instances() -> None:
    gain = []
    for instance in instances():
        application, network = build(instance)
        view, evaluator = PlacementView(application, network), Evaluator(application, network)
        near, lowest = GreedySorted().place(view, np.random.default_rng(0)), instance["baselines"]["gs"]["rate"]
        assert isinstance(near, Placement)
        gain.append((evaluator.evaluate(near).throughput_tps - lowest) / instance["optimum_ii"]["rate"])
    assert np.mean(gain) > 0


def line(bandwidth_mbps: float) -> Cluster:
    links = tuple(Link(source=f"m{i}", target=f"m{i + 1}", bandwidth_mbps=bandwidth_mbps) for i in range(3))
    return Cluster(name="line", machines=tuple(Machine(name=f"m{i}", speed=1.0 + i) for i in range(4)), links=links)


def pinned_pipeline() -> Topology:
    """A source on m3 that sends 8 kbit to `work`, and `work` 8 kbit to a sink on m1."""
    return Topology(
        name="pipeline",
        components=(
            Component(name="in", kind=Kind.SOURCE, pinned="m3"),
            Component(name="work", cpu=0.001),
            Component(name="out", kind=Kind.SINK, pinned="m1"),
        ),
        streams=(
            Stream(source="in", target="work", tuple_bytes=1000.0),
            Stream(source="work", target="out", tuple_bytes=1000.0),
        ),
    )


def test_breaks_ties_by_the_named_rule() -> None:
    view = PlacementView(pinned_pipeline(), line(bandwidth_mbps=1.0))
    # All machines are limited to 125 tuples per second by the links on the path.
    assert machines_of(view, placed("greedy-sorted:ties=lowest", view)).tolist() == [3, 0, 1]
    # m1, m2, m3 are nearer than m0, and of these m3 is the fastest.
    assert machines_of(view, placed("greedy-sorted:ties=near", view)).tolist() == [3, 3, 1]


def test_places_the_most_demanding_task_first() -> None:
    topology = Topology(
        name="unequal",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=0.001),
            Component(name="heavy", kind=Kind.SINK, cpu=0.004),
        ),
        streams=(Stream(source="in", target="heavy"),),
    )
    view = PlacementView(topology, cluster(Machine(name="slow"), Machine(name="fast", speed=4.0)))
    assert placed("greedy-sorted", view) == [0, 1]  # first come, first served would give `in` the fast machine
    assert placed("greedy-sorted", PlacementView(topology, cluster(*view.cluster.machines[::-1]))) == [1, 0]


def test_considers_all_resources_or_cpu_only() -> None:
    topology = Topology(
        name="unequal",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=0.001, resources={"gpu": 0.004}),
            Component(name="out", kind=Kind.SINK, cpu=0.002, resources={"gpu": 0.001}),
        ),
        streams=(Stream(source="in", target="out"),),
    )
    view = PlacementView(topology, equal_machines(2, resources={"gpu": 1.0}))
    assert requirement(view).tolist() == pytest.approx([0.001 / 2 + 0.004 / 2, 0.002 / 2 + 0.001 / 2])
    assert placed("greedy-sorted:ties=lowest,measure=cpu", view) == [1, 0]
    assert placed("greedy-sorted:ties=lowest,measure=total", view) == [0, 1]


def test_keeps_tasks_with_much_traffic_off_slow_network_cards() -> None:
    machines = [Machine(name=f"m{i}", slots=4, network_mbps=0.001 if i else 100.0) for i in range(3)]
    view = PlacementView(chain(1, 2, 1, cpu=1e-6), cluster(*machines))
    assert set(machines_of(view, placed("greedy-sorted", view))) == {0}
    free = PlacementView(chain(1, 2, 1, cpu=1e-6), equal_machines(3, slots=4))
    assert len(set(machines_of(free, placed("greedy-sorted", free)))) == 3


@pytest.mark.parametrize("policy", ["greedy-sorted", "greedy-random"])
def test_refuses_a_network_without_a_path(policy: str) -> None:
    apart = Cluster(
        name="apart",
        machines=tuple(Machine(name=f"m{i}") for i in range(4)),
        links=(Link(source="m0", target="m1", bandwidth_mbps=1.0), Link(source="m2", target="m3", bandwidth_mbps=1.0)),
    )
    assert refused(policy, PlacementView(pinned_pipeline(), apart)).constraint is Constraint.ROUTE
    alone = PlacementView(chain(1, 1, 1, cpu=0.001), apart)
    assert set(machines_of(alone, placed(policy, alone))) in ({0, 1}, {2, 3})


def test_refuses_with_a_proof_if_a_task_has_no_room() -> None:
    refusal = refused(
        "greedy-sorted", PlacementView(chain(1, 3, 1, memory_mb=60.0), equal_machines(2, memory_mb=130.0))
    )
    assert refusal.constraint is Constraint.MEMORY
    assert refusal.proven
    assert (refusal.needed, refusal.available) == (300.0, 260.0)


def test_random_order_follows_the_generator() -> None:
    view = random_network(0)
    policy = GreedyRandom()

    def by(seed: int) -> Placement | Infeasible:
        return policy.place(view, np.random.default_rng(seed))

    assert by(1) == by(1)
    assert len({str(by(seed)) for seed in range(20)}) > 1


def test_only_the_task_that_a_global_stream_feeds_attracts() -> None:
    view = PlacementView(chain(2, 3, grouping=Grouping.GLOBAL), equal_machines(3))
    workload, placed = workload_of(view), place_machines(view, {2: 0, 3: 1, 4: 2})
    bits = np.empty(3)
    throughout(set_exchange, {})(workload, placed, 0, 0, True, bits)
    assert bits.tolist() == [0.5 * 100 * 8, 0.0, 0.0]
    assert placed.tasks_on[1].tolist() == [1.0, 0.0, 0.0]


def place_machines(view: PlacementView, machines: dict[int, int]) -> Placed:
    """Return a placement with these tasks on these machines, and no others."""
    workload, limits, plain = workload_of(view), capacities_of(view), throughout(put, {})
    placed = empty_placement(workload, limits)
    interpreted(clear_placement)(placed, limits)
    for task, machine in machines.items():
        plain(placed, workload, limits, task, machine)
    return placed


def test_task_k_reaches_only_task_k_if_all_streams_between_are_forward() -> None:
    kinds = (Kind.SOURCE, Kind.OPERATOR, Kind.OPERATOR, Kind.SINK)
    groupings = (Grouping.FORWARD, Grouping.FORWARD, Grouping.SHUFFLE)
    topology = Topology(
        name="forward",
        components=tuple(Component(name=f"c{i}", kind=kind, parallelism=2) for i, kind in enumerate(kinds)),
        streams=tuple(
            Stream(source=f"c{i}", target=f"c{i + 1}", grouping=grouping, tuple_bytes=10.0 * (i + 1))
            for i, grouping in enumerate(groupings)
        ),
    )
    view = PlacementView(topology, equal_machines(4))
    workload = workload_of(view)
    between = find_between(workload.streams, workload.first, workload.gain, np.zeros(4, dtype=np.bool_))
    assert between.aligned[0].tolist() == [False, True, True, False]
    assert between.aligned[1].tolist() == [False, False, True, False]
    # Half a tuple of 10 bytes is the minimum on every path from c0.
    assert between.bits[0].tolist() == [np.inf, 40.0, 40.0, 40.0]
    assert between.bits[2].tolist() == [np.inf, np.inf, np.inf, 60.0]  # a quarter of a tuple of 30 bytes
    groups, placed = group_equivalent(workload, between), place_machines(view, {5: 3})
    partners = no_partners(len(groups.task))

    def partners_of(task: int, sends: bool) -> list[int]:
        found = throughout(find_partners, {})(partners, groups, between, workload, placed, task, sends)
        return [int(groups.task[group]) for group in partners.group[:found]]

    assert partners_of(5, sends=True) == [1, 3]
    assert partners_of(5, sends=False) == [6]  # which is equivalent to 7


@pytest.mark.parametrize("order", [(4, 3, 2, 1), (3, 1, 4, 2)])
def test_the_order_of_equivalent_tasks_makes_no_difference(order: tuple[int, ...]) -> None:
    machines = [Machine(name=f"m{i}", speed=1.0 + i, slots=2, memory_mb=130.0) for i in range(4)]
    topology, links = chain(1, 4, 1, cpu=0.01, memory_mb=60.0), line(bandwidth_mbps=1.0).links
    for network in (cluster(*machines), Cluster(name="line", machines=tuple(machines), links=links)):
        view = PlacementView(topology, network)
        by_number = place_in_order(view, [0, 1, 2, 3, 4, 5], "near")
        other = place_in_order(view, [0, *order, 5], "near")
        assert isinstance(by_number, Placement)
        assert isinstance(other, Placement)
        assert [other.slots[task] for task in order] == list(by_number.slots[1:5])
        assert (other.slots[0], other.slots[5]) == (by_number.slots[0], by_number.slots[5])
        assert dict(other.routes) == dict(by_number.routes)


@np.errstate(divide="ignore")
@pytest.mark.parametrize("near", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_an_order_is_placed_the_same_interpreted(seed: int, near: bool) -> None:
    for view in (random_network(seed), random_mesh(seed)):
        order = np.random.default_rng(seed).permutation(view.tasks.number).astype(np.int32)
        made = [
            run(workload_of(view), capacities_of(view), near, False, order) for run in (assign, throughout(assign, {}))
        ]
        assert made[0].slot.tolist() == made[1].slot.tolist()
        number = made[0].hops.filled[0]
        assert number == made[1].hops.filled[0]
        taken = made[0].hops.first[number]
        assert made[0].hops.links[:taken].tolist() == made[1].hops.links[:taken].tolist()


@pytest.mark.parametrize("seed", range(4))
def test_the_fewest_links_are_those_of_networkx_and_the_same_interpreted(seed: int) -> None:
    view = random_network(seed)
    graph = nx.DiGraph(arcs_of(view))
    for links, arcs in ((view.links, graph), (reverse(view.links), graph.reverse())):
        lengths = nx.single_source_shortest_path_length(arcs, 0)
        assert fewest_links(links, 0).tolist() == interpreted(fewest_links)(links, 0).tolist()
        assert fewest_links(links, 0).tolist() == [lengths.get(node, np.inf) for node in range(links.nodes)]
