"""Memory and capacity of machines in telemetry: of a process, its use; of an emulated machine, what is declared."""

import os

import pytest

from penstock.api.dataflow import Dataflow
from penstock.api.sources.generated import Generated
from penstock.model.cluster import Cluster, Machine
from penstock.model.telemetry import RecordKind
from penstock.runtime.config import FlowControl, RunConfig, Telemetry
from penstock.runtime.controller.run_spec import run_folders
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.worker.reporting import ProcessUsage, resident_mb
from penstock.runtime.worker.state_machine import Worker
from penstock.startup.executor_discovery import host_capacity
from penstock.testing import Captured, ManualClock, run
from tests.runtime import flows


def test_a_process_knows_the_memory_it_has() -> None:
    before = resident_mb()
    ballast = bytearray(b"x") * (64 * 2**20)
    assert 5 < before < before + 50 < resident_mb()
    assert len(ballast) == 64 * 2**20


def test_an_emulated_machine_uses_what_its_tasks_declare() -> None:
    flow = Dataflow("small")
    numbers = flow.source("in", Generated(int, rate=10, count=20), memory_mb=30)
    flow.sink("out", Captured([]), numbers, parallelism=2, memory_mb=100)
    fast = Machine(name="a", slots=2, cores=2, speed=1.5, memory_mb=512)
    cluster = Cluster(name="two", machines=(fast, Machine(name="b")))
    records = flows.of_kind(run(flow, emulate=cluster, placement=["a/0", "a/1", "b/0"]).records, RecordKind.MACHINE)
    assert {(record.worker, record.memory_mb) for record in records} == {("a", 130.0), ("b", 100.0)}
    has = {(record.worker, record.capacity_cpu, record.capacity_mb) for record in records}
    assert has == {("a", 3.0, 512.0), ("b", 1.0, 4096.0)}


def test_a_host_has_its_cores_and_all_of_its_memory() -> None:
    cores, memory = host_capacity()
    assert cores == os.cpu_count()
    assert memory > resident_mb()


def test_a_worker_without_a_process_reports_no_memory() -> None:
    flow = Dataflow("small")
    flow.sink("out", Captured([]), flow.source("in", Generated(int, rate=10, count=5)))
    records = flows.of_kind(run(flow).records, RecordKind.MACHINE)
    assert {(record.memory_mb, record.capacity_cpu, record.capacity_mb) for record in records} == {(None, None, None)}


def test_a_process_reports_the_capacity_of_its_machine_and_the_share_that_it_used() -> None:
    flow = Dataflow("small")
    flow.sink("out", Captured([]), flow.source("in", Generated(int, rate=1.0)))
    clock, used = ManualClock(), [3.0]
    worker = Worker(flow, "r", clock, process=ProcessUsage(lambda: used[0]))
    peers = (controller_messages.Peer("m/0", "127.0.0.1", 1, 1),)
    worker.command(
        controller_messages.Assign(
            epoch=1,
            worker=0,
            incarnation=1,
            peers=peers,
            slots={"m/0": 0},
            placement=("m/0", "m/0"),
            config=RunConfig(flow_control=FlowControl(window=16), telemetry=Telemetry(sample_tps=0.0)),
            folders=run_folders(telemetry="kept"),
            capacity=(4.0, 1e6),
        )
    )
    worker.command(controller_messages.Start(1))
    clock.advance(2.0)
    used[0] += 1.2
    worker.turn()
    (record,) = flows.of_kind(worker.take_records(), RecordKind.MACHINE)
    assert (record.capacity_cpu, record.capacity_mb) == (4.0, 1e6)
    assert record.busy == pytest.approx(1.2 / 2.0 / 4.0)
    (report,) = [
        message for message in worker.outbox.take_messages() if isinstance(message, worker_messages.ActivityReport)
    ]
    assert report.cpu == pytest.approx(0.6)  # people are shown how near the process is to all of a core
    worker.command(controller_messages.Stop())
