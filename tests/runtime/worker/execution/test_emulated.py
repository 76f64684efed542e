"""Applications on emulated machines: waits, utilisation and delays are those of the machines described.

Mean waits are compared with theory at the load that the arrivals really made, as much of a mean's chance is that of the
load; and tuple by tuple with the recursion that defines the queue, exactly.
"""

import heapq
import math
from typing import NamedTuple

import pytest

from penstock.api.dataflow import Dataflow
from penstock.api.sources.generated import Generated
from penstock.model.cluster import Cluster, Distances, Link, Machine
from penstock.model.telemetry import Record, RecordKind
from penstock.model.topology import Distribution, ServiceTime
from penstock.testing import Captured, Result, TestCluster, run, tiny_cluster
from penstock.workloads.arrivals import Poisson
from tests.runtime import flows

SERVICE = 0.002  # s
NOWHERE = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=0.0)
WITHIN = 0.1
REST = 200  # last tuples: those that wait when a source ends are allocated at once, not as servers become free


class Served(NamedTuple):
    """What became of the tuples at the sink, in the order in which they were to be served."""

    hops: list[Record]
    load: float  # that really was
    used: float  # share of the sink's cores, as machines recorded it


def served(load: float, count: int, servers: int, service: ServiceTime, window: int) -> Served:
    """Run a Poisson source, which costs nothing, before a sink with a slot and a core a task."""
    flow = Dataflow("queue")
    arrivals = Poisson(rate=load * servers / SERVICE)
    numbers = flow.source("in", Generated(int, arrivals=arrivals, count=count + REST))
    flow.sink("out", Captured([]), numbers, parallelism=servers, cpu=SERVICE, service=service)
    machines = (Machine(name="from"), Machine(name="to", slots=servers, cores=servers))
    cluster = Cluster(name="two", machines=machines, distances=NOWHERE)
    placement = ["from/0", *(f"to/{number}" for number in range(servers))]
    result = run(flow, emulate=cluster, placement=placement, window=window, seed=7, checkpoint_s=0)
    hops = sorted(flows.of_kind(result.records, RecordKind.HOP), key=lambda hop: time(hop.emitted))
    assert len(hops) == count + REST
    work = sum(time(hop.finished) - time(hop.started) for hop in hops)
    seconds = max(time(hop.finished) for hop in hops) - time(hops[0].emitted)
    records = [record for record in flows.of_kind(result.records, RecordKind.MACHINE) if record.worker == "to"]
    used = sum(time(record.busy) * time(record.interval) for record in records)
    return Served(hops[:count], work / seconds / servers, used / seconds)


def time(value: float | None) -> float:
    assert value is not None
    return value


def check_first_come_first_served(hops: list[Record], servers: int) -> None:
    """Every tuple is taken up as soon as it is there and a server is free, exactly."""
    free = [-math.inf] * servers
    for hop in hops:
        due = max(time(hop.emitted), heapq.heappop(free))
        assert time(hop.started) == pytest.approx(due, abs=1e-9)
        heapq.heappush(free, time(hop.finished))


@pytest.mark.slow
@pytest.mark.parametrize(("load", "count"), [(0.5, 5_000), (0.8, 10_000), (0.9, 30_000)])
def test_waits_of_constant_service_agree_with_theory(load: float, count: int) -> None:
    found = served(load, count, 1, ServiceTime(), window=100_000)
    mean = sum(time(hop.started) - time(hop.arrived) for hop in found.hops) / count
    assert found.load == pytest.approx(load, rel=0.05)
    assert mean == pytest.approx(found.load * SERVICE / 2.0 / (1.0 - found.load), rel=WITHIN)
    assert found.used == pytest.approx(found.load, rel=0.02)
    check_first_come_first_served(found.hops, 1)


def erlang_wait(servers: int, load: float) -> float:
    """Return the mean wait of M/M/c (Erlang's C formula), for a mean service time of 1."""
    offered = servers * load
    below = sum(offered**number / math.factorial(number) for number in range(servers))
    waiting = offered**servers / math.factorial(servers) / (1.0 - load)
    return waiting / (below + waiting) / (servers * (1.0 - load))


@pytest.mark.slow
@pytest.mark.parametrize(("servers", "load", "count"), [(2, 0.5, 5_000), (3, 0.8, 10_000), (4, 0.9, 20_000)])
def test_waits_before_several_servers_agree_with_theory(servers: int, load: float, count: int) -> None:
    found = served(load, count, servers, ServiceTime(distribution=Distribution.EXPONENTIAL), window=1)
    mean = sum(time(hop.started) - time(hop.emitted) for hop in found.hops) / count
    assert found.load == pytest.approx(load, rel=0.05)
    assert mean == pytest.approx(erlang_wait(servers, found.load) * SERVICE, rel=WITHIN)
    assert found.used == pytest.approx(found.load, rel=0.02)
    check_first_come_first_served(found.hops, servers)


def hops_of(
    machines: tuple[Machine, ...], placement: list[str], *, cpu: float, count: int = 1, **more: object
) -> Result:
    flow = Dataflow("small")
    numbers = flow.source("in", flows.Given(["x" * 1000] * count), emits=str)
    flow.sink("out", Captured([]), numbers, parallelism=len(placement) - 1, cpu=cpu)
    cluster = Cluster(name="small", machines=machines, **{"distances": NOWHERE, **more})  # type: ignore[arg-type]
    return run(flow, emulate=cluster, placement=placement, checkpoint_s=0)


def test_a_machine_twice_as_fast_takes_half_as_long() -> None:
    machines = (Machine(name="a"), Machine(name="b", speed=2.0))
    (hop,) = flows.of_kind(hops_of(machines, ["a/0", "b/0"], cpu=0.5).records, RecordKind.HOP)
    assert time(hop.finished) - time(hop.started) == pytest.approx(0.25)


def test_slots_share_the_cores() -> None:
    machines = (Machine(name="a"), Machine(name="b", slots=2, cores=1))
    hops = flows.of_kind(hops_of(machines, ["a/0", "b/0", "b/1"], cpu=0.5, count=2).records, RecordKind.HOP)
    assert [time(hop.finished) - time(hop.started) for hop in hops] == pytest.approx([1.0, 1.0])


def test_tasks_of_a_slot_take_turns() -> None:
    machines = (Machine(name="a"), Machine(name="b", slots=1, cores=4))
    hops = flows.of_kind(hops_of(machines, ["a/0", "b/0", "b/0"], cpu=0.5, count=2).records, RecordKind.HOP)
    spans = sorted((time(hop.started), time(hop.finished)) for hop in hops)
    assert [end - start for start, end in spans] == pytest.approx([0.5, 0.5])
    assert spans[1][0] == pytest.approx(spans[0][1])


def test_distance_and_network_cards_take_their_time() -> None:
    machines = (Machine(name="a", network_mbps=8.0), Machine(name="b"))
    far = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=30.0)
    (hop,) = flows.of_kind(hops_of(machines, ["a/0", "b/0"], cpu=0.0, distances=far).records, RecordKind.HOP)
    size = time(hop.bytes)
    assert size > 1000
    assert time(hop.arrived) - time(hop.sent) == pytest.approx(0.030 + size / 1e6)


def test_frames_take_the_links_between_machines() -> None:
    machines = tuple(Machine(name=name) for name in "abc")
    links = (
        Link(source="a", target="b", bandwidth_mbps=8.0, latency_ms=5.0),
        Link(source="b", target="c", bandwidth_mbps=4.0, latency_ms=7.0),
    )
    (hop,) = flows.of_kind(hops_of(machines, ["a/0", "c/0"], cpu=0.0, links=links).records, RecordKind.HOP)
    assert time(hop.arrived) - time(hop.sent) == pytest.approx(0.012 + 3 * time(hop.bytes) / 1e6)


def test_an_apply_sends_tuples_over_the_links_of_the_new_plan() -> None:
    links = (
        Link(source="a", target="b", bandwidth_mbps=800.0, latency_ms=5.0),
        Link(source="b", target="c", bandwidth_mbps=800.0, latency_ms=7.0),
        Link(source="a", target="c", bandwidth_mbps=8.0, latency_ms=30.0),
    )
    machines = tuple(Machine(name=name) for name in "abc")
    flow = Dataflow("routed")
    flow.sink("out", Captured([]), flow.source("numbers", Generated(int, rate=20.0)))
    cluster = TestCluster(
        flow, emulate=Cluster(name="triangle", machines=machines, links=links), placement=["a/0", "c/0"]
    ).start()
    cluster.advance(1.0)
    assert cluster.apply([], (("numbers->out", "a", "c", (links[2].label,)),)) == []
    turned = cluster.clock()
    cluster.advance(1.0)
    hops = flows.of_kind(cluster.drain().records, RecordKind.HOP)
    before = [time(hop.arrived) - time(hop.sent) for hop in hops if time(hop.sent) < turned]
    after = [time(hop.arrived) - time(hop.sent) for hop in hops if time(hop.sent) > turned]
    assert before == pytest.approx([0.012] * 20, abs=0.002)
    assert after == pytest.approx([0.030] * len(after), abs=0.002)
    assert len(after) >= 19


@pytest.mark.slow
def test_words_are_counted_right_over_routed_links_and_moves() -> None:
    machines = tuple(Machine(name=name, slots=2) for name in "abc")
    links = (
        Link(source="a", target="b", bandwidth_mbps=80.0, latency_ms=1.0),
        Link(source="b", target="c", bandwidth_mbps=80.0, latency_ms=2.0),
    )
    for seed in range(3):
        flow = flows.word_count(300, cpu=1e-3, most=1)
        cluster = TestCluster(flow, emulate=Cluster(name="line", machines=machines, links=links), seed=seed).start()
        assert flows.move_about(cluster, 30, seed, pause=2e-3) == 30
        flows.check_counts(cluster.finish()["out"], 300)


def test_records_state_that_they_are_emulated() -> None:
    result = hops_of((Machine(name="a"),), ["a/0", "a/0"], cpu=0.1)
    assert result.status.emulated == "small"
    assert all(record.emulated for record in result.records)
    assert result.status.warnings == []


def test_a_checkpoint_waits_for_the_task_that_is_too_slow() -> None:
    flow = Dataflow("slow")
    numbers = flow.source("in", Generated(int, rate=300.0))
    quick = flow.map("quick", abs, numbers, parallelism=2, cpu=1e-4)
    slow = flow.map("slow", abs, quick, parallelism=2, cpu=1e-2)
    flow.sink("out", Captured([]), slow)
    cluster = TestCluster(flow, emulate=tiny_cluster(1, slots=6), checkpoint_s=2.0).start()
    cluster.advance(2.5)
    saving = cluster.controller.status(cluster.clock()).saving
    assert saving is not None
    assert saving.number == 1
    assert {name.partition("[")[0] for name in saving.awaited} == {"slow"}
    assert "out[0]" in saving.others


@pytest.mark.parametrize("held", ["in flight", "rate", "slot"])
def test_a_tuple_that_waited_for_a_limit_is_not_late(held: str) -> None:
    """Nothing is late on a manual clock, however long a source was held."""
    flow = Dataflow("held")
    numbers = flow.source("in", Generated(int, rate=500.0), cpu=4e-3 if held == "slot" else 1e-4)
    flow.sink("out", Captured([]), numbers, cpu=5e-3)
    limits, in_flight = 100.0 if held == "rate" else None, 20 if held == "in flight" else 0
    cluster = TestCluster(flow, emulate=tiny_cluster(2), limits=limits, in_flight=in_flight).start()
    for step in range(16):
        cluster.advance(0.25)
        if step == 7:
            cluster.limit(None)
        for machine in cluster.controller.status(cluster.clock()).machines:
            assert machine.lag_ms == pytest.approx(0.0, abs=1e-6)
    assert len(cluster.outputs["out"]) > 200
