from collections import Counter

import networkx
import numpy as np
import pytest

from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.workloads.networks import Capacities, complete, fat_tree, jellyfish, line, random_regular_graph, star


def graph(cluster: Cluster) -> networkx.Graph:
    found = networkx.Graph()
    found.add_nodes_from(cluster.node_index)
    found.add_edges_from((link.source, link.target) for link in cluster.links)
    return found


@pytest.mark.parametrize("build", [star, line, complete, fat_tree, jellyfish])
def test_every_network_is_connected(build: object) -> None:
    assert callable(build)
    assert networkx.is_connected(graph(build()))


@pytest.mark.parametrize("build", [fat_tree, jellyfish])
def test_potus_fabrics_have_24_switches_and_16_servers(build: object) -> None:
    assert callable(build)
    cluster = build()
    assert (len(cluster.switches), len(cluster.machines)) == (24, 16)


def test_fat_tree_has_three_tiers() -> None:
    cluster = fat_tree()
    degrees = dict(graph(cluster).degree)
    assert Counter(name.rstrip("0123456789") for name in cluster.switches) == {"edge": 8, "aggregation": 8, "core": 8}
    assert {degrees[m.name] for m in cluster.machines} == {1}
    assert {degrees[s] for s in cluster.switches if s.startswith("edge")} == {4}  # two servers, two up
    assert {degrees[s] for s in cluster.switches if s.startswith("aggregation")} == {6}  # two down, four up
    assert {degrees[s] for s in cluster.switches if s.startswith("core")} == {4}  # one in each pod


def test_fat_tree_paths_have_the_length_of_their_tiers() -> None:
    hops = dict(networkx.all_pairs_shortest_path_length(graph(fat_tree())))
    assert hops["m0"]["m1"] == 2  # one edge switch
    assert hops["m0"]["m2"] == 4  # one pod
    assert hops["m0"]["m15"] == 6  # through the core


@pytest.mark.parametrize("seed", range(5))
def test_jellyfish_switches_form_a_regular_graph(seed: int) -> None:
    cluster = jellyfish(seed=seed)
    whole = graph(cluster)
    fabric = whole.subgraph(cluster.switches)
    assert {degree for _, degree in fabric.degree} == {4}
    assert networkx.is_connected(fabric)
    servers = Counter(next(iter(whole[m.name])) for m in cluster.machines)
    assert max(servers.values()) == 1  # 16 servers at 16 of the 24 switches


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("nodes", "degree"), [(4, 3), (5, 2), (6, 5), (7, 4), (24, 3), (40, 7)])
def test_random_regular_graphs_are_simple_regular_and_connected(nodes: int, degree: int, seed: int) -> None:
    pairs = random_regular_graph(nodes, degree, np.random.default_rng(seed))
    found = networkx.Graph(pairs)
    assert len(set(pairs)) == len(pairs) == nodes * degree // 2
    assert {d for _, d in found.degree} == {degree}
    assert networkx.is_connected(found)


def test_random_regular_graphs_differ() -> None:
    drawn = {tuple(random_regular_graph(12, 3, np.random.default_rng(seed))) for seed in range(20)}
    assert len(drawn) == 20


@pytest.mark.parametrize(("nodes", "degree"), [(5, 3), (4, 4), (4, 1)])
def test_rejects_an_impossible_degree(nodes: int, degree: int) -> None:
    with pytest.raises(InvalidInput, match="degree: expected 2 to"):
        random_regular_graph(nodes, degree, np.random.default_rng(0))


def test_star_has_a_switch_or_a_machine_in_the_middle() -> None:
    around_switch, around_machine = star(8), star(8, hub_computes=True)
    assert (len(around_switch.machines), len(around_switch.links), around_switch.switches) == (8, 8, ("hub",))
    assert (len(around_machine.machines), len(around_machine.links), around_machine.switches) == (8, 7, ())


def test_line_and_complete_have_their_links() -> None:
    assert [link.label for link in line(4).links] == ["m0--m1", "m1--m2", "m2--m3"]
    assert len(complete(6).links) == 15


def test_capacities_are_constant_without_spread() -> None:
    cluster = line(5, Capacities(speed=2.0, bandwidth_mbps=10.0))
    assert {m.speed for m in cluster.machines} == {2.0}
    assert {link.bandwidth_mbps for link in cluster.links} == {10.0}


@pytest.mark.parametrize("seed", range(3))
def test_spread_draws_capacities_around_their_value(seed: int) -> None:
    capacities = Capacities(speed=2.0, bandwidth_mbps=10.0, spread=0.5)
    cluster = complete(20, capacities, np.random.default_rng(seed))
    bandwidth = np.array([link.bandwidth_mbps for link in cluster.links])
    speed = np.array([m.speed for m in cluster.machines])
    assert 5.0 <= bandwidth.min() < 6.0 < 14.0 < bandwidth.max() <= 15.0
    assert 1.0 <= speed.min() < speed.max() <= 3.0
    assert bandwidth.mean() == pytest.approx(10.0, rel=0.1)
    assert cluster == complete(20, capacities, seed)


def test_rejects_a_network_without_machines() -> None:
    with pytest.raises(InvalidInput, match="machines: expected a whole number ≥ 1, got 0"):
        star(0)
