"""The controller's phases: registration, the end of a run, records."""

import math

import pytest

from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.telemetry import REQUIRED, RecordKind
from penstock.runtime.config import Checkpointing, FlowControl, Recovery
from penstock.runtime.controller.run_spec import Site, check_placement
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.storage.checkpoints import read_journal
from tests.runtime.controllers import (
    controller,
    layout,
    of_kind,
    register,
    running,
    saved,
)


def test_assigns_tasks_once_all_workers_registered_and_starts_once_all_are_ready() -> None:
    one = controller()
    assert register(one, "w1") == 1
    assert not one.outbox.commands
    assert register(one, "w0") == 0
    assigned = of_kind(one, controller_messages.Assign)
    assert [(number, assign.worker) for number, assign in assigned] == [(0, 0), (1, 1)]
    assert {assign.epoch for _, assign in assigned} == {1}
    assert [assign.incarnation for _, assign in assigned] == [2, 1]
    one.receive(0, worker_messages.Ready(1), 1.0)
    assert one.phase == "starting"
    one.receive(1, worker_messages.Ready(1), 1.5)
    assert one.phase == "running"
    assert [number for number, _ in of_kind(one, controller_messages.Start)] == [0, 1]


def test_rejects_workers_that_are_not_needed() -> None:
    one = controller()
    assert register(one, "stranger") is None
    assert register(one, "w0") == 0
    assert register(one, "w0") is None
    register(one, "w1")
    assert register(one, "w1") is None


def test_names_workers_that_did_not_register() -> None:
    one = controller(recovery=Recovery(start_s=10.0))
    register(one, "w0")
    one.tick(9.0)
    assert one.phase == "starting"
    one.tick(10.5)
    assert one.phase == "failed"
    assert one.error == "workers w1 did not start in 10 s; has the cluster that many free cores?"


def test_names_workers_that_were_not_ready() -> None:
    one = controller(recovery=Recovery(start_s=10.0))
    register(one, "w0")
    register(one, "w1")
    one.receive(1, worker_messages.Ready(1), 1.0)
    one.tick(10.5)
    assert one.error.startswith("workers w0 did not start")


def test_a_worker_that_keeps_failing_before_the_start_ends_the_run() -> None:
    one = controller()
    for _ in range(3):
        register(one, "w1")
        one.lose(1, "it ended", 1.0)
    assert one.error == "worker 'w1' (pid 42 on host) was lost: it ended"


def test_keeps_the_first_failure() -> None:
    one = running()
    one.receive(0, worker_messages.Failure(1, "same", 1, "5", "KeyError: 'x'", "Traceback …"), 5.0)
    one.receive(1, worker_messages.Failure(1, "out", 0, "", "OSError", ""), 5.1)
    one.lose(1, "gone", 6.0)
    assert one.error == "same[1]: KeyError: 'x' on tuple 5"
    assert one.traceback == "Traceback …"


def test_a_run_that_has_ended_does_not_recover() -> None:
    one = running()
    one.receive(0, worker_messages.Failure(1, "same", 1, "5", "KeyError: 'x'", ""), 5.0)
    one.receive(1, worker_messages.PeerLost(1, 0, "it hung up"), 5.1)
    one.receive(1, worker_messages.Failure(1, "", -1, "", "a gap", "", False), 5.1)
    one.receive(1, worker_messages.CheckpointUnreadable(1, 0, "damaged"), 5.1)
    assert (one.phase, one.epoch, one.status(6.0).recoveries) == ("failed", 1, 0)


def test_drops_messages_of_another_epoch() -> None:
    one = running()
    one.receive(0, worker_messages.Failure(7, "same", 0, "", "late", ""), 2.0)
    one.receive(0, worker_messages.Ended(7, 0, 5), 2.0)
    assert one.phase == "running"


def test_takes_a_failure_of_a_worker_without_an_epoch() -> None:
    one = controller()
    register(one, "w0")
    register(one, "w1")
    one.receive(1, worker_messages.Failure(0, "", -1, "", "cannot be", ""), 1.0)
    assert one.error == "worker: cannot be"


def test_stops_when_every_task_has_ended() -> None:
    one = running()
    for task in range(4):
        assert one.phase == "running"
        one.receive(0, worker_messages.Ended(1, task, 5), 3.0)
    one.tick(3.0)
    assert [number for number, _ in of_kind(one, controller_messages.BeginCheckpoint)] == [0, 1]
    for number in range(2):
        entries = tuple(
            worker_messages.TaskEntry(task, 0, 0, 0, True, 5, "", ()) for task in (2 * number, 2 * number + 1)
        )
        assert one.phase == "running"
        one.receive(number, worker_messages.CheckpointSaved(1, 1, f"w{number}.e1", 0, entries), 3.0)
    assert one.phase == "stopped"
    assert one.wakeup() == math.inf


@pytest.mark.parametrize("seen", [False, True])
def test_takes_a_last_checkpoint_if_all_tasks_end_during_another(seen: bool) -> None:
    one = running(checkpointing=Checkpointing(interval_s=1.0))
    one.tick(3.0)
    for task in range(4):
        one.receive(task // 2, worker_messages.Ended(1, task, 5), 3.0)
        one.tick(3.0)
    for worker in range(2):
        saved(one, worker, 1, seen)
    one.tick(3.0)
    if not seen:  # the first had its barriers before the ends
        assert one.phase == "running"
        one.tick(3.0)
        for worker in range(2):
            saved(one, worker, 2, True)
        one.tick(3.0)
    assert one.phase == "stopped"
    begun = [command.number for worker, command in of_kind(one, controller_messages.BeginCheckpoint) if worker == 0]
    assert begun == ([1] if seen else [1, 2])


def test_a_drain_before_the_start_stops() -> None:
    one = controller()
    one.drain(1.0)
    assert one.phase == "stopped"


def test_sends_a_source_its_progress() -> None:
    one = running(flow_control=FlowControl(in_flight=10))
    one.receive(1, worker_messages.SinkProgress(1, 3, 0, 4), 2.0)
    one.receive(1, worker_messages.SinkProgress(1, 3, 0, 3), 2.0)
    assert of_kind(one, controller_messages.SourceProgress) == [(0, controller_messages.SourceProgress(1, 0, 4))]


def test_measures_and_records_clocks() -> None:
    one = running()
    for step in range(20):
        now = 2.0 + step / 2
        one.tick(now)
        for number, ping in of_kind(one, controller_messages.Ping):
            one.receive(number, worker_messages.Pong(ping.number, now + 0.001 + 7.0 * number), now + 0.002)
        one.outbox.commands.clear()
    offsets = {machine.name: machine.offset_ms for machine in one.status(12.0).machines}
    assert offsets == {"w0": 0.0, "w1": pytest.approx(7000.0)}
    records = one.take_records()
    clocks = [record for record in records if record.kind == RecordKind.CLOCK]
    assert {(record.worker, record.incarnation) for record in clocks} == {("w0", 1), ("w1", 2)}
    assert all(getattr(record, name) is not None for record in records for name in REQUIRED[record.kind])
    assert one.take_records() == []


def test_the_next_driver_reads_the_policy_of_an_applied_plan() -> None:
    one = running()
    one.set_policy("r-storm", 2.0)
    one.store(2.0)
    journal = read_journal(one.disk, one.checkpointing.folder)
    assert journal is not None
    assert journal.policy == one.status(2.0).policy == "r-storm"


def test_log_lines_have_their_origin() -> None:
    one = running()
    one.receive(1, worker_messages.LogMessage(5.0, "info", "same", 1, "hello"), 2.0)
    one.receive(1, worker_messages.LogMessage(5.0, "warning", "", -1, "slow"), 2.0)
    assert [line.speaker for line in one.outbox.lines] == ["same[1]", "w1"]


def test_latencies_are_in_the_controllers_time() -> None:
    one = running()
    for step in range(3):
        one.tick(2.0 + step)
        for number, ping in of_kind(one, controller_messages.Ping):
            one.receive(number, worker_messages.Pong(ping.number, 2.0 + step + 100.0 * number), 2.0 + step)
        one.outbox.commands.clear()
    root, ack = worker_messages.Root(9, 0, 5.0, 5.0), worker_messages.Ack(9, 77, 5.0)
    one.receive(0, worker_messages.ActivityReport(1, 5.25, 0.25, (), (root,), (ack,), 0.0, 0.0), 5.25)
    one.receive(
        1,
        worker_messages.ActivityReport(1, 105.25, 0.25, (), (), (worker_messages.Ack(9, 77, 105.125),), 0.0, 0.0),
        5.25,
    )
    latency = one.status(5.5).latency
    assert latency is not None
    assert latency.p50_ms == pytest.approx(125.0)


def test_rejects_a_placement_that_does_not_match() -> None:
    sites = (Site("w0", ("w0/0",)),)
    with pytest.raises(InvalidInput, match="expected 4 tasks, got 1"):
        check_placement(layout(), sites, ["w0/0"])
    with pytest.raises(UnknownName, match=r"plan.same\[0\]: no worker has slot 'w9/0'; did you mean w0/0"):
        check_placement(layout(), sites, ["w0/0", "w9/0", "w0/0", "w0/0"])
