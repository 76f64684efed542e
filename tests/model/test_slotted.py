"""Applications in time slots: against examples computed by hand, networkx, and an enumeration of all choices."""

from itertools import product

import networkx as nx
import numpy as np
import pytest

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import InvalidInput
from penstock.model.slotted import UNLIMITED, PlacedApplication, SlottedSystem, build_slotted_system, hop_counts
from penstock.model.taskgraph import Floats
from penstock.model.topology import Component, Grouping, Kind, Stream, Topology
from penstock.workloads.networks import fat_tree, jellyfish, line


def mesh(number: int, **settings: float) -> Cluster:
    return Cluster(name="mesh", machines=tuple(Machine(name=f"m{i}", **settings) for i in range(number)))  # type: ignore[arg-type]


def two_steps(grouping: Grouping, senders: int = 2, receivers: int = 3, selectivity: float = 1.0) -> Topology:
    return Topology(
        name="two",
        components=(
            Component(name="in", kind=Kind.SOURCE, parallelism=senders),
            Component(name="out", kind=Kind.SINK, parallelism=receivers, cpu=0.002),
        ),
        streams=(Stream(source="in", target="out", grouping=grouping, selectivity=selectivity),),
    )


FORK = Topology(
    name="fork",
    components=(
        Component(name="in", kind=Kind.SOURCE, parallelism=2),
        Component(name="left", parallelism=2, cpu=0.001),
        Component(name="right", cpu=0.002),
        Component(name="out", kind=Kind.SINK, parallelism=2, cpu=0.004),
    ),
    streams=(
        Stream(source="in", target="right", selectivity=0.5),
        Stream(source="in", target="left", selectivity=2.0),
        Stream(source="left", target="out", selectivity=3.0),
        Stream(source="right", target="out"),
    ),
)


def test_a_fork_has_an_out_queue_per_stream_and_a_lane_per_downstream_task() -> None:
    system = build_slotted_system([PlacedApplication(FORK, [0, 1, 0, 1, 2, 3, 3])], mesh(4))
    # tasks: in 0 1, left 2 3, right 4, out 5 6; a source's queues are by downstream component: left, right
    assert system.tasks == 7
    assert system.component.tolist() == [0, 0, 1, 1, 2, 3, 3]
    assert system.source.tolist() == [True, True, *[False] * 5]
    assert system.queues.tolist() == [0, 2, 4, 5, 6, 7, 7, 7]
    assert system.emits.tolist() == [2.0, 0.5, 2.0, 0.5, 3.0, 3.0, 1.0]
    assert system.lanes.tolist() == [0, 2, 3, 5, 6, 8, 10, 12]
    assert system.target.tolist() == [2, 3, 4, 2, 3, 4, 5, 6, 5, 6, 5, 6]
    assert system.senders.tolist() == [2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1]
    assert system.machine.tolist() == [0, 1, 0, 1, 2, 3, 3]
    assert system.cost.tolist() == [0, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1]
    assert not system.copies.any()
    assert not system.keyed.any()
    assert system.capacity.tolist() == [UNLIMITED] * 4


@pytest.mark.parametrize(
    ("grouping", "targets", "copies", "keyed", "paired"),
    [
        (Grouping.SHUFFLE, [3, 4, 5] * 3, False, False, False),
        (Grouping.LOCAL_OR_SHUFFLE, [3, 4, 5] * 3, False, False, False),
        (Grouping.ALL, [3, 4, 5] * 3, True, False, False),
        (Grouping.FIELDS, [3, 4, 5] * 3, False, True, False),
        (Grouping.PARTIAL_KEY, [3, 4, 5] * 3, False, True, True),
        (Grouping.GLOBAL, [3, 3, 3], False, False, False),
        (Grouping.FORWARD, [3, 4, 5], False, False, False),
    ],
)
def test_a_grouping_determines_the_lanes_and_who_chooses(
    grouping: Grouping, targets: list[int], copies: bool, keyed: bool, paired: bool
) -> None:
    system = build_slotted_system([PlacedApplication(two_steps(grouping, 3), [0] * 6)], mesh(1))
    assert system.target.tolist() == targets
    width = len(targets) // 3
    assert system.lanes.tolist() == [0, width, 2 * width, 3 * width]
    assert system.copies.tolist() == [copies] * 3
    assert system.keyed.tolist() == [keyed] * 3
    assert system.paired.tolist() == [paired] * 3
    assert system.senders.tolist() == [1 if grouping is Grouping.FORWARD else 3] * len(targets)


def test_tasks_share_slots_and_slots_share_cores() -> None:
    machines = (Machine(name="a", slots=3, cores=2, speed=4.0), Machine(name="b", slots=2, cores=4))
    topology = Topology(
        name="shares",
        components=(
            Component(name="in", kind=Kind.SOURCE, parallelism=2, cpu=0.5),
            Component(name="work", parallelism=5, cpu=0.002),
            Component(name="out", kind=Kind.SINK),
        ),
        streams=(Stream(source="in", target="work"), Stream(source="work", target="out")),
    )
    # a: two tasks in slot 0, one each in 1 and 2, so three busy slots on two cores; b: one; sources have no cost
    system = build_slotted_system(
        [PlacedApplication(topology, [0, 3, 0, 0, 1, 2, 3, 4])], Cluster(name="two", machines=machines)
    )
    full = 0.01 / 0.002
    share = 4.0 * 2 / 3
    np.testing.assert_allclose(
        system.service[2:7], [full * share / 2, full * share / 2, full * share, full * share, full]
    )
    assert np.isinf(system.service[[0, 1, 7]]).all()  # sources, and a sink without cost


def test_a_slot_twice_as_long_serves_twice_as_much() -> None:
    placed = [PlacedApplication(two_steps(Grouping.SHUFFLE), [0, 0, 1, 2, 3])]
    one, two = (build_slotted_system(placed, mesh(4), slot_s=seconds) for seconds in (0.01, 0.02))
    np.testing.assert_allclose(one.service[2:], 5.0)
    np.testing.assert_allclose(two.service[2:], 10.0)


def test_the_default_limit_is_twice_the_output_of_the_busiest_task() -> None:
    placed = [PlacedApplication(FORK, [0, 1, 2, 3, 4, 5, 6])]
    system = build_slotted_system(placed, mesh(7))
    assert system.limit.tolist() == [2 * 10 * 3] * 7  # left: 10 per slot, 3 for each
    assert build_slotted_system(placed, mesh(7), limit=9, capacity=4).limit.tolist() == [9] * 7
    assert build_slotted_system(placed, mesh(7), limit=9, capacity=4).capacity.tolist() == [4] * 7


def test_several_applications_are_numbered_consecutively() -> None:
    first, second = two_steps(Grouping.ALL), FORK
    slots = ([0, 1, 2, 3, 0], [0, 1, 0, 1, 2, 3, 3])
    both = build_slotted_system(
        [PlacedApplication(first, slots[0]), PlacedApplication(second, slots[1])], mesh(4), limit=5
    )
    one, other = (
        build_slotted_system([PlacedApplication(app, own)], mesh(4), limit=5)
        for app, own in zip((first, second), slots, strict=True)
    )
    assert both.application.tolist() == [0] * 5 + [1] * 7
    assert both.component.tolist() == [*one.component, *(other.component + 2)]
    assert both.queues.tolist() == [*one.queues, *(other.queues[1:] + 2)]
    assert both.lanes.tolist() == [*one.lanes, *(other.lanes[1:] + 6)]
    assert both.target.tolist() == [*one.target, *(other.target + 5)]
    for name in ("machine", "source", "emits", "copies", "keyed", "paired", "cost", "onward", "senders", "limit"):
        assert getattr(both, name).tolist() == [*getattr(one, name), *getattr(other, name)], name


def test_applications_share_slots() -> None:
    placed = [PlacedApplication(two_steps(Grouping.SHUFFLE, 1, 1), [0, 1])] * 2
    np.testing.assert_allclose(build_slotted_system(placed, mesh(2)).service[[1, 3]], 2.5)


@pytest.mark.parametrize("cluster", [fat_tree(), jellyfish(seed=1), jellyfish(seed=2), line(5)])
def test_hops_are_the_links_of_a_shortest_path(cluster: Cluster) -> None:
    graph = nx.Graph([(link.source, link.target) for link in cluster.links])
    names = [machine.name for machine in cluster.machines]
    expected = [[nx.shortest_path_length(graph, a, b) for b in names] for a in names]
    assert hop_counts(cluster).tolist() == expected


def test_hops_on_a_fat_tree_are_two_four_or_six() -> None:
    found = hop_counts(fat_tree())
    assert [np.count_nonzero(found[0] == hops) for hops in (0, 2, 4, 6)] == [1, 1, 2, 12]


def test_directed_links_are_used_in_one_direction() -> None:
    names = ("a", "b", "c")
    links = tuple(Link(source=names[i], target=names[(i + 1) % 3], bandwidth_mbps=1.0, directed=True) for i in range(3))
    ring = Cluster(name="ring", machines=tuple(Machine(name=name) for name in names), links=links)
    assert hop_counts(ring).tolist() == [[0, 1, 2], [2, 0, 1], [1, 2, 0]]


def test_on_a_mesh_a_hop_is_between_hosts() -> None:
    machines = (Machine(name="a"), Machine(name="b", host="x"), Machine(name="c", host="x"), Machine(name="x"))
    found = hop_counts(Cluster(name="mesh", machines=machines))
    assert found.tolist() == [[0, 1, 1, 1], [1, 0, 0, 1], [1, 0, 0, 1], [1, 1, 1, 0]]


def test_machines_without_a_connection_are_an_error() -> None:
    machines = tuple(Machine(name=name) for name in "abc")
    apart = Cluster(name="apart", machines=machines, links=(Link(source="a", target="b", bandwidth_mbps=1.0),))
    with pytest.raises(InvalidInput) as caught:
        build_slotted_system([PlacedApplication(two_steps(Grouping.SHUFFLE), [0, 0, 1, 1, 1])], apart)
    assert str(caught.value) == "links: there is no path from 'a' to 'c'; add a link"


def follows(system: SlottedSystem, chosen: dict[int, int], between: Floats) -> Floats:
    """Return the cost of all descendants of a tuple at each task, if queues send to the lane chosen for them."""
    total = np.zeros(system.tasks)
    for task in reversed(range(system.tasks)):
        for queue in range(system.queues[task], system.queues[task + 1]):
            own = range(system.lanes[queue], system.lanes[queue + 1])
            taken = [chosen[queue]] if queue in chosen else own
            costs = [
                between[system.machine[task], system.machine[system.target[i]]] + total[system.target[i]] for i in taken
            ]
            once = sum(costs) / (len(costs) if system.keyed[queue] else 1)
            total[task] += system.emits[queue] * once
    return total


@pytest.mark.parametrize("grouping", [Grouping.SHUFFLE, Grouping.ALL, Grouping.FIELDS, Grouping.GLOBAL])
def test_the_cost_onward_is_the_minimum_of_all_choices(grouping: Grouping) -> None:
    rng = np.random.default_rng(3)
    streams = (
        *FORK.streams[:2],
        Stream(source="left", target="out", selectivity=3.0, grouping=grouping),
        FORK.streams[3],
    )
    topology = Topology(name="fork", components=FORK.components, streams=streams)
    for _ in range(5):
        between = rng.integers(0, 6, (3, 3)).astype(np.float64)
        slots = rng.integers(0, 3, 7).tolist()
        system = build_slotted_system([PlacedApplication(topology, slots)], mesh(3), cost=between)
        free = [queue for queue in range(len(system.emits)) if not (system.copies[queue] or system.keyed[queue])]
        lanes = [range(system.lanes[queue], system.lanes[queue + 1]) for queue in free]
        least = np.min([follows(system, dict(zip(free, one, strict=True)), between) for one in product(*lanes)], axis=0)
        np.testing.assert_allclose(system.onward, least[system.target])
        sender = np.repeat(np.repeat(np.arange(7), np.diff(system.queues)), np.diff(system.lanes))
        np.testing.assert_allclose(system.cost, between[system.machine[sender], system.machine[system.target]])
