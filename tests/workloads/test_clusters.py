from itertools import product

import numpy as np
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.objective import Objective
from penstock.model.slotgraph import expand_slots
from penstock.workloads.applications import application
from penstock.workloads.clusters import CLUSTERS, cluster, draw_slots, hetero


@pytest.mark.parametrize("name", CLUSTERS)
def test_every_name_creates_a_cluster_of_that_name(name: str) -> None:
    found = cluster(name)
    assert found.name == name
    assert found == cluster(name)


@pytest.mark.parametrize(
    ("name", "machines", "switches", "links"),
    [
        ("li-10", 10, 0, 0),
        ("tata-3", 3, 0, 0),
        ("homogeneous-8", 8, 0, 0),
        ("hetero-small", 4, 0, 0),
        ("hetero-medium", 10, 0, 0),
        ("hetero-large", 40, 0, 0),
        ("field-and-cloud", 5, 1, 5),
        ("star-8", 8, 1, 8),
        ("line-8", 8, 0, 7),
        ("complete-6", 6, 0, 15),
        ("fat-tree", 16, 24, 64),
        ("jellyfish", 16, 24, 64),
    ],
)
def test_has_the_size_in_its_name(name: str, machines: int, switches: int, links: int) -> None:
    found = cluster(name)
    assert (len(found.machines), len(found.switches), len(found.links)) == (machines, switches, links)


def test_dissertations_machines_have_ten_slots_and_four_cores() -> None:
    (machine,) = {
        (m.cores, m.speed, m.memory_mb, m.slots, m.network_mbps, m.processes) for m in cluster("li-10").machines
    }
    assert machine == (4, 1.0, 4096.0, 10, 1000.0, 1)


def test_task_managers_are_the_papers() -> None:
    described = [(m.cores, m.speed * 2.0, m.memory_mb, m.slots) for m in cluster("tata-3").machines]
    assert described == [(1, 2.5, 2048, 2), (2, 2.0, 4096, 2), (4, 2.6, 8192, 2)]


def test_random_machines_differ() -> None:
    machines = cluster("hetero-large").machines
    assert {m.cores for m in machines} == {1, 2, 4, 8}
    assert len({m.speed for m in machines}) > 10
    assert all(m.slots == m.cores for m in machines)


def test_settings_and_seed_determine_a_random_cluster() -> None:
    found = cluster("hetero:machines=20,seed=3")
    assert found.name == "hetero:machines=20,seed=3"
    assert found.machines == hetero(20, 3).machines
    assert found.machines != cluster("hetero:machines=20,seed=4").machines


def test_networks_take_capacities() -> None:
    found = cluster("star-8:machines=5,bandwidth_mbps=50,slots=1")
    assert len(found.machines) == 5
    assert {link.bandwidth_mbps for link in found.links} == {50.0}
    assert len(cluster("fat-tree:machines=32").machines) == 32


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("hetero:machines=0", "cluster.hetero.machines: expected a whole number ≥ 1, got '0'"),
        ("hetero:size=3", "cluster.hetero: no parameter is named 'size'; there are machines, seed"),
        ("fat-tree:machines=17", "cluster.fat-tree.machines: expected a multiple of the 8 edge switches, got 17"),
        ("star-8:spread=2", "cluster.star-8.spread: expected a number ≤ 1, got '2'"),
    ],
)
def test_rejects_a_wrong_setting(spec: str, message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        cluster(spec)
    assert str(refused.value) == message


def test_an_unknown_name_is_rejected_with_the_choices() -> None:
    with pytest.raises(UnknownName, match=r"cluster: unknown name 'lan'; there are complete-6, fat-tree"):
        cluster("lan")


def best_and_cloud_rate(field_mbps: float) -> tuple[float, float]:
    """The best rate of the face detection with both ends on the first field machine, and that of the cloud alone."""
    faces = application("face-detection:camera=field1,consumer=field1")
    testbed = cluster(f"field-and-cloud:field_mbps={field_mbps}")
    places = range(len(testbed.machines))
    placements = [(0, *middle, 0) for middle in product(places, repeat=4)]
    rates = Evaluator(faces, testbed).scorer(Objective.THROUGHPUT)(np.array(placements, dtype=np.int32))
    return float(rates.max()), float(rates[placements.index((0, *[places[-1]] * 4, 0))])


def test_cloud_is_best_at_ten_megabits_only() -> None:
    """SPARCLE Fig. 6: dispersed computing wins by far on a thin field network, not at 10 Mbps, by a little at 22."""
    gain = {mbps: best / cloud for mbps in (0.5, 10, 22) for best, cloud in [best_and_cloud_rate(mbps)]}
    assert gain[0.5] > 9
    assert gain[10] == pytest.approx(1.0)
    assert gain[22] == pytest.approx(1.17, abs=0.01)


def test_the_cloud_has_four_cores_if_not_pooled() -> None:
    pooled, apart = cluster("field-and-cloud").machines[-1], cluster("field-and-cloud:pooled=false").machines[-1]
    assert pooled.cpu == pytest.approx(apart.cpu) == pytest.approx(15.2)
    assert apart.slots == 4


@pytest.fixture(scope="module")
def slot_graphs() -> list[Cluster]:
    rng = np.random.default_rng(7)
    return [draw_slots(rng) for _ in range(1500)]


def test_slot_graphs_stay_within_the_data_sets_ranges(slot_graphs: list[Cluster]) -> None:
    assert {found.slot_count for found in slot_graphs} == set(range(2, 16))
    assert {m.speed for found in slot_graphs for m in found.machines} == set(range(20, 41))
    memory = [m.slot_memory_mb or 0.0 for found in slot_graphs for m in found.machines]
    assert 1024 <= min(memory) < 1040 < 2030 < max(memory) <= 2048


def test_seventy_two_percent_of_slot_graphs_are_heterogeneous(slot_graphs: list[Cluster]) -> None:
    mixed = [len({(m.speed, m.slot_memory_mb) for m in found.machines}) > 1 for found in slot_graphs]
    assert np.mean(mixed) == pytest.approx(0.72, abs=0.04)


def test_processes_share_hosts_with_their_neighbours(slot_graphs: list[Cluster]) -> None:
    sharing = 0
    for found in slot_graphs:
        slots = expand_slots(found)
        assert (np.diff(slots.host) >= 0).all()
        assert slots.host[-1] <= slots.process[-1]
        sharing += slots.host[-1] < slots.process[-1]
    assert 0.3 < sharing / len(slot_graphs) < 0.9


def test_equal_seeds_give_equal_slot_graphs() -> None:
    assert draw_slots(5) == draw_slots(np.random.default_rng(5))
    assert draw_slots(5) != draw_slots(6)
