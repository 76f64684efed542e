import numpy as np
import pytest

from penstock.model.cluster import Machine
from penstock.model.taskgraph import expand_edges
from penstock.model.topology import Component, Grouping, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from tests.policies.cases import chain, cluster, equal_machines, machines_of, placed


def two_pipelines(pinned: str | None = None) -> Topology:
    """Streams a -> b of 8 bytes and c -> d of 4 bytes, one task each."""
    kinds = {"a": Kind.SOURCE, "b": Kind.SINK, "c": Kind.SOURCE, "d": Kind.SINK}
    return Topology(
        name="two",
        components=tuple(
            Component(name=name, kind=kind, pinned=pinned if name == "d" else None) for name, kind in kinds.items()
        ),
        streams=(Stream(source="a", target="b", tuple_bytes=8.0), Stream(source="c", target="d", tuple_bytes=4.0)),
    )


def test_keeps_each_pipeline_on_its_own_machine() -> None:
    view = PlacementView(two_pipelines(), equal_machines(2))
    assert placed("t-storm", view) == [0, 0, 1, 1]


def test_colocates_all_tasks_if_the_capacity_allows_it() -> None:
    view = PlacementView(chain(1, 2, 1), equal_machines(4))
    assert placed("t-storm:capacity=4", view) == [0, 0, 0, 0]
    assert sorted(placed("t-storm", view)) == [0, 1, 2, 3]


def test_does_not_count_pinned_tasks_against_the_capacity() -> None:
    view = PlacementView(two_pipelines(pinned="m1"), equal_machines(4))
    assert placed("t-storm", view) == [
        0,
        1,
        2,
        1,
    ]  # one free task per machine: b is beside the pinned d, which does not count


def test_takes_the_machine_with_fewest_tasks_among_equals_however_slow_it_is() -> None:
    machines = cluster(Machine(name="fast", cores=16, speed=4.0, slots=16), Machine(name="slow", speed=0.1))
    view = PlacementView(two_pipelines(), machines)
    where = machines_of(view, placed("t-storm:capacity=4", view))
    assert where.tolist() == [0, 0, 1, 1]  # nothing draws c to either machine


def test_exceeds_the_capacity_if_memory_allows_nothing_else() -> None:
    machines = cluster(Machine(name="a", memory_mb=15.0), Machine(name="b", memory_mb=15.0), Machine(name="c"))
    view = PlacementView(chain(3, 4, memory_mb=10.0), machines)  # three per machine, but two have memory for one only
    assert np.bincount(placed("t-storm", view)).tolist() == [1, 1, 5]


@pytest.mark.parametrize("seed", range(8))
def test_takes_the_machine_that_adds_least_traffic_over_all_edges(seed: int) -> None:
    rng = np.random.default_rng(seed)
    widths = [int(width) for width in rng.choice([1, 2, 4], 4)]
    groupings = [Grouping(g) for g in rng.choice(["shuffle", "global", "all"], 4)]
    components = tuple(
        Component(name=f"c{i}", kind=kind, parallelism=widths[i])
        for i, kind in enumerate([Kind.SOURCE, Kind.OPERATOR, Kind.OPERATOR, Kind.SINK])
    )
    pairs = [("c0", "c1"), ("c0", "c2"), ("c1", "c3"), ("c2", "c3")]
    streams = tuple(
        Stream(source=a, target=b, grouping=grouping, tuple_bytes=float(2 ** rng.integers(0, 8)))
        for (a, b), grouping in zip(pairs, groupings, strict=True)
    )
    view = PlacementView(Topology(name="d", components=components, streams=streams), equal_machines(3, slots=2))
    assert machines_of(view, placed("t-storm", view)).tolist() == by_hand(view)


def by_hand(view: PlacementView) -> list[int]:
    """Run T-Storm over the explicit list of edges; all amounts are sums of powers of two, so that ties are exact."""
    edges = expand_edges(view.tasks)
    carried = view.tasks.gain[edges.source] * edges.share * edges.tuple_bytes
    number, machines = view.tasks.number, view.slots.machines
    total = [carried[(edges.source == t) | (edges.target == t)].sum() for t in range(number)]
    where: dict[int, int] = {}
    for task in sorted(range(number), key=lambda t: (-total[t], t)):
        best = None
        for machine in range(machines):
            held = sum(other == machine for other in where.values())
            if held >= -(-number // machines):
                continue
            trial = where | {task: machine}
            added = sum(
                amount
                for a, b, amount in zip(edges.source.tolist(), edges.target.tolist(), carried.tolist(), strict=True)
                if task in (a, b) and a in trial and b in trial and trial[a] != trial[b]
            )
            if best is None or (added, held, machine) < best:
                best = (added, held, machine)
        assert best is not None
        where[task] = best[2]
    return [where[task] for task in range(number)]
