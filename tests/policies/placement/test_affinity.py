import numpy as np
import pytest

from penstock.model.taskgraph import expand_edges
from penstock.model.topology import Component, Grouping, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from penstock.policies.placement.affinity import Affinity, busiest_first, task_traffic
from tests.policies.cases import chain, equal_machines


def every_grouping() -> PlacementView:
    """A source that feeds one component by each grouping; all feed one sink by different ones."""
    groupings = list(Grouping)
    middle = [Component(name=f"g{i}", parallelism=3) for i in range(len(groupings))]
    streams = [
        stream
        for i, grouping in enumerate(groupings)
        for stream in (
            Stream(source="in", target=f"g{i}", grouping=grouping, selectivity=0.5 + i, tuple_bytes=10.0 + i),
            Stream(source=f"g{i}", target="out", grouping=groupings[-1 - i], tuple_bytes=7.0 * i),
        )
    ]
    ends = (Component(name="in", kind=Kind.SOURCE, parallelism=3), Component(name="out", kind=Kind.SINK, parallelism=3))
    topology = Topology(name="groupings", components=(*ends, *middle), streams=tuple(streams))
    return PlacementView(topology, equal_machines(5, slots=4, processes=2))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("places", [5, 10])
def test_pull_is_the_traffic_on_edges_to_the_tasks_of_each_place(seed: int, places: int) -> None:
    view = every_grouping()
    edges, rng = expand_edges(view.tasks), np.random.default_rng(seed)
    carried = view.tasks.gain[edges.source] * edges.share * edges.tuple_bytes
    where = rng.integers(-1, places, view.tasks.number)
    affinity = Affinity(view, places)
    for task in np.flatnonzero(where >= 0):
        affinity.put(int(task), int(where[task]))
    for task in np.flatnonzero(where < 0):
        expected = np.zeros(places)
        for ends, others in ((edges.source, edges.target), (edges.target, edges.source)):
            for edge in np.flatnonzero((ends == task) & (where[others] >= 0)):
                expected[where[others[edge]]] += carried[edge]
        assert affinity.pull(int(task)) == pytest.approx(expected)


def test_traffic_is_the_sum_over_all_edges_of_a_task() -> None:
    view = every_grouping()
    edges = expand_edges(view.tasks)
    carried = view.tasks.gain[edges.source] * edges.share * edges.tuple_bytes
    both = np.bincount(edges.source, carried, view.tasks.number) + np.bincount(edges.target, carried, view.tasks.number)
    assert task_traffic(view) == pytest.approx(both)


def test_busiest_first_keeps_the_order_of_equals_and_puts_pinned_tasks_first() -> None:
    view = PlacementView(chain(2, 1, 2), equal_machines(2))
    assert busiest_first(view).tolist() == [2, 0, 1, 3, 4]
    last = Component(name="c2", kind=Kind.SINK, parallelism=2, pinned="m1")
    pinned = Topology(name="p", components=(*view.topology.components[:2], last), streams=view.topology.streams)
    assert busiest_first(PlacementView(pinned, view.cluster)).tolist() == [3, 4, 2, 0, 1]
