"""A plan that is applied to a run moves its tasks and turns its streams to its own links, here without Spark."""

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from penstock.api.dataflow import Dataflow
from penstock.api.sources.generated import Generated
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import PenstockError
from penstock.model.placement import Placement
from penstock.model.plan import Plan, PlannedRoute, to_plan
from penstock.model.telemetry import RecordKind
from penstock.model.tuples import TuplePolicies
from penstock.runtime.config import RunConfig
from penstock.runtime.controller.process import Driver
from penstock.runtime.controller.run_spec import routes_of
from penstock.runtime.handle import LogLine
from penstock.runtime.run import Run
from penstock.runtime.spark.jobs import SlotJobs
from penstock.runtime.storage.run_folder import RunInfo
from penstock.testing import Captured, TestCluster
from penstock.workloads.clusters import cluster as named
from tests.runtime import flows


class Stepped:
    """A driver whose workers run while it serves requests."""

    def __init__(self, cluster: TestCluster) -> None:
        self.cluster, self.controller = cluster, cluster.controller

    def ask(self, question: Callable[[float], Any]) -> Any:
        answer = question(self.cluster.clock())
        while self.controller.operations.current:
            self.cluster.advance(0.001)
        return answer

    def on_log(self, listener: Callable[[LogLine], None]) -> None:
        self.listener = listener


def run_of(cluster: TestCluster, machines: Cluster, folder: Path, stack: ExitStack) -> Run:
    info = RunInfo(
        run="run",
        application="a",
        master="",
        emulated=machines.name,
        policy="",
        started=datetime(2026, 1, 1),
        pid=1,
        version="",
        config=RunConfig(),
        folder=str(folder),
    )
    run = Run(cluster.layout, info, cast(Driver, Stepped(cluster)), cast(SlotJobs, None), machines, stack)
    stack.callback(run._log.close)
    return run


def plan_of(cluster: TestCluster, machines: Cluster, slots: tuple[int, ...], *routes: PlannedRoute) -> Plan:
    plan = to_plan(cluster.layout.application, machines, Placement(slots), policy="other", objective="throughput")
    return msgspec.structs.replace(plan, routes=routes)


def test_an_applied_plan_moves_tasks_and_turns_streams_to_its_links(tmp_path: Path) -> None:
    links = (
        Link(source="a", target="b", bandwidth_mbps=800.0, latency_ms=5.0),
        Link(source="b", target="c", bandwidth_mbps=800.0, latency_ms=7.0),
        Link(source="a", target="c", bandwidth_mbps=8.0, latency_ms=30.0),
    )
    machines = Cluster(name="triangle", machines=tuple(Machine(name=name) for name in "abc"), links=links)
    flow = Dataflow("routed")
    flow.sink("out", Captured([]), flow.source("numbers", Generated(int, rate=20.0)))
    cluster = TestCluster(flow, emulate=machines, placement=["a/0", "b/0"]).start()
    route = PlannedRoute(stream="numbers->out", source="a", target="c", links=(links[2].label,))
    plan = plan_of(cluster, machines, (0, 2), route)
    with ExitStack() as stack:
        outcomes = run_of(cluster, machines, tmp_path, stack).apply(plan)
    turned = cluster.clock()
    cluster.advance(1.0)
    times = [
        (hop.arrived or 0.0) - (hop.sent or 0.0)
        for hop in flows.of_kind(cluster.drain().records, RecordKind.HOP)
        if (hop.sent or 0.0) > turned
    ]
    assert [(outcome.task, outcome.after) for outcome in outcomes] == [("out[0]", "c/0")]
    assert len(times) >= 19
    assert times == pytest.approx([0.030] * len(times), abs=0.002)


def test_telemetry_has_the_start_of_a_plan_and_the_moves_of_tasks(tmp_path: Path) -> None:
    machines = Cluster(name="three", machines=tuple(Machine(name=name) for name in "abc"))
    flow = Dataflow("moved")
    flow.sink("out", Captured([]), flow.source("numbers", Generated(int, rate=20.0)))
    cluster = TestCluster(flow, emulate=machines, placement=["a/0", "b/0"]).start()
    cluster.advance(1.1)
    with ExitStack() as stack:
        run_of(cluster, machines, tmp_path, stack).apply(plan_of(cluster, machines, (0, 2)))
    cluster.advance(1.0)
    records = cluster.drain().records
    events = [record for record in flows.of_kind(records, RecordKind.EVENT) if "start" not in (record.event or "")]
    happened = [record.event for record in events if record.event in ("applying", "move", "apply")]
    assert happened == ["applying", "move", "apply"]
    begun = next(record.at for record in events if record.event == "applying")
    own = sorted(
        (record.at - (record.interval or 0.0), record.at, record.worker)
        for record in flows.of_kind(records, RecordKind.TASK)
        if record.task == "out[0]"
    )
    assert [worker for _, _, worker in own] == sorted(worker for _, _, worker in own)
    assert {worker for start, end, worker in own if (start + end) / 2 < begun} == {"b"}
    assert all(later[0] >= earlier[1] - 1e-9 for earlier, later in pairwise(own))


def test_words_are_counted_right_while_a_plan_with_routes_is_applied(tmp_path: Path) -> None:
    machines = named("star-8")
    cluster = TestCluster(flows.word_count(300, cpu=1e-3, most=1), emulate=machines).start()
    by_ends = {frozenset((link.source, link.target)): link.label for link in machines.links}
    switch = next(iter(set(machines.node_index) - set(machines.machine_index)))
    ends = [machine.name for machine in machines.machines]
    labels = [stream.label for stream in cluster.layout.streams]
    routes = [
        PlannedRoute(
            stream=label, source=a, target=b, links=(by_ends[frozenset((a, switch))], by_ends[frozenset((switch, b))])
        )
        for label in labels
        for a in ends
        for b in ends
        if a != b
    ]
    count = len(cluster.layout.components)
    plan = plan_of(cluster, machines, tuple(machines.slot_count - 1 - task for task in range(count)), *routes)
    cluster.advance(0.05)
    with ExitStack() as stack:
        assert run_of(cluster, machines, tmp_path, stack).apply(plan)
    assert cluster.controller.policy == "other"
    assert len(routes_of(plan)) == len(routes)
    flows.check_counts(cluster.finish()["out"], 300)


@pytest.mark.slow
def test_policies_are_switched_alone_or_with_a_plan_that_has_some(tmp_path: Path) -> None:
    machines = named("hetero-small")
    cluster = TestCluster(flows.word_count(3000, most=1), emulate=machines).start()
    cluster.advance(0.02)
    count = len(cluster.layout.components)
    silent = plan_of(cluster, machines, tuple(task % machines.slot_count for task in range(count)))
    wanted = TuplePolicies(routing="least-loaded", sending="round-robin", slot_ms=2.0)
    with ExitStack() as stack:
        run = run_of(cluster, machines, tmp_path, stack)
        began = TuplePolicies(routing="potus", streams={"count->out": "shuffle"})
        assert run.switch(routing=["potus", "count->out=shuffle"]) == began
        run.apply(silent)
        assert run.status().tuples == began
        run.apply(msgspec.structs.replace(silent, tuples=wanted))
        merged = msgspec.structs.replace(wanted, streams=began.streams)
        assert run.status().tuples == merged
        run.apply(msgspec.structs.replace(silent, tuples=TuplePolicies(routing="potus")))
        assert run.status().tuples == msgspec.structs.replace(merged, routing="potus")  # the rest is not named
        run.apply(msgspec.structs.replace(silent, tuples=TuplePolicies(routing="least-loaded")))
        with pytest.raises(PenstockError, match="stream split->count is grouped by fields"):
            run.switch(routing="split->count=potus")
        assert run.switch(TuplePolicies(), sending="fifo") == TuplePolicies(sending="fifo")
    records = cluster.finish().records
    switches = [record.detail for record in flows.of_kind(records, RecordKind.EVENT) if record.event == "switch"]
    assert switches[0] == "routing potus, routing of count->out shuffle, slot 1 ms"
    rest = "routing of count->out shuffle, sending round-robin, slot 2 ms"
    reported = [f"routing {policy}, {rest}" for policy in ("least-loaded", "potus", "least-loaded")]
    assert switches[1:] == [*reported, "sending fifo, slot 1 ms"]
