import numpy as np
import pytest

from penstock.model.cluster import Machine
from penstock.model.placement import Constraint
from penstock.model.taskgraph import expand_edges
from penstock.model.topology import Component, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from tests.policies.cases import chain, cluster, equal_machines, machines_of, placed, refused


def containers_of(view: PlacementView, slots: list[int]) -> list[int]:
    return [int(process) for process in view.slots.process[slots]]


def test_fills_a_container_before_it_opens_the_next() -> None:
    view = PlacementView(chain(4, 8, 4), equal_machines(4, slots=2))
    assert np.bincount(containers_of(view, placed("t-heron", view)), minlength=4).tolist() == [10, 6, 0, 0]


def test_treats_the_processes_of_one_machine_as_containers_of_their_own() -> None:
    view = PlacementView(chain(2, 4, 2), equal_machines(1, slots=4, processes=2))
    assert np.bincount(containers_of(view, placed("t-heron:capacity=4", view))).tolist() == [4, 4]


def test_distributes_tasks_evenly_if_ten_per_container_do_not_suffice() -> None:
    view = PlacementView(chain(10, 20, 15), equal_machines(3))
    assert np.bincount(placed("t-heron", view)).tolist() == [15, 15, 15]


def test_names_the_capacity_when_every_container_is_full() -> None:
    refusal = refused("t-heron:capacity=3", PlacementView(chain(3, 4), equal_machines(2)))
    assert (refusal.constraint, refusal.needed, refusal.available) == (Constraint.SLOTS, 4.0, 3.0)
    assert "has 3 tasks" in refusal.reason


def test_exceeds_the_usual_capacity_if_memory_allows_nothing_else() -> None:
    machines = cluster(Machine(name="small", memory_mb=25.0), Machine(name="large"))
    view = PlacementView(chain(8, 8, memory_mb=10.0), machines)
    assert np.bincount(placed("t-heron", view)).tolist() == [2, 14]
    assert refused("t-heron:capacity=10", view).constraint is Constraint.SLOTS


def test_draws_free_tasks_to_a_pinned_neighbour() -> None:
    topology = Topology(
        name="pinned",
        components=(
            Component(name="c0", kind=Kind.SOURCE),
            Component(name="c1", kind=Kind.SINK, parallelism=2, pinned="m2"),
        ),
        streams=(Stream(source="c0", target="c1"),),
    )
    view = PlacementView(topology, equal_machines(3))
    assert machines_of(view, placed("t-heron", view)).tolist() == [2, 2, 2]


@pytest.mark.parametrize("seed", range(6))
def test_takes_the_container_that_adds_least_traffic_over_all_edges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = [int(width) for width in rng.choice([1, 2, 4], 4)]
    view = PlacementView(chain(*widths), equal_machines(3, slots=4, processes=2))
    edges, capacity = expand_edges(view.tasks), 3
    carried = view.tasks.gain[edges.source] * edges.share * edges.tuple_bytes
    where = np.full(view.tasks.number, -1)
    total = np.array([carried[(edges.source == t) | (edges.target == t)].sum() for t in range(view.tasks.number)])
    for task in np.argsort(-total, kind="stable"):
        added = []
        for container in range(6):
            where[task] = container
            ends = where[edges.source], where[edges.target]
            mine = (edges.source == task) | (edges.target == task)
            crossing = carried[mine & (ends[0] >= 0) & (ends[1] >= 0) & (ends[0] != ends[1])].sum()
            added.append(crossing if (where == container).sum() <= capacity else np.inf)
        where[task] = int(np.argmin(added))
    assert containers_of(view, placed(f"t-heron:capacity={capacity}", view)) == where.tolist()
