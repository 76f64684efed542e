import numpy as np
import pytest
from hypothesis import given

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.slotgraph import expand_links, expand_slots
from penstock.model.taskgraph import expand_edges, expand_tasks, task_names
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from tests.generators import applications


def pair(grouping: Grouping, senders: int, receivers: int, selectivity: float = 1.0) -> Application:
    return Application(
        name="pair",
        components=(
            Component(name="a", kind=Kind.SOURCE, parallelism=senders),
            Component(name="b", kind=Kind.SINK, parallelism=receivers),
        ),
        streams=(Stream(source="a", target="b", grouping=grouping, selectivity=selectivity),),
    )


@pytest.mark.parametrize(
    ("grouping", "senders", "receivers", "edges", "gains"),
    [
        (Grouping.SHUFFLE, 2, 3, 6, [1 / 3, 1 / 3, 1 / 3]),
        (Grouping.FIELDS, 2, 3, 6, [1 / 3, 1 / 3, 1 / 3]),
        (Grouping.ALL, 2, 3, 6, [1.0, 1.0, 1.0]),
        (Grouping.GLOBAL, 2, 3, 2, [1.0, 0.0, 0.0]),
        (Grouping.FORWARD, 3, 3, 3, [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_groupings_expand_to_their_edges(
    grouping: Grouping, senders: int, receivers: int, edges: int, gains: list[float]
) -> None:
    tasks = expand_tasks(pair(grouping, senders, receivers))
    found = expand_edges(tasks)
    assert len(found.target) == edges
    np.testing.assert_allclose(tasks.gain[senders:], gains)
    if grouping is Grouping.FORWARD:
        np.testing.assert_array_equal(found.target, found.source + senders)


@pytest.mark.slow
@given(applications())
def test_every_task_processes_the_tuples_of_its_edges(application: Application) -> None:
    tasks = expand_tasks(application)
    edges = expand_edges(tasks)
    brought = np.zeros(tasks.number)
    np.add.at(brought, edges.target, tasks.gain[edges.source] * edges.share)
    np.testing.assert_allclose(brought[~tasks.source], tasks.gain[~tasks.source], rtol=1e-12)
    assert tasks.gain[tasks.source].sum() == pytest.approx(1.0)


@given(applications())
def test_edges_lead_from_lower_to_higher_tasks_and_are_sorted_by_sender(application: Application) -> None:
    tasks = expand_tasks(application)
    edges = expand_edges(tasks)
    assert (edges.source < edges.target).all()
    assert (np.diff(edges.source) >= 0).all()
    assert len(task_names(application)) == tasks.number == application.task_count
    for task in range(tasks.number):
        assert (edges.source[edges.start[task] : edges.start[task + 1]] == task).all()


def test_sources_weigh_by_their_offered_load() -> None:
    application = Application(
        name="two",
        components=(
            Component(name="a", kind=Kind.SOURCE),
            Component(name="b", kind=Kind.SOURCE, parallelism=2),
            Component(name="c", kind=Kind.SINK),
        ),
        streams=(Stream(source="a", target="c"), Stream(source="b", target="c", selectivity=0.5)),
        rate_tps={"a": 30.0, "b": 10.0},
    )
    np.testing.assert_allclose(expand_tasks(application).gain, [0.75, 0.125, 0.125, 0.75 + 0.25 * 0.5])


def test_slots_know_their_process_machine_and_host() -> None:
    cluster = Cluster(
        name="c",
        machines=(
            Machine(name="a", slots=4, processes=2, cores=2, speed=3.0, host="h"),
            Machine(name="b", slots=1, host="h", slot_memory_mb=100.0, network_mbps=4.0, receive_mbps=3.0),
            Machine(name="c", slots=3, processes=2, network_mbps=10.0),
        ),
    )
    slots = expand_slots(cluster)
    assert slots.machine.tolist() == [0, 0, 0, 0, 1, 2, 2, 2]
    assert slots.process.tolist() == [0, 0, 1, 1, 2, 3, 3, 4]
    assert slots.host.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert slots.cpu.tolist() == [3.0] * 4 + [1.0] * 4
    assert slots.machine_cpu.tolist() == [6.0, 1.0, 1.0]
    assert slots.memory_mb[4] == 100.0
    assert np.isinf(slots.memory_mb[0])
    assert slots.machine_network.tolist() == [[np.inf, 4e6, 1e7], [np.inf, 3e6, 1e7]]
    assert cluster.slot_names[4:6] == ("b/0", "c/0")


def test_shared_links_have_an_arc_each_way_and_directed_ones_a_single_one() -> None:
    cluster = Cluster(
        name="c",
        machines=(Machine(name="a"), Machine(name="b")),
        switches=("s",),
        links=(
            Link(source="a", target="s", bandwidth_mbps=5.0, latency_ms=2.0),
            Link(source="s", target="b", bandwidth_mbps=7.0, directed=True),
        ),
    )
    links = expand_links(cluster)
    arcs = [(node, int(links.head[a])) for node in range(3) for a in range(links.start[node], links.start[node + 1])]
    assert arcs == [(0, 2), (2, 0), (2, 1)]
    assert links.bandwidth.tolist() == [5e6, 7e6]
    assert links.latency_ms.tolist() == [2.0, 0.0]
