"""The controller alone: who may register, what ends a run, what it does when something does not come."""

import math
from typing import Any

import pytest

from penstock.api.dataflow import Dataflow
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.telemetry import REQUIRED, RecordKind
from penstock.runtime import messages as wire
from penstock.runtime.controller import Controller
from penstock.runtime.layout import Layout
from penstock.runtime.operations import MOVE_S, PREPARE_S, CannotMove, Operation
from penstock.runtime.terms import Site, Terms, check_placement
from penstock.testing import Captured
from tests.runtime.flows import Given

LAYOUT_TASKS = ("numbers[0]", "same[0]", "same[1]", "out[0]")


def layout() -> Layout:
    flow = Dataflow("small")
    numbers = flow.source("numbers", Given(range(5)), gives=int)
    same = flow.map("same", int, numbers, parallelism=2)
    flow.sink("out", Captured([]), same)
    return Layout(flow)


def controller(**terms: Any) -> Controller:
    sites = tuple(Site(f"w{number}", (f"w{number}/0",)) for number in range(2))
    placement = ("w0/0", "w0/0", "w1/0", "w1/0")
    return Controller(layout(), Terms("r", sites, placement, telemetry="kept", **terms), 0.0)


def register(one: Controller, name: str, now: float = 0.0) -> int | None:
    return one.register(wire.Register(name, "host", 1, 42), now)


def running(**terms: Any) -> Controller:
    one = controller(**terms)
    for name in ("w0", "w1"):
        register(one, name)
    for number in range(2):
        one.told(number, wire.Ready(one.epoch), 1.0)
    assert one.phase == "running"
    one.out.clear()
    return one


def commands(one: Controller, kind: type) -> list[tuple[int, Any]]:
    return [(number, command) for number, command in one.out if isinstance(command, kind)]


def test_tells_every_worker_its_tasks_once_all_are_there_and_begins_once_all_are_ready() -> None:
    one = controller()
    assert register(one, "w1") == 1
    assert not one.out
    assert register(one, "w0") == 0
    assigned = commands(one, wire.Assign)
    assert [(number, assign.worker) for number, assign in assigned] == [(0, 0), (1, 1)]
    assert {assign.epoch for _, assign in assigned} == {1}
    assert [assign.incarnation for _, assign in assigned] == [2, 1]
    one.told(0, wire.Ready(1), 1.0)
    assert one.phase == "starting"
    one.told(1, wire.Ready(1), 1.5)
    assert one.phase == "running"
    assert [number for number, _ in commands(one, wire.Go)] == [0, 1]


def test_refuses_workers_that_it_does_not_want() -> None:
    one = controller()
    assert register(one, "stranger") is None
    assert register(one, "w0") == 0
    assert register(one, "w0") is None
    register(one, "w1")
    assert register(one, "w1") is None


def test_says_which_workers_did_not_start() -> None:
    one = controller(start_s=10.0)
    register(one, "w0")
    one.tick(9.0)
    assert one.phase == "starting"
    one.tick(10.5)
    assert one.phase == "failed"
    assert one.error == "workers w1 did not start in 10 s; has the cluster that many free cores?"


def test_says_which_workers_were_not_ready() -> None:
    one = controller(start_s=10.0)
    register(one, "w0")
    register(one, "w1")
    one.told(1, wire.Ready(1), 1.0)
    one.tick(10.5)
    assert one.error.startswith("workers w0 did not start")


def test_a_lost_worker_ends_the_run_with_one_line() -> None:
    one = running()
    one.lost(1, "connection reset", 5.0)
    assert one.phase == "failed"
    assert one.error == "worker 'w1' (pid 42 on host) was lost: connection reset"
    assert [number for number, _ in commands(one, wire.Stop)] == [0]
    machines = {machine.name: machine.alive for machine in one.status(6.0).machines}
    assert machines == {"w0": True, "w1": False}


def test_a_broken_connection_between_workers_ends_the_run() -> None:
    one = running()
    one.told(0, wire.Lost(1, 1, "reset"), 5.0)
    assert one.error == "worker 'w1' (pid 42 on host) was lost: 'w0' has no connection to it, reset"


def test_only_the_first_failure_counts() -> None:
    one = running()
    one.told(0, wire.Failure(1, "same", 1, "5", "KeyError: 'x'", "Traceback …"), 5.0)
    one.told(1, wire.Failure(1, "out", 0, "", "OSError", ""), 5.1)
    one.lost(1, "gone", 6.0)
    assert one.error == "same[1]: KeyError: 'x' on tuple 5"
    assert one.traceback == "Traceback …"


def test_drops_what_is_of_another_epoch() -> None:
    one = running()
    one.told(0, wire.Failure(7, "same", 0, "", "late", ""), 2.0)
    one.told(0, wire.Ended(7, 0, 5), 2.0)
    assert one.phase == "running"


def test_hears_of_a_worker_that_failed_before_it_knew_an_epoch() -> None:
    one = controller()
    register(one, "w0")
    register(one, "w1")
    one.told(1, wire.Failure(0, "", -1, "", "cannot be", ""), 1.0)
    assert one.error == "worker: cannot be"


def test_stops_when_every_task_has_ended() -> None:
    one = running()
    for task in range(4):
        assert one.phase == "running"
        one.told(0, wire.Ended(1, task, 5), 3.0)
    assert one.phase == "stopped"
    assert one.wakeup() == math.inf


def test_a_drain_before_the_start_stops() -> None:
    one = controller()
    one.drain(1.0)
    assert one.phase == "stopped"


def moving(one: Controller, *moves: tuple[int, str]) -> list[Operation]:
    ended: list[Operation] = []
    one.operations.request(moves, "move", ended.append)
    return ended


def test_moves_a_task_once_its_host_says_that_it_can() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"))
    assert commands(one, wire.Prepare) == [(0, wire.Prepare(1, 1, 1))]
    one.told(0, wire.Prepared(1, 1, ""), 2.0)
    assert [number for number, _ in commands(one, wire.Move)] == [0, 1]
    one.told(1, wire.Moved(1, 1, 2.25, 2.5), 3.0)
    assert one.placement[1] == "w1/0"
    assert [(done.task, done.before, done.after, done.seconds) for done in ended[0].done] == [
        ("same[0]", "w0/0", "w1/0", 0.25)
    ]


def test_gives_up_a_move_that_is_not_answered() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"))
    one.tick(PREPARE_S + 2.0)
    assert "same[0] did not answer in 5 s" in str(ended[0].error)
    assert commands(one, wire.Release) == [(0, wire.Release(1, 1, 1))]
    one.told(0, wire.Prepared(1, 1, ""), 9.0)
    assert not commands(one, wire.Move)


def test_a_task_that_does_not_arrive_in_time_is_waited_for_before_anything_else_moves() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"), (2, "w0/0"))
    one.told(0, wire.Prepared(1, 1, ""), 2.0)
    later = moving(one, (2, "w0/0"))
    one.tick(2.0 + MOVE_S + 1.0)
    assert "same[0] is still on its way after 30 s" in str(ended[0].error)
    assert len(commands(one, wire.Prepare)) == 1
    assert one.placement[1] == "w0/0"
    one.told(1, wire.Moved(1, 1, 2.0, 40.0), 40.0)
    assert one.placement[1] == "w1/0"
    assert len(ended) == 1
    assert commands(one, wire.Prepare)[-1] == (1, wire.Prepare(1, 2, 2))
    one.told(1, wire.Prepared(1, 2, ""), 41.0)
    one.told(0, wire.Moved(1, 2, 41.0, 41.0), 42.0)
    assert later[0].error is None


def test_a_drain_lets_a_move_that_is_under_way_come_to_its_end_and_no_other() -> None:
    one = running()
    first, second = moving(one, (1, "w1/0"), (2, "w0/0")), moving(one, (3, "w0/0"))
    one.told(0, wire.Prepared(1, 1, ""), 2.0)
    one.drain(2.5)
    assert "the application is ending" in str(second[0].error)
    assert not first
    one.told(1, wire.Moved(1, 1, 2.0, 3.0), 3.0)
    assert one.placement[1] == "w1/0"
    assert len(first[0].done) == 1
    assert "the application is ending" in str(first[0].error)


def test_a_drain_lets_a_task_go_on_that_was_asked_to_move() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"))
    one.drain(2.5)
    assert "the application is ending" in str(ended[0].error)
    assert commands(one, wire.Release) == [(0, wire.Release(1, 1, 1))]
    said = [type(command) for _, command in one.out]
    assert said.index(wire.Release) < said.index(wire.Drain)


def test_tells_every_worker_the_routes_of_an_operation_when_its_turn_comes() -> None:
    one = running()
    moving(one, (1, "w1/0"))
    route = ("numbers->same", "w0", "w1", ("w0-w1",))
    one.operations.request([(1, "w1/0")], "apply", lambda _: None, (route,))
    assert not commands(one, wire.Routes)
    one.told(0, wire.Prepared(1, 1, ""), 2.0)
    one.told(1, wire.Moved(1, 1, 2.0, 2.5), 3.0)
    assert commands(one, wire.Routes) == [(number, wire.Routes(1, (route,))) for number in (0, 1)]


def test_an_operation_asked_for_at_the_end_of_another_begins_once() -> None:
    one = running()
    again: list[Operation] = []
    one.operations.request([(1, "w1/0")], "move", lambda _: one.operations.request([(1, "w0/0")], "back", again.append))
    one.told(0, wire.Prepared(1, 1, ""), 2.0)
    one.told(1, wire.Moved(1, 1, 2.0, 2.0), 2.1)
    assert len(commands(one, wire.Prepare)) == 2
    one.told(1, wire.Prepared(1, 2, ""), 2.2)
    one.told(0, wire.Moved(1, 2, 2.2, 2.2), 2.3)
    assert [outcome.after for outcome in again[0].done] == ["w0/0"]


def test_refuses_to_move_what_does_not_run() -> None:
    ended = moving(controller(), (1, "w1/0"))
    assert isinstance(ended[0].error, CannotMove)
    assert str(ended[0].error) == "move: the application is starting; only a running one can be changed"


def test_tells_a_source_how_far_its_tuples_have_come() -> None:
    one = running(in_flight=10)
    one.told(1, wire.Passed(1, 3, 0, 4), 2.0)
    one.told(1, wire.Passed(1, 3, 0, 3), 2.0)
    assert commands(one, wire.Progressed) == [(0, wire.Progressed(1, 0, 4))]


def test_asks_for_clocks_and_records_them() -> None:
    one = running()
    for step in range(20):
        now = 2.0 + step / 2
        one.tick(now)
        for number, ping in commands(one, wire.Ping):
            one.told(number, wire.Pong(ping.number, now + 0.001 + 7.0 * number), now + 0.002)
        one.out.clear()
    offsets = {machine.name: machine.offset_ms for machine in one.status(12.0).machines}
    assert offsets == {"w0": 0.0, "w1": pytest.approx(7000.0)}
    records = one.take_records()
    clocks = [record for record in records if record.kind == RecordKind.CLOCK]
    assert {(record.worker, record.incarnation) for record in clocks} == {("w0", 1), ("w1", 2)}
    assert all(getattr(record, name) is not None for record in records for name in REQUIRED[record.kind])
    assert one.take_records() == []


def test_log_lines_say_who_speaks() -> None:
    one = running()
    one.told(1, wire.Log(5.0, "info", "same", 1, "hello"), 2.0)
    one.told(1, wire.Log(5.0, "warning", "", -1, "slow"), 2.0)
    assert [line.speaker for line in one.lines] == ["same[1]", "w1"]


def test_latencies_are_in_the_controllers_time() -> None:
    one = running()
    for step in range(3):
        one.tick(2.0 + step)
        for number, ping in commands(one, wire.Ping):
            one.told(number, wire.Pong(ping.number, 2.0 + step + 100.0 * number), 2.0 + step)
        one.out.clear()
    root, ack = wire.Root(9, 0, 5.0, 5.0), wire.Ack(9, 77, 5.0)
    one.told(0, wire.Report(1, 5.25, 0.25, (), (root,), (ack,), 0.0, 0.0), 5.25)
    one.told(1, wire.Report(1, 105.25, 0.25, (), (), (wire.Ack(9, 77, 105.125),), 0.0, 0.0), 5.25)
    latency = one.status(5.5).latency
    assert latency is not None
    assert latency.p50_ms == pytest.approx(125.0)


def test_refuses_a_placement_that_does_not_fit() -> None:
    sites = (Site("w0", ("w0/0",)),)
    with pytest.raises(InvalidInput, match="expected 4 tasks, got 1"):
        check_placement(layout(), sites, ["w0/0"])
    with pytest.raises(UnknownName, match=r"plan.same\[0\]: no worker has slot 'w9/0'; there are w0/0"):
        check_placement(layout(), sites, ["w0/0", "w9/0", "w0/0", "w0/0"])
