"""The twin beside the runtime on emulated machines: the same tuples take the same time."""

import msgspec
import numpy as np
import pytest

from penstock.model.cluster import Cluster, Link
from penstock.model.costs import Costs
from penstock.model.taskgraph import Floats
from penstock.model.telemetry import RecordKind
from penstock.model.topology import Application, Distribution, Grouping, ServiceTime
from penstock.sim.events import Twin
from penstock.testing import TestCluster
from penstock.workloads.arrivals import Constant
from penstock.workloads.running.synthetic import any_dataflow
from tests.sim.events.cases import EXPONENTIAL, three_machines, word_count

SECONDS = 4.0
REST = 1.0  # after which tuples due within SECONDS have ended


def runtime_latencies(application: Application, cluster: Cluster, slots: list[int], window: int) -> Floats:
    """Run a dataflow of the application's shape on a manual clock; return the latencies in the order of dues."""
    names = cluster.slot_names
    ran = TestCluster(
        any_dataflow(application, application.offered_tps),
        emulate=cluster,
        placement=[names[slot] for slot in slots],
        window=window,
        sample_tps=-1.0,
    ).start()
    ran.advance(SECONDS + REST)
    records = ran.result().records
    done = [record for record in records if record.kind == RecordKind.DONE]
    start = min(record.due for record in records if record.kind == RecordKind.ROOT and record.due is not None)
    found = sorted((r.due - start, r.finished - r.due) for r in done if r.due is not None and r.finished is not None)
    return np.array([latency for due, latency in found if due < SECONDS - 1e-6])


def twin_latencies(application: Application, cluster: Cluster, slots: list[int], window: int, seed: int = 0) -> Floats:
    rate = application.offered_tps
    assert rate is not None
    twin = Twin(application, cluster, Costs(window=window))
    run = twin.start(slots, rates={"source": Constant(rate=rate)}, records=-1.0, seed=seed)
    run.advance(SECONDS + REST)
    rows = [row for row in run.records().to_pylist() if row["kind"] == RecordKind.DONE]
    found = sorted((row["due"], row["finished"] - row["due"]) for row in rows)
    return np.array([latency for due, latency in found if due < SECONDS - 1e-6])


PLACEMENTS = [[6, 7, 0, 7, 4, 4, 5, 2, 8, 0], [1, 5, 6, 2, 2, 3, 2, 8, 1, 8], [7, 7, 1, 3, 5, 4, 5, 6, 5, 0]]


@pytest.mark.slow
@pytest.mark.parametrize("slots", PLACEMENTS)
def test_every_tuple_takes_as_long_as_in_the_runtime(slots: list[int]) -> None:
    """With constant times nothing is random: processor sharing, slots, turns and delays are equal."""
    application, cluster = word_count(110.0), three_machines()
    expected = runtime_latencies(application, cluster, slots, window=1024)
    found = twin_latencies(application, cluster, slots, window=1024)
    assert len(found) == len(expected) == 110 * SECONDS
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("slots", PLACEMENTS)
def test_network_cards_and_few_credits_delay_tuples_as_in_the_runtime(slots: list[int]) -> None:
    """A real tuple's encoding is a few bytes longer or shorter than the stated size: 1 µs a hop at most, here."""
    application, cluster = word_count(110.0), three_machines(network_mbps=20.0)
    expected = runtime_latencies(application, cluster, slots, window=4)
    found = twin_latencies(application, cluster, slots, window=4)
    assert len(found) == len(expected)
    assert found == pytest.approx(expected, abs=20e-6)


def test_senders_start_with_different_receivers_as_in_the_runtime() -> None:
    application, cluster = word_count(110.0), three_machines()
    names = cluster.slot_names
    ran = TestCluster(
        any_dataflow(application, application.offered_tps),
        emulate=cluster,
        placement=[names[slot] for slot in PLACEMENTS[0]],
        sample_tps=-1.0,
    ).start()
    ran.advance(1.0)
    live = [(r.emitted, r.source, r.task) for r in ran.result().records if r.kind == RecordKind.HOP]
    run = Twin(application, cluster).start(PLACEMENTS[0], rates={"source": Constant(rate=110.0)}, records=-1.0)
    run.advance(1.0)
    rows = [row for row in run.records().to_pylist() if row["kind"] == RecordKind.HOP]
    for hops in (live, [(row["emitted"], row["source"], row["task"]) for row in rows]):
        first: dict[str, tuple[float, set[str]]] = {}
        for emitted, source, task in sorted(hops):
            if first.setdefault(source, (emitted, set()))[0] == emitted:
                first[source][1].add(task)
        begins = {source: sorted(tasks) for source, (_, tasks) in first.items()}
        assert [begins[f"source[{number}]"] for number in range(2)] == [["split[0]"], ["split[1]"]]
        assert [begins[f"split[{number}]"] for number in range(3)] == [  # two at once
            ["count[0]", "count[1]"], ["count[1]", "count[2]"], ["count[0]", "count[2]"],
        ]  # fmt: skip
        assert [begins[f"count[{number}]"] for number in range(3)] == [
            ["database[0]"],
            ["database[1]"],
            ["database[0]"],
        ]


@pytest.mark.slow
@pytest.mark.parametrize("slots", PLACEMENTS)
def test_turns_among_near_tasks_start_as_in_the_runtime(slots: list[int]) -> None:
    made, cluster = word_count(110.0), three_machines()
    near = [msgspec.structs.replace(one, grouping=Grouping.LOCAL_OR_SHUFFLE) for one in made.streams]
    application = msgspec.structs.replace(made, streams=tuple(near))
    expected = runtime_latencies(application, cluster, slots, window=1024)
    assert twin_latencies(application, cluster, slots, window=1024) == pytest.approx(expected, abs=1e-9)


def test_routed_links_delay_tuples_as_in_the_runtime() -> None:
    application, mesh = word_count(80.0), three_machines()
    links = (
        Link(source="m0", target="hub", bandwidth_mbps=5.0, latency_ms=1.0),
        Link(source="m1", target="hub", bandwidth_mbps=8.0, latency_ms=2.0),
        Link(source="m2", target="hub", bandwidth_mbps=6.0, latency_ms=0.5),
    )
    cluster = Cluster(name="star", machines=mesh.machines, switches=("hub",), links=links)
    expected = runtime_latencies(application, cluster, PLACEMENTS[0], window=1024)
    found = twin_latencies(application, cluster, PLACEMENTS[0], window=1024)
    assert len(found) == len(expected)
    assert np.median(np.abs(found - expected)) < 50e-6
    assert found.mean() == pytest.approx(expected.mean(), rel=0.01)


@pytest.mark.slow
def test_mean_latency_agrees_with_varying_service_times() -> None:
    services = (ServiceTime(distribution=Distribution.GAMMA, cv=0.5), EXPONENTIAL, EXPONENTIAL, EXPONENTIAL)
    application, cluster = word_count(60.0, services), three_machines()
    for slots in PLACEMENTS:
        expected = runtime_latencies(application, cluster, slots, window=1024).mean()
        found = np.mean([twin_latencies(application, cluster, slots, 1024, seed).mean() for seed in range(5)])
        assert found == pytest.approx(expected, rel=0.15)  # the runtime's mean is of only 240 tuples
