from itertools import pairwise

import msgspec
import numpy as np
import pytest

from penstock.estimate.bottleneck import elements
from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.kernel import interpreted
from penstock.model.placement import Constraint, Hop, Placement
from penstock.model.routes import widest_tree
from penstock.model.slotgraph import Links
from penstock.model.taskgraph import Floats, Ints
from penstock.model.topology import Application, Component, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from penstock.policies.placement.assignment import assign
from penstock.policies.placement.joint_routes import Network, charge_path, clear_path
from penstock.policies.placement.partial_placement import capacities_of, workload_of
from penstock.policies.placement.routed_traffic import add_hop, find_hop, no_hops, with_hops
from penstock.policies.placement.sparcle import Sparcle
from penstock.policies.placement.widest_trees import grow_tree, no_trees, renew_trees, reverse, use_tree, with_room
from penstock.workloads.networks import Capacities, jellyfish
from penstock.workloads.topologies import layered
from tests.policies.cases import answer, machines_of, placed, rate_of, refused
from tests.policies.placement.plain_kernels import throughout
from tests.policies.placement.random_cases import Case, random_mesh, random_network
from tests.policies.placement.test_greedy import EquationTwo
from tests.shared_data import needs_shared
from tests.sparcle_cases import Instance, build, hosts, instances

PAPER = Sparcle(ties="lowest", together=False)


@pytest.mark.slow
@needs_shared
@pytest.mark.parametrize("instance", instances(), ids=lambda instance: str(instance["id"]))
def test_agrees_with_the_reference_answers(instance: Instance) -> None:
    application, network = build(instance)
    placement = PAPER.place(PlacementView(application, network), np.random.default_rng(0))
    assert isinstance(placement, Placement)
    rate = Evaluator(application, network).evaluate(placement).throughput_tps
    assert hosts(network, placement) == instance["sparcle"]["host"]
    if not instance["ambiguous"]:
        assert rate == pytest.approx(instance["sparcle"]["rate"], rel=1e-9)
    elif instance["rates_under_ties"]:
        assert any(rate == pytest.approx(one, rel=1e-9) for one in instance["rates_under_ties"])
    else:
        lowest, highest = instance["rate_range_under_ties"]
        assert lowest * (1 - 1e-9) <= rate <= highest * (1 + 1e-9)


@pytest.mark.slow
@needs_shared
def test_near_ties_and_shared_links_raise_the_mean_rate_of_the_reference_instances() -> None:
    shares = []
    for instance in instances():
        view = PlacementView(*build(instance))
        policies = (PAPER, Sparcle(together=False), Sparcle())
        shares.append([rate_of(view, policy) / instance["optimum_ii"]["rate"] for policy in policies])
    paper, near, default = np.mean(shares, axis=0)
    assert paper < near < default


CT3, CT4 = 5.0, 7.0
TT1, TT2, TT3, TT4 = 800.0, 1600.0, 2400.0, 3200.0


def object_classification() -> tuple[Topology, Cluster]:
    """The application of Fig. 1 and the network of Fig. 2: four machines, eight links, of which L1, L2 and L6 matter.

    The cameras are on NCP1 and NCP3 and the consumer on NCP4; L1 joins NCP1 and NCP2, L2 NCP2 and NCP4, L6 NCP3 and
    NCP1. A data unit is one picture of each camera, a source tuple of ours is of one of them, hence twice as large.
    Eight links between four machines: some are of one direction.
    """
    topology = Topology(
        name="objects",
        components=(
            Component(name="CT1", kind=Kind.SOURCE, pinned="NCP1"),
            Component(name="CT2", kind=Kind.SOURCE, pinned="NCP3"),
            Component(name="CT3", cpu=CT3),
            Component(name="CT4", cpu=CT4),
            Component(name="CT5", kind=Kind.SINK, pinned="NCP4"),
        ),
        streams=(
            Stream(source="CT1", target="CT3", tuple_bytes=2 * TT1 / 8),
            Stream(source="CT2", target="CT3", tuple_bytes=2 * TT2 / 8),
            Stream(source="CT3", target="CT4", tuple_bytes=TT3 / 8),
            Stream(source="CT4", target="CT5", tuple_bytes=TT4 / 8),
        ),
    )
    ends = [(1, 2), (2, 4), (2, 3), (3, 4), (1, 4), (3, 1), (3, 2), (4, 3)]
    links = tuple(
        Link(source=f"NCP{a}", target=f"NCP{b}", bandwidth_mbps=1.0 + n, directed={a, b} in ({2, 3}, {3, 4}))
        for n, (a, b) in enumerate(ends)
    )
    return topology, Cluster(name="fig2", machines=tuple(Machine(name=f"NCP{n}") for n in range(1, 5)), links=links)


def test_loads_are_those_of_the_papers_worked_example() -> None:
    topology, network = object_classification()
    view = PlacementView(topology, network)
    where = {"CT1": 0, "CT2": 2, "CT3": 1, "CT4": 1, "CT5": 3}
    slots = tuple(where[topology.components[position].name] for position in view.tasks.position)
    placement = Placement(slots, {Hop(0, 0, 1): (0,), Hop(1, 2, 1): (5, 0), Hop(3, 1, 3): (1,)})
    found = elements(view.tasks, view.slots, network, placement)
    load = {element.name: element.load for element in found}
    names = [machine.name for machine in network.machines] + [link.label for link in network.links]
    vector = [load.get(name, 0.0) for name in names]
    assert vector == [0, CT3 + CT4, 0, 0, TT1 + TT2, TT4, 0, 0, 0, TT2, 0, 0]  # R of §IV-A
    limits = [1 / (CT3 + CT4), 2e6 / TT4, 6e6 / TT2, 1e6 / (TT1 + TT2)]
    assert found[0].rate_tps == pytest.approx(min(limits))


@pytest.mark.parametrize("case", [random_network, random_mesh])
@pytest.mark.parametrize("seed", range(10))
def test_takes_the_task_with_the_lowest_gamma_next_to_where_its_gamma_is_highest(case: Case, seed: int) -> None:
    view = case(seed)
    placement = PAPER.place(view, np.random.default_rng(seed))
    assert isinstance(placement, Placement)
    equation, machines = EquationTwo(view), range(view.slots.machines)
    for task in np.flatnonzero(view.pins >= 0).tolist():
        equation.put(task, placement.slots[task], placement)
    left = np.flatnonzero(view.pins < 0).tolist()
    while left:
        gamma = {task: [equation.gamma(task, machine) for machine in machines] for task in left}
        task = min(left, key=lambda task: (round(max(gamma[task]), 9), task))
        machine = int(view.slots.machine[placement.slots[task]])
        assert gamma[task][machine] == pytest.approx(max(gamma[task]), rel=1e-9), f"seed {seed}, task {task}"
        equation.put(task, placement.slots[task], placement)
        left.remove(task)


def there_and_back() -> PlacementView:
    """Source and sink on a slow machine; the link to a fast one can carry one transport, but not two."""
    topology = Topology(
        name="there-and-back",
        components=(
            Component(name="in", kind=Kind.SOURCE, pinned="slow"),
            Component(name="work", cpu=1.0),
            Component(name="out", kind=Kind.SINK, pinned="slow"),
        ),
        streams=tuple(Stream(source=a, target=b, tuple_bytes=1e6 / 8) for a, b in pairwise(("in", "work", "out"))),
    )
    machines = (Machine(name="slow"), Machine(name="fast", speed=3.0))
    link = Link(source="slow", target="fast", bandwidth_mbps=1.5)
    return PlacementView(topology, Cluster(name="two", machines=machines, links=(link,)))


def test_adds_up_transports_that_share_a_link_if_together_is_set() -> None:
    view = there_and_back()
    assert machines_of(view, placed("sparcle:together=false", view)).tolist() == [0, 1, 0]  # min(3, 1.5) > 1
    assert machines_of(view, placed("sparcle:together=true", view)).tolist() == [0, 0, 0]  # 1.5 / 2 < 1


def test_routes_around_a_link_that_is_shared() -> None:
    view = there_and_back()
    around = tuple(Link(source=name, target="relay", bandwidth_mbps=1.4) for name in ("slow", "fast"))
    links = (*view.cluster.links, *around)
    network = Cluster(name="two", machines=view.cluster.machines, switches=("relay",), links=links)
    twice = PlacementView(view.topology, network)
    assert machines_of(twice, placed("sparcle", twice)).tolist() == [0, 1, 0]
    result = answer("sparcle", twice)
    assert isinstance(result, Placement)
    assert sorted(map(sorted, result.routes.values())) == [[0], [1, 2]]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("spec", ["sparcle", "sparcle:ties=lowest", "sparcle:together=false"])
def test_does_not_use_the_random_generator(spec: str, seed: int) -> None:
    for view in (random_network(seed), random_mesh(seed)):
        assert answer(spec, view, seed=1) == answer(spec, view, seed=2)


def test_serves_several_sources_and_sinks_over_directed_links() -> None:
    ring = tuple(Link(source=f"m{i}", target=f"m{(i + 1) % 4}", bandwidth_mbps=1.0, directed=True) for i in range(4))
    network = Cluster(name="ring", machines=tuple(Machine(name=f"m{i}", speed=1.0 + i) for i in range(4)), links=ring)
    names = {"a": Kind.SOURCE, "b": Kind.SOURCE, "mix": Kind.OPERATOR, "y": Kind.SINK, "z": Kind.SINK}
    pins = {"a": "m0", "b": "m1", "y": "m2", "z": "m3"}
    components = tuple(Component(name=n, kind=k, cpu=0.01, pinned=pins.get(n)) for n, k in names.items())
    loads = (("a", "mix"), ("b", "mix"), ("mix", "y"), ("mix", "z"))
    streams = tuple(Stream(source=a, target=b, tuple_bytes=1000.0) for a, b in loads)
    view = PlacementView(Application(name="many", components=components, streams=streams), network)
    result = answer("sparcle", view)
    assert isinstance(result, Placement)
    best = max(
        Evaluator(view.topology, network).evaluate(candidate).throughput_tps
        for machine in range(4)
        if isinstance(candidate := _with_mix_on(view, machine), Placement)
    )
    assert Evaluator(view.topology, network).evaluate(result).throughput_tps == pytest.approx(best)


def _with_mix_on(view: PlacementView, machine: int) -> object:
    pinned = tuple(
        Component(name=c.name, kind=c.kind, cpu=c.cpu, pinned=c.pinned or f"m{machine}")
        for c in view.topology.components
    )
    return answer(
        "sparcle", PlacementView(Topology(name="t", components=pinned, streams=view.topology.streams), view.cluster)
    )


def test_refuses_a_network_without_a_path() -> None:
    view = there_and_back()
    machines = (*view.cluster.machines, Machine(name="far"))
    components = (*view.topology.components[:2], Component(name="out", kind=Kind.SINK, pinned="far"))
    apart = Cluster(name="apart", machines=machines, links=view.cluster.links)
    topology = Topology(name="apart", components=components, streams=view.topology.streams)
    assert refused("sparcle", PlacementView(topology, apart)).constraint is Constraint.ROUTE


def heap_for(links: Links) -> tuple[Floats, Ints]:
    return np.empty(len(links.head) + 1), np.empty(len(links.head) + 1, dtype=np.int32)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_cached_trees_equal_recomputed_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    view = random_network(seed)
    links, back = view.links, reverse(view.links)
    load, charged = np.zeros(len(links.bandwidth)), np.zeros(len(links.bandwidth), dtype=np.bool_)
    trees, known = no_trees(1, links.nodes, view.slots.machines), []
    for step in range(12):
        towards, root, bits = bool(rng.integers(2)), int(rng.integers(view.slots.machines)), float(rng.uniform(1, 1e6))
        trees = with_room(trees, 1)
        known.append((use_tree(trees, towards, root, bits), towards, root, bits))
        renew_trees(trees, charged, links, back, load, *heap_for(links))
        for number, towards, root, bits in known:
            width, _, _ = widest_tree(back if towards else links, load, bits, root, -1)
            assert trees.width[number].tolist() == width.tolist(), f"seed {seed}, step {step}"
        charged = np.arange(len(load)) == rng.integers(len(load))
        load[charged] += rng.uniform(0, 1e6)


@pytest.mark.slow
def test_a_tree_is_shared_by_its_users_and_recomputed_after_it_had_none() -> None:
    links = random_network(0).links
    trees, back, load = no_trees(4, links.nodes, 3), reverse(links), np.zeros(len(links.bandwidth))
    quiet = np.zeros(len(load), dtype=np.bool_)
    assert [use_tree(trees, False, 1, 8.0), use_tree(trees, True, 1, 8.0), use_tree(trees, False, 1, 9.0)] == [0, 1, 2]
    assert use_tree(trees, False, 1, 8.0) == 0
    renew_trees(trees, quiet, links, back, load, *heap_for(links))
    assert trees.renewed.tolist() == [True, True, True, False]
    trees.users[:2] -= 1  # the first has another user, the second none
    load += 1e6
    renew_trees(trees, quiet, links, back, load, *heap_for(links))
    assert not trees.renewed.any()
    assert [use_tree(trees, False, 1, 8.0), use_tree(trees, True, 1, 8.0)] == [0, 1]
    renew_trees(trees, quiet, links, back, load, *heap_for(links))
    assert trees.renewed.tolist() == [False, True, False, False]


def leaves_on_switches(seed: int) -> PlacementView:
    """Machines with one link each, to a network of switches, and a graph of which some tasks are equivalent."""
    capacities = Capacities(cores=1, slots=1, bandwidth_mbps=2.2, spread=0.5, memory_mb=1e6)
    network = jellyfish(switches=12, degree=3, servers=12, capacities=capacities, seed=seed)
    return PlacementView(layered(components=9, depth=4, parallelism=1 + seed % 2, memory_mb=1.0, seed=seed), network)


@pytest.mark.parametrize("seed", range(8))
def test_the_shortcut_for_an_only_link_changes_nothing(seed: int) -> None:
    view = leaves_on_switches(seed)
    ends = [(link.source, link.target) for link in view.cluster.links]
    machines = {machine.name for machine in view.cluster.machines}
    useless = tuple(Link(source=b, target=a, bandwidth_mbps=1e-9) for a, b in ends if {a, b} & machines)
    assert len(useless) == len(machines)  # one each, so that the first is not the only one any more
    doubled = msgspec.structs.replace(view.cluster, links=(*view.cluster.links, *useless))
    assert answer("sparcle", view) == answer("sparcle", PlacementView(view.topology, doubled))


@np.errstate(divide="ignore")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("case", [random_network, random_mesh, leaves_on_switches])
def test_the_compiled_assignment_equals_the_interpreted_one(case: Case, seed: int) -> None:
    view = case(seed)
    workload, limits, nobody = workload_of(view), capacities_of(view), np.empty(0, dtype=np.int32)
    for near, together in ((True, True), (False, False)):
        made = [run(workload, limits, near, together, nobody) for run in (assign, throughout(assign, {}))]
        assert made[0].slot.tolist() == made[1].slot.tolist()
        number = made[0].hops.filled[0]
        assert number == made[1].hops.filled[0]
        assert made[0].hops.first[: number + 1].tolist() == made[1].hops.first[: number + 1].tolist()
        assert made[0].free.tolist() == made[1].free.tolist()


@pytest.mark.slow
def test_hops_keep_their_routes_when_arrays_grow() -> None:
    hops = no_hops(1, 1, 2)
    line = np.array([-1, 0, 1, 2], dtype=np.int32)  # node 3 is reached from 2, that from 1, that from 0
    paths = {(0, 0, 2): [5, 6], (1, 0, 1): [5], (0, 0, 3): [5, 6, 7]}
    for stream, source, target in paths:
        hops = with_hops(hops, 1, len(line))
        add_hop(hops, stream, source, target, line, np.array([-1, 5, 6, 7], dtype=np.int32))
    for hop, links in paths.items():
        number = find_hop(hops, *hop)
        assert hops.links[hops.first[number] : hops.first[number + 1]].tolist() == links
    assert find_hop(hops, 1, 0, 2) == -1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_compiled_kernels_equal_interpreted_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    links = random_network(seed).links
    load = rng.uniform(0.0, 1e6, len(links.bandwidth))
    made = []
    for grow in (grow_tree, interpreted(grow_tree)):
        width, tail, via = np.zeros(links.nodes), *(np.zeros(links.nodes, dtype=np.int32) for _ in range(2))
        heap = np.zeros(len(links.head) + 1), np.zeros(len(links.head) + 1, dtype=np.int32)
        grow(links, load, 1e5, 0, -1, width, tail, via, *heap)
        made.append((width.tolist(), tail.tolist(), via.tolist()))
    assert made[0] == made[1]
    loads = Network(links, reverse(links), load)
    for node in range(links.nodes):
        added, again = np.zeros(len(load)), np.zeros(len(load))
        charge_path(added, 1e5, tail, via, node)
        interpreted(charge_path)(again, 1e5, tail, via, node)
        assert added.tolist() == again.tolist()
        assert clear_path(added, tail, via, node, loads) == interpreted(clear_path)(again, tail, via, node, loads)
        assert not added.any()
        assert not again.any()
