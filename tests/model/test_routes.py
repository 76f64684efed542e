from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.kernel import interpreted
from penstock.model.placement import Hop
from penstock.model.routes import card_bits, flow_matrix, hop_bits, route_hops, widest_path, widest_tree
from penstock.model.slotgraph import expand_links, expand_slots
from penstock.model.taskgraph import expand_edges, expand_tasks, place_edges
from penstock.model.topology import Application, Component, Kind, Stream
from tests.generators import applications, clusters, random_slots


def random_network(seed: int) -> Cluster:
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, 7))
    machines = tuple(Machine(name=f"m{i}") for i in range(count))
    links = tuple(
        Link(
            source=f"m{a}", target=f"m{b}", bandwidth_mbps=float(rng.integers(1, 6)), directed=bool(rng.random() < 0.3)
        )
        for a in range(count)
        for b in range(a + 1, count)
        if rng.random() < 0.6
    )
    return Cluster(name="net", machines=machines, links=links)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_the_widest_path_is_the_best_of_all_paths(block: int) -> None:
    for seed in range(100 * block, 100 * (block + 1)):
        compare_with_all_paths(seed)


def compare_with_all_paths(seed: int) -> None:
    cluster = random_network(seed)
    links = expand_links(cluster)
    rng = np.random.default_rng(seed)
    load = rng.uniform(0, 3e6, len(cluster.links))
    bits = float(rng.uniform(1e5, 2e6))
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(cluster.machines)))
    for number, link in enumerate(cluster.links):
        a, b = cluster.node_index[link.source], cluster.node_index[link.target]
        graph.add_edge(a, b, number=number)
        if not link.directed:
            graph.add_edge(b, a, number=number)
    source, target = 0, len(cluster.machines) - 1
    rates = [
        min(links.bandwidth[graph[a][b]["number"]] / (load[graph[a][b]["number"]] + bits) for a, b in pairwise(way))
        for way in nx.all_simple_paths(graph, source, target)
    ]
    width, path = widest_path(links, load, bits, source, target)
    assert width == pytest.approx(max(rates, default=0.0)), f"seed {seed}"
    assert bool(len(path)) == bool(rates), f"seed {seed}"
    if rates:
        assert min(links.bandwidth[path] / (load[path] + bits)) == pytest.approx(max(rates))
    plain_width, _, _ = interpreted(widest_tree)(links, load, bits, source, -1)
    assert plain_width[target] == width


def test_a_route_names_links_in_order_of_travel_and_counts_relays() -> None:
    cluster = Cluster(
        name="line",
        machines=(Machine(name="a"), Machine(name="b"), Machine(name="c")),
        links=(Link(source="c", target="b", bandwidth_mbps=1), Link(source="a", target="b", bandwidth_mbps=1)),
    )
    application = Application(
        name="pair",
        components=(Component(name="in", kind=Kind.SOURCE), Component(name="out", kind=Kind.SINK)),
        streams=(Stream(source="in", target="out"),),
    )
    tasks = expand_tasks(application)
    assert route_hops(tasks, expand_slots(cluster), expand_links(cluster), [0, 2]) == {Hop(0, 0, 2): (1, 0)}


def test_a_missing_route_is_reported_as_its_hop() -> None:
    cluster = Cluster(
        name="one-way",
        machines=(Machine(name="a"), Machine(name="b")),
        links=(Link(source="b", target="a", bandwidth_mbps=1, directed=True),),
    )
    application = Application(
        name="pair",
        components=(Component(name="in", kind=Kind.SOURCE), Component(name="out", kind=Kind.SINK)),
        streams=(Stream(source="in", target="out"),),
    )
    assert route_hops(expand_tasks(application), expand_slots(cluster), expand_links(cluster), [0, 1]) == Hop(0, 0, 1)


@pytest.mark.slow
@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_traffic_between_places_is_the_sum_over_edges(application: Application, cluster: Cluster, seed: int) -> None:
    slots = expand_slots(cluster)
    placed = random_slots(np.random.default_rng(seed), application, cluster)[0]
    machine, process = slots.machine[placed], slots.process[placed]
    tasks = expand_tasks(application).placed(process)
    edges = place_edges(tasks, expand_edges(tasks), process)
    amount = tasks.gain[edges.source] * edges.share * edges.tuple_bytes
    for flow in tasks.flows:
        expected = np.zeros((slots.machines, slots.machines))
        mine = edges.stream == flow.stream
        np.add.at(expected, (machine[edges.source[mine]], machine[edges.target[mine]]), amount[mine])
        bytes_sent = flow_matrix(tasks, flow, machine, slots.machines, process) * flow.tuple_bytes
        if flow.local:  # traffic within a process does not count
            np.fill_diagonal(bytes_sent, 0.0)
            np.fill_diagonal(expected, 0.0)
        np.testing.assert_allclose(bytes_sent, expected, rtol=1e-9, atol=1e-9)
    bits = hop_bits(tasks, slots, placed)
    total = sum(bits.values())
    for end, load in enumerate(card_bits(tasks, slots, placed), 1):
        by_hops = np.zeros(slots.machines)
        for hop, sent in bits.items():
            by_hops[hop[end]] += sent
        np.testing.assert_allclose(load, by_hops, rtol=1e-9, atol=1e-9 * total)
    crossing = machine[edges.source] != machine[edges.target]
    assert total == pytest.approx(8 * amount[crossing].sum())
