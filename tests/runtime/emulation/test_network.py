import math
from itertools import permutations, product

import msgspec
import networkx as nx
import numpy as np
import pytest
from hypothesis import given

from penstock.estimate.evaluator import Evaluator
from penstock.estimate.hops import slot_delays
from penstock.model.cluster import Cluster, Distances, Link, Machine
from penstock.model.errors import InvalidInput, UnknownMachine, UnknownName
from penstock.model.placement import Placement
from penstock.model.routes import route_hops, widest_path
from penstock.model.slotgraph import expand_links, expand_slots
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.runtime.emulation import VirtualLink, VirtualNetwork
from penstock.workloads.clusters import cluster as named
from tests.generators import clusters
from tests.model.test_routes import random_network

STREAM = "in->out"
ROUTED = ["star-8", "line-8", "complete-6", "field-and-cloud", "fat-tree", "jellyfish"]
Networks = dict[str, VirtualNetwork]
Routes = dict[tuple[str, str, str], tuple[str, ...]]


def networks(cluster: Cluster, routes: Routes | None = None) -> Networks:
    """Return what every machine of a cluster knows."""
    return {machine.name: VirtualNetwork(cluster, machine.name, routes or {}) for machine in cluster.machines}


def carry(everywhere: Networks, source_slot: str, target_slot: str, size: int, at: float = 0.0) -> float:
    """Send a frame as workers do, from owner to owner; return when its destination handles it."""
    here = source_slot.partition("/")[0]
    path = everywhere[here].path(STREAM, source_slot, target_slot)
    at, rest = everywhere[here].cross(path.links, size, at)
    at += path.latency
    while rest:
        here = everywhere[here].owner(rest[0])
        at, left = everywhere[here].cross(rest, size, at)
        assert len(left) < len(rest), "an owner takes a frame further"
        rest = left
    return at


def line(directed: bool = False) -> Cluster:
    machines = tuple(Machine(name=name) for name in "abc")
    there = tuple(
        Link(source=s, target=t, bandwidth_mbps=8.0, latency_ms=1.0, directed=directed) for s, t in ("ab", "bc")
    )
    back = tuple(Link(source=s, target=t, bandwidth_mbps=8.0, latency_ms=1.0, directed=True) for s, t in ("cb", "ba"))
    return Cluster(name="line", machines=machines, links=there + (back if directed else ()))


def mesh(**cards: float | None) -> Cluster:
    machines = tuple(Machine(name=name, network_mbps=mbps, slots=2) for name, mbps in cards.items())
    return Cluster(name="mesh", machines=machines, distances=Distances(other_host_ms=4.0))


def test_a_card_may_receive_at_another_rate_than_it_sends() -> None:
    machines = (Machine(name="a", network_mbps=8.0, receive_mbps=1.0), Machine(name="b", network_mbps=4.0))
    everywhere = networks(Cluster(name="mesh", machines=machines))
    assert carry(everywhere, "a/0", "b/0", 1000) == pytest.approx(0.001 + 0.002 + 0.004)
    assert carry(everywhere, "b/0", "a/0", 1000) == pytest.approx(0.002 + 0.008 + 0.004)


@pytest.mark.slow
@given(clusters())
def test_delays_on_a_mesh_are_those_of_the_model_for_all_pairs_of_slots(cluster: Cluster) -> None:
    everywhere = networks(cluster)
    here, there = np.indices((cluster.slot_count, cluster.slot_count), dtype=np.int32).reshape(2, -1)
    delays = slot_delays(expand_slots(cluster), here, there)
    for source, target, delay_ms in zip(here, there, delays, strict=True):
        source_slot, target_slot = cluster.slot_names[source], cluster.slot_names[target]
        path = everywhere[source_slot.partition("/")[0]].path(STREAM, source_slot, target_slot)
        assert path.links == ()
        assert path.latency == pytest.approx(delay_ms * 1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["li-10", "tata-3", "random-slots", *ROUTED])
def test_a_frame_without_content_takes_as_long_as_the_model_estimates(name: str) -> None:
    cluster = named(name)
    application = Application(
        name="pair",
        components=(Component(name="in", kind=Kind.SOURCE, cpu=1e-3), Component(name="out", kind=Kind.SINK, cpu=1e-3)),
        streams=(Stream(source="in", target="out", tuple_bytes=1.0),),
    )
    evaluator, everywhere = Evaluator(application, cluster), networks(cluster)
    for at, pair in enumerate(list(product(range(cluster.slot_count), repeat=2))[::7]):
        routes = route_hops(evaluator.tasks, evaluator.slots, evaluator.links, pair) if cluster.routed else {}
        assert isinstance(routes, dict)
        estimated = evaluator.evaluate(Placement(pair, routes)).delay_ms
        source, target = (cluster.slot_names[slot] for slot in pair)
        assert (carry(everywhere, source, target, size=0, at=at) - at) * 1e3 == pytest.approx(estimated)


@pytest.mark.parametrize("name", ROUTED)
def test_an_unloaded_frame_takes_the_sum_of_its_links(name: str) -> None:
    cluster, size = named(name), 1500
    everywhere = networks(cluster)
    names = [machine.name for machine in cluster.machines]
    for at, (source, target) in enumerate(permutations(names, 2)):
        slots = f"{source}/0", f"{target}/0"
        links = [cluster.links[link] for link in everywhere[source].path(STREAM, *slots).links]
        alone = sum(8 * size / (link.bandwidth_mbps * 1e6) + link.latency_ms * 1e-3 for link in links)
        assert carry(everywhere, *slots, size, at) - at == pytest.approx(alone)


@pytest.mark.parametrize("name", ["star-8", "line-8", "field-and-cloud"])
def test_delays_do_not_depend_on_the_owner_of_a_link(name: str) -> None:
    cluster = named(name)
    turned = msgspec.structs.replace(cluster, machines=cluster.machines[::-1])
    first, second = networks(cluster), networks(turned)
    owners = [{n.owner(link) for n in by.values()} for by in (first, second) for link in range(len(cluster.links))]
    assert all(len(owner) == 1 for owner in owners), "all machines name the same owner"
    rng = np.random.default_rng(1)
    at = 0.0
    for _ in range(300):
        at += rng.exponential(1e-4)
        source, target = rng.choice([machine.name for machine in cluster.machines], 2, replace=False)
        frame = (f"{source}/0", f"{target}/0", int(rng.integers(0, 3000)), at)
        assert carry(first, *frame) == pytest.approx(carry(second, *frame))


def test_the_two_directions_share_a_link_unless_it_is_directed() -> None:
    shared, apart = networks(line()), networks(line(directed=True))
    for everywhere, back in ((shared, 0.0045), (apart, 0.004)):  # half a millisecond later as b--c is taken
        assert carry(everywhere, "a/0", "c/0", size=1000) == pytest.approx(0.004)
        assert carry(everywhere, "c/0", "a/0", size=1000, at=0.0025) == pytest.approx(0.0025 + back)


def test_frames_of_different_machines_queue_at_the_link_that_they_share() -> None:
    everywhere = networks(line())
    alone = carry(networks(line()), "b/0", "c/0", size=10_000, at=0.012)
    carry(everywhere, "a/0", "c/0", size=10_000)  # on b--c from 11 ms to 21 ms
    assert carry(everywhere, "b/0", "c/0", size=10_000, at=0.012) == pytest.approx(alone + 0.009)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100))
def test_a_hop_without_a_route_takes_the_widest_path_of_the_model(seed: int) -> None:
    cluster = random_network(seed)
    if not cluster.routed:
        return
    links, empty = expand_links(cluster), np.zeros(len(cluster.links))
    for source, target in permutations(range(len(cluster.machines)), 2):
        _, path = widest_path(links, empty, 1.0, source, target)
        network = VirtualNetwork(cluster, f"m{source}", {})
        if len(path):
            assert network.path(STREAM, f"m{source}/0", f"m{target}/0") == (tuple(path), 0.0)
        else:
            with pytest.raises(InvalidInput, match=rf"no path from 'm{source}' to 'm{target}'; add a link"):
                network.path(STREAM, f"m{source}/0", f"m{target}/0")


def test_only_its_stream_takes_a_planned_route_until_the_next_plan() -> None:
    cluster = named("complete-6")
    a, b, c = (machine.name for machine in cluster.machines[:3])
    labels = {frozenset((link.source, link.target)): link.label for link in cluster.links}
    number = {link.label: number for number, link in enumerate(cluster.links)}
    direct, detour = (labels[frozenset((a, c))],), (labels[frozenset((a, b))], labels[frozenset((b, c))])
    network = VirtualNetwork(cluster, a, {(STREAM, a, c): detour})
    assert network.path(STREAM, f"{a}/0", f"{c}/1").links == tuple(number[label] for label in detour)
    assert network.path("other->out", f"{a}/0", f"{c}/1").links == (number[direct[0]],)
    network.reroute({(STREAM, a, c): direct})
    assert network.path(STREAM, f"{a}/0", f"{c}/1").links == (number[direct[0]],)


@pytest.mark.parametrize("name", ROUTED)
def test_a_link_is_owned_by_the_nearest_machine_the_first_of_several(name: str) -> None:
    cluster = named(name)
    graph = nx.Graph((link.source, link.target) for link in cluster.links)
    steps = dict(nx.all_pairs_shortest_path_length(graph))
    network = VirtualNetwork(cluster, cluster.machines[0].name, {})
    for number, link in enumerate(cluster.links):
        away = {m.name: min(steps[m.name][link.source], steps[m.name][link.target]) for m in cluster.machines}
        assert network.owner(number) == min(away, key=away.__getitem__)  # the first of equals


def test_frames_between_machines_of_a_mesh_pass_both_cards_and_the_distance_once() -> None:
    everywhere = networks(mesh(a=8.0, b=16.0))
    assert everywhere["a"].path(STREAM, "a/1", "b/0") == ((0, 3), 0.004)
    assert [everywhere["b"].owner(link) for link in (0, 1, 2, 3)] == ["a", "a", "b", "b"]
    assert carry(everywhere, "a/1", "b/0", size=1000) == pytest.approx(0.001 + 0.004 + 0.0005)
    assert everywhere["a"].used(1.0) == {"a out": pytest.approx(0.001), "a in": 0.0}
    assert everywhere["b"].used(1.0) == {"b out": 0.0, "b in": pytest.approx(0.0005)}


def test_a_card_sends_and_receives_at_its_bandwidth_simultaneously() -> None:
    everywhere = networks(mesh(a=8.0, b=8.0, c=8.0))
    into_b = [carry(everywhere, f"{source}/0", "b/0", size=1000) for _ in range(500) for source in "ac"]
    assert (len(into_b) - 1) * 8e3 / (max(into_b) - min(into_b)) == pytest.approx(8e6)
    assert carry(everywhere, "b/0", "a/0", size=1000) == pytest.approx(0.001 + 0.004 + 0.001)


def test_cards_without_a_limit_are_not_on_the_path() -> None:
    everywhere = networks(mesh(a=None, b=8.0, c=None))
    paths = {
        pair: everywhere[pair[0]].path(STREAM, f"{pair[0]}/0", f"{pair[1]}/0").links
        for pair in ("ab", "ba", "ac", "bb")
    }
    assert paths == {"ab": (3,), "ba": (2,), "ac": (), "bb": ()}


def test_a_machine_charges_only_the_leading_links_that_it_owns() -> None:
    everywhere = networks(line())
    path = everywhere["a"].path(STREAM, "a/0", "c/0")
    assert everywhere["c"].cross(path.links, 1000, 5.0) == (5.0, (0, 1))
    at, rest = everywhere["a"].cross(path.links, 1000, 5.0)
    assert (round(at, 9), rest) == (5.002, (1,))
    at, rest = everywhere["b"].cross(rest, 1000, at)
    assert (round(at, 9), rest) == (5.004, ())
    assert everywhere["a"].used(math.inf) == {"a--b": pytest.approx(0.001)}


def test_links_queue_frames_like_one_link_on_any_owner() -> None:
    cluster, rng, at = named("line-8:bandwidth_mbps=10"), np.random.default_rng(2), 0.0
    everywhere = networks(cluster)
    together = [VirtualLink(link.bandwidth_mbps, link.latency_ms) for link in cluster.links]
    names = [machine.name for machine in cluster.machines]
    for _ in range(500):
        at += rng.exponential(1e-3)
        source, target = rng.choice(len(names), 2, replace=False)
        size, expected = int(rng.integers(1, 3000)), at
        for link in range(source, target) if source < target else range(source - 1, target - 1, -1):
            expected = together[link].transmit(size, expected)
        assert carry(everywhere, f"{names[source]}/0", f"{names[target]}/0", size, at) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("labels", "error", "problem"),
    [
        (("a--x",), UnknownName, "takes link 'a--x', which is unknown; did you mean a--b"),
        (("b--c",), InvalidInput, "takes link b--c at 'a', where it does not start"),
        (("a--b",), InvalidInput, "ends at 'b'; plan again"),
    ],
)
def test_rejects_a_route_that_does_not_reach_its_target(
    labels: tuple[str, ...], error: type[InvalidInput], problem: str
) -> None:
    with pytest.raises(error) as raised:
        VirtualNetwork(line(), "a", {(STREAM, "a", "c"): labels})
    assert str(raised.value).startswith("routes: the route of in->out from 'a' to 'c' ")
    assert problem in str(raised.value)


def test_a_directed_link_is_not_taken_against_its_direction() -> None:
    with pytest.raises(InvalidInput, match="takes link b->c at 'c', where it does not start"):
        VirtualNetwork(line(directed=True), "a", {(STREAM, "c", "b"): ("b->c",)})


def test_a_link_without_bandwidth_is_no_path() -> None:
    machines = (Machine(name="a"), Machine(name="b"))
    cluster = Cluster(name="cut", machines=machines, links=(Link(source="a", target="b", bandwidth_mbps=0.0),))
    with pytest.raises(InvalidInput, match="takes link a--b, which has no bandwidth"):
        VirtualNetwork(cluster, "a", {(STREAM, "a", "b"): ("a--b",)})
    with pytest.raises(InvalidInput, match="no path from 'a' to 'b'"):
        VirtualNetwork(cluster, "a", {}).path(STREAM, "a/0", "b/0")


def test_unknown_machines_and_slots_are_named() -> None:
    with pytest.raises(UnknownMachine, match="cluster 'line' has no 'x'; there are a, b, c"):
        VirtualNetwork(line(), "x", {})
    with pytest.raises(UnknownName, match="cluster 'line' has no slot 'a/7'"):
        VirtualNetwork(line(), "a", {}).path(STREAM, "a/7", "b/0")
