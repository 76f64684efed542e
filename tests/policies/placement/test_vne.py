import numpy as np
import pytest

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.placement import Constraint
from penstock.model.taskgraph import Floats
from penstock.model.topology import Component, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from penstock.policies.placement.vne import Arcs, components_of, machines_of, node_rank
from tests.policies.cases import chain, cluster, equal_machines, placed, refused
from tests.policies.placement.random_cases import arcs_of, random_mesh, random_network


def stationary(strength: Floats, neighbours: Floats, jump: float) -> Floats:
    """Solve rank = rank · P directly, P being written down from the paper's two probabilities; ranks add up to 1."""
    number = len(strength)
    step = np.zeros((number, number))
    for here in range(number):
        worth = neighbours[here] * strength
        move = 1 - jump if worth.sum() > 0 else 0.0
        step[here] = (1 - move) * strength / strength.sum() + (move * worth / worth.sum() if move else 0.0)
    equations = np.vstack([step.T - np.eye(number), np.ones(number)])
    wanted = np.concatenate([np.zeros(number), [1.0]])
    return np.asarray(np.linalg.lstsq(equations, wanted, rcond=None)[0])


@pytest.mark.parametrize("jump", [0.15, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(6))
def test_rank_solves_the_equations_of_the_walk(seed: int, jump: float) -> None:
    rng = np.random.default_rng(seed)
    number = int(rng.integers(2, 9))
    strength = rng.uniform(0.0, 5.0, number) * (rng.random(number) < 0.8)
    strength[0] = 1.0
    neighbours = (rng.random((number, number)) < 0.4) * (1.0 - np.eye(number))  # directed, in every other case
    neighbours = np.maximum(neighbours, neighbours.T) if seed % 2 else neighbours
    tail, head = np.nonzero(neighbours)
    arcs = Arcs(tail.astype(np.int32), head.astype(np.int32))
    found = node_rank(strength, arcs, jump, 1e-13, 10_000)
    assert found == pytest.approx(stationary(strength, neighbours, jump), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_on_a_mesh_all_are_neighbours(seed: int) -> None:
    strength, arcs = machines_of(random_mesh(seed))
    assert arcs is None
    everyone = 1.0 - np.eye(len(strength))
    assert node_rank(strength, None, 0.15, 1e-13, 10_000) == pytest.approx(
        stationary(strength, everyone, 0.15), abs=1e-9
    )


def test_nodes_of_strength_zero_rank_equally() -> None:
    assert node_rank(np.zeros(4), None, 0.15, 1e-12, 10).tolist() == [0.25] * 4


@pytest.mark.parametrize("seed", range(6))
def test_the_strength_of_a_machine_is_its_cpu_times_its_links(seed: int) -> None:
    view = random_network(seed)
    strength, arcs = machines_of(view)
    assert arcs is not None
    network = arcs_of(view)
    switch = view.slots.machines
    for machine in range(view.slots.machines):
        name = view.cluster.machines[machine].name
        around = [link.bandwidth_mbps for link in view.cluster.links if name in (link.source, link.target)]
        assert strength[machine] == pytest.approx(view.cluster.machines[machine].cpu * sum(around))
        expected = set(network.successors(machine))
        if switch in expected:
            expected |= set(network.successors(switch))
        assert set(arcs.head[arcs.tail == machine].tolist()) == expected - {switch, machine}


def test_the_strength_of_a_component_is_the_work_of_a_task_times_its_traffic() -> None:
    view = PlacementView(chain(1, 2, 1, cpu=3.0), equal_machines(2))
    strength, arcs = components_of(view)
    assert strength.tolist() == [3.0 * 100.0, 1.5 * (50.0 + 50.0), 3.0 * 100.0]
    assert sorted(zip(arcs.tail.tolist(), arcs.head.tolist(), strict=True)) == [(0, 1), (1, 0), (1, 2), (2, 1)]


def unequal_chain(pinned: str | None = None, memory_mb: float = 0.0) -> Topology:
    """Three components, `big` needing the most and `out` the least."""
    costs = {"in": 0.002, "big": 0.009, "out": 0.001}
    kinds = (Kind.SOURCE, Kind.OPERATOR, Kind.SINK)
    return Topology(
        name="unequal",
        components=tuple(
            Component(name=name, kind=kind, cpu=cpu, memory_mb=memory_mb, pinned=pinned if name == "in" else None)
            for (name, cpu), kind in zip(costs.items(), kinds, strict=True)
        ),
        streams=(Stream(source="in", target="big"), Stream(source="big", target="out")),
    )


SPEEDS = cluster(*(Machine(name=f"m{i}", speed=speed) for i, speed in enumerate([1.0, 4.0, 2.0])))


def test_matches_large_to_large() -> None:
    assert placed("vne", PlacementView(unequal_chain(), SPEEDS)) == [2, 1, 0]


def test_starts_another_round_when_all_machines_are_used() -> None:
    two = cluster(*SPEEDS.machines[:2])
    assert placed("vne", PlacementView(unequal_chain(), two)) == [0, 1, 1]


def test_a_pinned_task_takes_no_turn() -> None:
    assert placed("vne", PlacementView(unequal_chain(pinned="m1"), SPEEDS)) == [1, 1, 2]


def test_skips_machines_without_room() -> None:
    machines = [Machine(name="m0", memory_mb=300.0), Machine(name="m1", speed=4.0, memory_mb=50.0)]
    assert placed("vne", PlacementView(unequal_chain(memory_mb=100.0), cluster(*machines))) == [0, 0, 0]
    refusal = refused("vne", PlacementView(unequal_chain(memory_mb=200.0), cluster(*machines)))
    assert refusal.constraint is Constraint.MEMORY


def test_prefers_the_middle_of_a_star_to_its_tips() -> None:
    tips = tuple(Link(source="m1", target=f"m{i}", bandwidth_mbps=10.0) for i in (0, 2, 3))
    star = Cluster(name="star", machines=tuple(Machine(name=f"m{i}") for i in range(4)), links=tips)
    assert placed("vne", PlacementView(unequal_chain(), star))[1] == 1


def test_faster_network_cards_rank_higher() -> None:
    cards = [Machine(name=f"m{i}", network_mbps=mbps) for i, mbps in enumerate([10.0, 1000.0, 100.0])]
    assert placed("vne", PlacementView(unequal_chain(), cluster(*cards))) == [2, 1, 0]
    cards[0] = Machine(name="m0", network_mbps=10.0, receive_mbps=3000.0)
    assert placed("vne", PlacementView(unequal_chain(), cluster(*cards))) == [1, 0, 2]
