import numpy as np
import pytest
from hypothesis import given

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
