"""Throughput, delay and traffic as planning estimates them, beside the twin."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.estimate.bottleneck import machine_traffic, mean_delays
from penstock.estimate.evaluator import Evaluator
from penstock.estimate.hops import even_delay, slot_delays
from penstock.estimate.traffic import traffic
from penstock.model.cluster import Cluster, Machine
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.taskgraph import place_edges
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.sim.events import Twin
from tests.generators import applications, clusters, random_slots


@pytest.mark.slow
def test_two_bottlenecks_give_the_smaller_not_their_product() -> None:
    """A join behind a slow operator: back-pressure on one path limits the other equally, and only once."""
    application = Application(
        name="join",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=1e-5),
            Component(name="parse", cpu=1e-3),
            Component(name="out", kind=Kind.SINK, cpu=1e-3),
        ),
        streams=(
            Stream(source="in", target="parse"),
            Stream(source="parse", target="out"),
            Stream(source="in", target="out"),
        ),
    )
    cluster = Cluster(name="three", machines=tuple(Machine(name=name) for name in "abc"))
    found = Evaluator(application, cluster).evaluate(Placement((0, 1, 2)))
    assert found.throughput_tps == pytest.approx(500.0)
    assert found.bottleneck is not None
    assert found.bottleneck.name == "c"
    assert found.bottleneck.rate_tps == pytest.approx(found.throughput_tps)
    assert Twin(application, cluster).maximum_tps((0, 1, 2)) == pytest.approx(500.0, rel=0.02)


def preferring(grouping: Grouping = Grouping.LOCAL_OR_SHUFFLE) -> tuple[Application, Cluster, tuple[int, ...]]:
    """Two senders with a receiver beside each, and a third receiver on its own machine, to which no task sends."""
    application = Application(
        name="local",
        components=(
            Component(name="in", kind=Kind.SOURCE, parallelism=2, cpu=1e-4),
            Component(name="out", kind=Kind.SINK, parallelism=3, cpu=1e-3),
        ),
        streams=(Stream(source="in", target="out", grouping=grouping, tuple_bytes=500.0),),
        rate_tps={"in": 100.0},
    )
    machines = tuple(Machine(name=name, slots=2, cores=2, network_mbps=1.0) for name in "abc")
    return application, Cluster(name="three", machines=machines), (0, 2, 1, 3, 4)


@pytest.mark.slow
def test_the_estimate_of_local_or_shuffle_agrees_with_the_twin() -> None:
    application, cluster, slots = preferring()
    evaluator = Evaluator(application, cluster)
    found = evaluator.evaluate(Placement(slots))
    span = Twin(application, cluster).start(slots).advance(60.0)
    assert found.traffic.machines == 0.0
    assert span.processed[4] == 0
    per_edge = span.edge_tuples.reshape(2, 3)
    assert [per_edge[0, 0], per_edge[1, 1]] == [per_edge[0].sum(), per_edge[1].sum()]
    assert found.delay_ms == cluster.distances.same_process_ms
    assert found.throughput_tps == pytest.approx(Twin(application, cluster).maximum_tps(slots), rel=0.02)
    assert evaluator.scorer(Objective.THROUGHPUT)(np.array([slots], dtype=np.int32))[0] == found.throughput_tps


def test_local_or_shuffle_spreads_if_no_receiver_is_near() -> None:
    application, cluster, _ = preferring()
    shuffled, _, _ = preferring(Grouping.SHUFFLE)
    apart = Placement((0, 0, 2, 3, 4))
    local, even = (Evaluator(one, cluster).evaluate(apart) for one in (application, shuffled))
    assert local.traffic == even.traffic
    assert local.throughput_tps == pytest.approx(even.throughput_tps)
    assert local.delay_ms == pytest.approx(even.delay_ms)


@pytest.mark.slow
@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_delays_are_the_mean_over_edges(application: Application, cluster: Cluster, seed: int) -> None:
    evaluator = Evaluator(application, cluster)
    placed = random_slots(np.random.default_rng(seed), application, cluster)
    process = evaluator.slots.process[placed[0]]
    edges = place_edges(evaluator.tasks, evaluator.edges, process)
    apart = slot_delays(evaluator.slots, placed[0][edges.source], placed[0][edges.target])
    expected = even_delay(evaluator.tasks.placed(process), edges, apart)
    assert mean_delays(evaluator.rate_net, placed)[0] == pytest.approx(expected, rel=1e-9)
    assert evaluator.evaluate(Placement(tuple(placed[0].tolist()))).delay_ms == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_sources_keep_their_shares_when_the_twin_is_saturated(seed: int) -> None:
    """Of two sources, the one before a slow sink limits the other: rates keep the offered ratio."""
    rng = np.random.default_rng(seed)
    slow, fast = rng.uniform(1e-3, 2e-3), rng.uniform(1e-4, 2e-4)
    application = Application(
        name="two",
        components=(
            Component(name="a", kind=Kind.SOURCE, cpu=1e-5),
            Component(name="b", kind=Kind.SOURCE, cpu=1e-5),
            Component(name="x", kind=Kind.SINK, cpu=slow),
            Component(name="y", kind=Kind.SINK, cpu=fast),
        ),
        streams=(Stream(source="a", target="x"), Stream(source="b", target="y")),
        rate_tps={"a": 1.0, "b": 3.0},
    )
    cluster = Cluster(name="four", machines=tuple(Machine(name=name) for name in "abcd"))
    carried = Twin(application, cluster).maximum_tps((0, 1, 2, 3), seed=seed)
    assert carried == pytest.approx(4.0 / slow, rel=0.02)
    equal = msgspec.structs.replace(application, rate_tps={})
    assert Twin(equal, cluster).maximum_tps((0, 1, 2, 3), seed=seed) == pytest.approx(2.0 / slow, rel=0.02)


@given(applications(), clusters(), st.integers(0, 2**32 - 1))
def test_traffic_is_the_sum_over_edges_that_cross(application: Application, cluster: Cluster, seed: int) -> None:
    evaluator = Evaluator(application, cluster)
    slots = evaluator.slots
    placed = random_slots(np.random.default_rng(seed), application, cluster)
    process = slots.process[placed[0]]
    tasks = evaluator.tasks.placed(process)
    edges = place_edges(tasks, evaluator.edges, process)
    amount = tasks.gain[edges.source] * edges.share * edges.tuple_bytes
    found = traffic(tasks, slots, placed[0])
    for where, answer in ((slots.machine, found.machines), (slots.process, found.processes)):
        place = where[placed[0]]
        crossing = amount[place[edges.source] != place[edges.target]].sum()
        assert answer == pytest.approx(crossing, rel=1e-9, abs=1e-9 * found.total)
    assert found.total == pytest.approx(amount.sum())
    bits = machine_traffic(evaluator.rate_net, placed)[0]
    assert bits / 8 == pytest.approx(found.machines, rel=1e-9, abs=1e-9 * found.total)
