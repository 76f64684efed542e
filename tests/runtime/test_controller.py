"""The controller alone: who may register, what ends a run, what it does when something does not come."""

import math
from typing import Any

import pytest

from penstock.api.dataflow import Dataflow
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.telemetry import REQUIRED, RecordKind
from penstock.runtime.controller import Controller
from penstock.runtime.layout import Layout
from penstock.runtime.messages import commands, tellings
from penstock.runtime.operations import MOVE_S, PREPARE_S, CannotMove, Operation
from penstock.runtime.recovery import FRUITLESS
from penstock.runtime.terms import Site, Terms, check_placement
from penstock.testing import Captured, MemoryDisk
from tests.runtime.flows import Given

LAYOUT_TASKS = ("numbers[0]", "same[0]", "same[1]", "out[0]")


def layout() -> Layout:
    flow = Dataflow("small")
    numbers = flow.source("numbers", Given(range(5)), gives=int)
    same = flow.map("same", int, numbers, parallelism=2)
    flow.sink("out", Captured([]), same)
    return Layout(flow)


class Prompt(Controller):
    """A controller whose disk does everything at once."""

    def __init__(self, **terms: Any) -> None:
        sites = tuple(Site(f"w{number}", (f"w{number}/0",)) for number in range(2))
        placement = ("w0/0", "w0/0", "w1/0", "w1/0")
        super().__init__(
            layout(), Terms("r", sites, placement, telemetry="kept", checkpoints="checkpoints", **terms), 0.0
        )
        self.disk = MemoryDisk()

    def store(self) -> None:
        while self.storing:
            job = self.storing.pop(0)
            job.then(*job.run(self.disk), self.now)

    def told(self, worker: int, message: tellings.Telling, now: float) -> None:
        super().told(worker, message, now)
        self.store()

    def register(self, message: tellings.Register, now: float) -> int | None:
        number = super().register(message, now)
        self.store()
        return number

    def lost(self, worker: int, reason: str, now: float) -> None:
        super().lost(worker, reason, now)
        self.store()

    def gone(self, worker: int, now: float) -> None:
        super().gone(worker, now)
        self.store()

    def tick(self, now: float) -> None:
        super().tick(now)
        self.store()


class Many(Prompt):
    """Workers without number, of which one has all the tasks but the last."""

    def __init__(self, workers: int) -> None:
        sites = tuple(Site(f"w{number}", (f"w{number}/0",)) for number in range(workers))
        Controller.__init__(self, layout(), Terms("r", sites, tuple(f"w{n}/0" for n in range(4))), 0.0)
        self.disk = MemoryDisk()
        for number in range(workers):
            register(self, f"w{number}")
        for number in range(workers):
            self.told(number, tellings.Ready(self.epoch), 1.0)


def save_all(one: Prompt, number: int, full_after: int = 3) -> None:
    """Have a checkpoint come to its end; the disk is full after some workers have written."""
    one.operations.checkpoint(one.now)
    for worker in range(2):
        file = f"w{worker}.e{one.epoch}"
        one.disk.write(f"checkpoints/{number:06}/{file}", [])
        one.disk.full = "checkpoints" if worker >= full_after else ""
        entries = tuple(tellings.Entry(task, 0, 0, 0, False, 5, "", ()) for task in (2 * worker, 2 * worker + 1))
        one.told(worker, tellings.Saved(one.epoch, number, file, 0, entries), one.now)


def controller(**terms: Any) -> Prompt:
    return Prompt(**terms)


def register(one: Controller, name: str, now: float = 0.0) -> int | None:
    return one.register(tellings.Register(name, "host", 1, 42), now)


def running(**terms: Any) -> Prompt:
    one = controller(**terms)
    for name in ("w0", "w1"):
        register(one, name)
    for number in range(2):
        one.told(number, tellings.Ready(one.epoch), 1.0)
    assert one.phase == "running"
    one.out.clear()
    return one


def of_kind(one: Controller, kind: type) -> list[tuple[int, Any]]:
    return [(number, command) for number, command in one.out if isinstance(command, kind)]


def test_tells_every_worker_its_tasks_once_all_are_there_and_begins_once_all_are_ready() -> None:
    one = controller()
    assert register(one, "w1") == 1
    assert not one.out
    assert register(one, "w0") == 0
    assigned = of_kind(one, commands.Assign)
    assert [(number, assign.worker) for number, assign in assigned] == [(0, 0), (1, 1)]
    assert {assign.epoch for _, assign in assigned} == {1}
    assert [assign.incarnation for _, assign in assigned] == [2, 1]
    one.told(0, tellings.Ready(1), 1.0)
    assert one.phase == "starting"
    one.told(1, tellings.Ready(1), 1.5)
    assert one.phase == "running"
    assert [number for number, _ in of_kind(one, commands.Go)] == [0, 1]


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
    one.told(1, tellings.Ready(1), 1.0)
    one.tick(10.5)
    assert one.error.startswith("workers w0 did not start")


def test_a_lost_worker_that_comes_back_begins_a_new_epoch() -> None:
    one = running()
    one.lost(1, "connection reset", 5.0)
    assert one.phase == "recovering"
    machines = {machine.name: machine.alive for machine in one.status(5.0).machines}
    assert machines == {"w0": True, "w1": False}
    one.gone(1, 5.0)
    assert not of_kind(one, commands.Assign)
    assert register(one, "w1", 5.5) == 1
    assert [(number, assign.epoch, assign.incarnation) for number, assign in of_kind(one, commands.Assign)] == [
        (0, 2, 1),
        (1, 2, 3),
    ]
    one.told(0, tellings.Ready(2), 5.6)
    assert one.phase == "recovering"
    one.told(1, tellings.Ready(2), 5.7)
    assert one.phase == "running"
    assert one.recovery.times == [pytest.approx(0.7)]


def test_tasks_of_a_worker_that_stays_away_go_to_those_that_are_there_and_back_when_it_returns() -> None:
    one = running(replace_s=3.0)
    one.lost(1, "connection reset", 5.0)
    one.gone(1, 5.0)
    one.tick(7.9)
    assert not of_kind(one, commands.Assign)
    one.tick(8.0)
    assert one.placement == ["w0/0"] * 4
    assert one.standing.wanted == ["w0/0", "w0/0", "w1/0", "w1/0"]
    one.told(0, tellings.Ready(2), 8.1)
    assert one.phase == "running"
    one.out.clear()
    assert register(one, "w1", 9.0) == 1
    (_, assign), *others = of_kind(one, commands.Assign)
    assert (assign.epoch, assign.worker, others) == (2, 1, [])
    one.told(1, tellings.Ready(2), 9.1)
    assert [number for number, _ in of_kind(one, commands.Peers)] == [0]
    assert [number for number, _ in of_kind(one, commands.Go)] == [1]
    one.tick(10.2)
    assert [(number, prepare.task) for number, prepare in of_kind(one, commands.Prepare)] == [(0, 2)]


def test_no_epoch_begins_before_the_lease_of_a_worker_that_may_live_has_ended() -> None:
    one = running(replace_s=1.0, lease_s=3.0)
    one.told(1, tellings.Pong(0, 0.0), 5.0)
    one.lost(1, "connection reset", 5.5)
    one.tick(7.9)
    assert not of_kind(one, commands.Assign)
    one.tick(8.0)
    assert [number for number, _ in of_kind(one, commands.Assign)] == [0]


def test_a_worker_that_gives_no_sign_of_life_is_lost_and_not_heard_any_more() -> None:
    one = running(silent_s=5.0)
    for half_seconds in range(1, 13):
        one.told(0, tellings.Pong(0, 0.0), half_seconds / 2)
        one.tick(half_seconds / 2)
    assert one.phase == "running"
    one.tick(6.1)
    assert (one.phase, one.hung_up) == ("recovering", [1])
    one.told(1, tellings.Failure(1, "same", 0, "", "late", ""), 6.2)
    assert one.phase == "recovering"


def test_a_controller_that_stood_still_itself_holds_that_against_nobody() -> None:
    one = running(silent_s=5.0)
    one.tick(2.0)
    one.tick(100.0)
    assert one.phase == "running"


def test_a_broken_connection_between_workers_begins_a_new_epoch() -> None:
    one = running()
    one.told(0, tellings.Lost(1, 1, "reset"), 5.0)
    assert (one.phase, one.epoch) == ("recovering", 2)
    assert one.lines[-1].text == (
        "worker 'w0' has lost its connection to 'w1' (pid 42 on host): reset; "
        "going back to the beginning, as there is no checkpoint yet"
    )


def test_a_rule_that_a_worker_finds_broken_begins_a_new_epoch() -> None:
    one = running()
    one.told(0, tellings.Failure(1, "same", 1, "", "a gap", "", False), 5.0)
    assert (one.phase, one.epoch) == ("recovering", 2)


def test_a_worker_that_keeps_failing_ends_the_run() -> None:
    one = running()
    for _ in range(FRUITLESS + 1):
        one.told(0, tellings.Failure(one.epoch, "same", 1, "", "a gap", "", False), 5.0)
        one.told(0, tellings.Ready(one.epoch), 5.0)
        one.told(1, tellings.Ready(one.epoch), 5.0)
    assert one.phase == "failed"
    assert "given up after" in one.error


def test_a_worker_that_keeps_dying_before_the_start_ends_the_run() -> None:
    one = controller()
    for _ in range(3):
        register(one, "w1")
        one.lost(1, "it ended", 1.0)
    assert one.error == "worker 'w1' (pid 42 on host) was lost: it ended"


def test_only_the_first_failure_counts() -> None:
    one = running()
    one.told(0, tellings.Failure(1, "same", 1, "5", "KeyError: 'x'", "Traceback …"), 5.0)
    one.told(1, tellings.Failure(1, "out", 0, "", "OSError", ""), 5.1)
    one.lost(1, "gone", 6.0)
    assert one.error == "same[1]: KeyError: 'x' on tuple 5"
    assert one.traceback == "Traceback …"


def test_a_run_that_has_ended_does_not_begin_again() -> None:
    one = running()
    one.told(0, tellings.Failure(1, "same", 1, "5", "KeyError: 'x'", ""), 5.0)
    one.told(1, tellings.Lost(1, 0, "it hung up"), 5.1)
    one.told(1, tellings.Failure(1, "", -1, "", "a gap", "", False), 5.1)
    one.told(1, tellings.Unusable(1, 0, "damaged"), 5.1)
    assert (one.phase, one.epoch, one.status(6.0).recoveries) == ("failed", 1, 0)


def test_drops_what_is_of_another_epoch() -> None:
    one = running()
    one.told(0, tellings.Failure(7, "same", 0, "", "late", ""), 2.0)
    one.told(0, tellings.Ended(7, 0, 5), 2.0)
    assert one.phase == "running"


def test_hears_of_a_worker_that_failed_before_it_knew_an_epoch() -> None:
    one = controller()
    register(one, "w0")
    register(one, "w1")
    one.told(1, tellings.Failure(0, "", -1, "", "cannot be", ""), 1.0)
    assert one.error == "worker: cannot be"


def test_stops_when_every_task_has_ended() -> None:
    one = running()
    for task in range(4):
        assert one.phase == "running"
        one.told(0, tellings.Ended(1, task, 5), 3.0)
    one.tick(3.0)
    assert [number for number, _ in of_kind(one, commands.Checkpoint)] == [0, 1]
    for number in range(2):
        entries = tuple(tellings.Entry(task, 0, 0, 0, True, 5, "", ()) for task in (2 * number, 2 * number + 1))
        assert one.phase == "running"
        one.told(number, tellings.Saved(1, 1, f"w{number}.e1", 0, entries), 3.0)
    assert one.phase == "stopped"
    assert one.wakeup() == math.inf


def saved(one: Controller, worker: int, number: int, ended: bool) -> None:
    entries = tuple(tellings.Entry(task, 0, 0, 0, ended, 5, "", ()) for task in (2 * worker, 2 * worker + 1))
    one.told(worker, tellings.Saved(1, number, f"w{worker}.e1", 0, entries), 3.0)


@pytest.mark.parametrize("seen", [False, True])
def test_when_every_task_has_ended_during_a_checkpoint_there_is_one_last_one(seen: bool) -> None:
    one = running(checkpoint_s=1.0)
    one.tick(3.0)
    for task in range(4):
        one.told(task // 2, tellings.Ended(1, task, 5), 3.0)
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
    begun = [command.number for worker, command in of_kind(one, commands.Checkpoint) if worker == 0]
    assert begun == ([1] if seen else [1, 2])


def test_a_checkpoint_that_is_due_twice_while_a_task_moves_is_taken_once() -> None:
    one = running()
    moving(one, (1, "w1/0"))
    one.operations.checkpoint(2.0)
    one.operations.checkpoint(2.0)
    one.told(0, tellings.Prepared(1, 1, "it cannot"), 2.0)
    assert len(of_kind(one, commands.Checkpoint)) == 2  # one for each worker
    for worker in range(2):
        saved(one, worker, 1, False)
    assert len(of_kind(one, commands.Checkpoint)) == 2


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
    assert of_kind(one, commands.Prepare) == [(0, commands.Prepare(1, 1, 1))]
    one.told(0, tellings.Prepared(1, 1, ""), 2.0)
    assert [number for number, _ in of_kind(one, commands.Move)] == [0, 1]
    one.told(1, tellings.Moved(1, 1, 2.25, 2.5), 3.0)
    assert one.placement[1] == "w1/0"
    assert [(done.task, done.before, done.after, done.seconds) for done in ended[0].done] == [
        ("same[0]", "w0/0", "w1/0", 0.25)
    ]


def test_gives_up_a_move_that_is_not_answered() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"))
    one.tick(PREPARE_S + 2.0)
    assert "same[0] did not answer in 5 s" in str(ended[0].error)
    assert of_kind(one, commands.Release) == [(0, commands.Release(1, 1, 1))]
    one.told(0, tellings.Prepared(1, 1, ""), 9.0)
    assert not of_kind(one, commands.Move)


def test_a_task_that_does_not_arrive_in_time_sends_all_back_to_a_checkpoint() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"), (2, "w0/0"))
    one.told(0, tellings.Prepared(1, 1, ""), 2.0)
    one.tick(2.0 + MOVE_S + 1.0)
    assert "same[0] was still on its way after 30 s" in str(ended[0].error)
    assert (one.phase, one.epoch) == ("recovering", 2)
    assert one.placement == ["w0/0", "w0/0", "w1/0", "w1/0"]


def test_many_workers_lost_at_once_are_one_recovery() -> None:
    one = Many(FRUITLESS + 5)
    for number in range(FRUITLESS + 4):
        one.lost(number, "its machine was lost", 5.0)
        one.gone(number, 5.0)
    assert one.phase == "recovering"


def test_a_checkpoint_that_only_one_worker_cannot_read_stays_and_the_worker_goes() -> None:
    one = running()
    save_all(one, 1)
    assert one.checkpointing.latest is not None
    one.lost(1, "connection reset", 5.0)
    one.gone(1, 5.0)
    register(one, "w1", 5.1)
    one.told(1, tellings.Unusable(2, 1, "stale file handle"), 5.2)
    assert one.checkpointing.latest.number == 1
    assert one.hung_up == [1]
    assert "cannot read checkpoint 1, which is whole: stale file handle" in one.recovery.reason


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before_and_none_at_all_ends_the_run() -> None:
    one = running()
    save_all(one, 1)
    save_all(one, 2)
    one.disk.replace("checkpoints/000002/manifest.json", b"torn")
    one.told(1, tellings.Failure(1, "", -1, "", "a gap", "", False), 5.0)
    one.told(1, tellings.Unusable(one.epoch, 2, "damaged"), 5.2)
    assert [manifest.number for manifest in one.checkpointing.complete] == [1]
    assert any("falling back to 1" in line.text for line in one.lines)
    one.disk.replace("checkpoints/000001/manifest.json", b"torn")
    one.tick(10.0)
    one.told(1, tellings.Unusable(one.epoch, 1, "damaged"), 10.2)
    assert one.phase == "failed"
    assert "there is none before it" in one.error


def test_a_manifest_that_was_told_to_have_failed_does_not_count_later() -> None:
    one = running()
    one.disk.torn_share = 1.0  # it is there, though that is not known
    save_all(one, 1, full_after=1)
    assert one.checkpointing.latest is None
    assert "manifest.json" not in one.disk.listed("checkpoints/000001")
    assert one.status(5.0).warnings


def test_a_drain_lets_a_move_that_is_under_way_come_to_its_end_and_no_other() -> None:
    one = running()
    first, second = moving(one, (1, "w1/0"), (2, "w0/0")), moving(one, (3, "w0/0"))
    one.told(0, tellings.Prepared(1, 1, ""), 2.0)
    one.drain(2.5)
    assert "the application is ending" in str(second[0].error)
    assert not first
    one.told(1, tellings.Moved(1, 1, 2.0, 3.0), 3.0)
    assert one.placement[1] == "w1/0"
    assert len(first[0].done) == 1
    assert "the application is ending" in str(first[0].error)


def test_a_drain_lets_a_task_go_on_that_was_asked_to_move() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"))
    one.drain(2.5)
    assert "the application is ending" in str(ended[0].error)
    assert of_kind(one, commands.Release) == [(0, commands.Release(1, 1, 1))]
    said = [type(command) for _, command in one.out]
    assert said.index(commands.Release) < said.index(commands.Drain)


def test_tells_every_worker_the_routes_of_an_operation_when_its_turn_comes() -> None:
    one = running()
    moving(one, (1, "w1/0"))
    route = ("numbers->same", "w0", "w1", ("w0-w1",))
    one.operations.request([(1, "w1/0")], "apply", lambda _: None, (route,))
    assert not of_kind(one, commands.Routes)
    one.told(0, tellings.Prepared(1, 1, ""), 2.0)
    one.told(1, tellings.Moved(1, 1, 2.0, 2.5), 3.0)
    assert of_kind(one, commands.Routes) == [(number, commands.Routes(1, (route,))) for number in (0, 1)]


def test_an_operation_asked_for_at_the_end_of_another_begins_once() -> None:
    one = running()
    again: list[Operation] = []
    one.operations.request([(1, "w1/0")], "move", lambda _: one.operations.request([(1, "w0/0")], "back", again.append))
    one.told(0, tellings.Prepared(1, 1, ""), 2.0)
    one.told(1, tellings.Moved(1, 1, 2.0, 2.0), 2.1)
    assert len(of_kind(one, commands.Prepare)) == 2
    one.told(1, tellings.Prepared(1, 2, ""), 2.2)
    one.told(0, tellings.Moved(1, 2, 2.2, 2.2), 2.3)
    assert [outcome.after for outcome in again[0].done] == ["w0/0"]


def test_refuses_to_move_what_does_not_run() -> None:
    ended = moving(controller(), (1, "w1/0"))
    assert isinstance(ended[0].error, CannotMove)
    assert str(ended[0].error) == "move: the application is starting; only a running one can be changed"


def test_tells_a_source_how_far_its_tuples_have_come() -> None:
    one = running(in_flight=10)
    one.told(1, tellings.Passed(1, 3, 0, 4), 2.0)
    one.told(1, tellings.Passed(1, 3, 0, 3), 2.0)
    assert of_kind(one, commands.Progressed) == [(0, commands.Progressed(1, 0, 4))]


def test_asks_for_clocks_and_records_them() -> None:
    one = running()
    for step in range(20):
        now = 2.0 + step / 2
        one.tick(now)
        for number, ping in of_kind(one, commands.Ping):
            one.told(number, tellings.Pong(ping.number, now + 0.001 + 7.0 * number), now + 0.002)
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
    one.told(1, tellings.Log(5.0, "info", "same", 1, "hello"), 2.0)
    one.told(1, tellings.Log(5.0, "warning", "", -1, "slow"), 2.0)
    assert [line.speaker for line in one.lines] == ["same[1]", "w1"]


def test_latencies_are_in_the_controllers_time() -> None:
    one = running()
    for step in range(3):
        one.tick(2.0 + step)
        for number, ping in of_kind(one, commands.Ping):
            one.told(number, tellings.Pong(ping.number, 2.0 + step + 100.0 * number), 2.0 + step)
        one.out.clear()
    root, ack = tellings.Root(9, 0, 5.0, 5.0), tellings.Ack(9, 77, 5.0)
    one.told(0, tellings.Report(1, 5.25, 0.25, (), (root,), (ack,), 0.0, 0.0), 5.25)
    one.told(1, tellings.Report(1, 105.25, 0.25, (), (), (tellings.Ack(9, 77, 105.125),), 0.0, 0.0), 5.25)
    latency = one.status(5.5).latency
    assert latency is not None
    assert latency.p50_ms == pytest.approx(125.0)


def test_refuses_a_placement_that_does_not_fit() -> None:
    sites = (Site("w0", ("w0/0",)),)
    with pytest.raises(InvalidInput, match="expected 4 tasks, got 1"):
        check_placement(layout(), sites, ["w0/0"])
    with pytest.raises(UnknownName, match=r"plan.same\[0\]: no worker has slot 'w9/0'; there are w0/0"):
        check_placement(layout(), sites, ["w0/0", "w9/0", "w0/0", "w0/0"])
