"""Recoveries of the controller: lost workers, new epochs, and the checkpoints that they start from."""

import struct
from pathlib import Path

import pytest

from penstock.runtime.config import Recovery
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.disk import Posix
from tests.runtime import controllers
from tests.runtime.controllers import (
    Many,
    Prompt,
    of_kind,
    register,
    running,
)


def save_all(one: Prompt, number: int, full_after: int = 3) -> None:
    """Complete a checkpoint; the disk is full after some workers have written."""
    one.operations.request_checkpoint(one.now)
    for worker in range(2):
        file = f"w{worker}.e{one.epoch}"
        one.disk.write(f"checkpoints/{number:06}/{file}", [])
        one.disk.full = "checkpoints" if worker >= full_after else ""
        entries = tuple(
            worker_messages.TaskEntry(task, 0, 0, 0, False, 5, "", ()) for task in (2 * worker, 2 * worker + 1)
        )
        one.receive(worker, worker_messages.CheckpointSaved(one.epoch, number, file, 0, entries), one.now)


def test_starts_a_new_epoch_when_a_lost_worker_is_replaced() -> None:
    one = running()
    one.lose(1, "connection reset", 5.0)
    assert one.phase == "recovering"
    machines = {machine.name: machine.alive for machine in one.status(5.0).machines}
    assert machines == {"w0": True, "w1": False}
    one.end_process(1, 5.0)
    assert not of_kind(one, controller_messages.Assign)
    assert register(one, "w1", 5.5) == 1
    assert [
        (number, assign.epoch, assign.incarnation) for number, assign in of_kind(one, controller_messages.Assign)
    ] == [
        (0, 2, 1),
        (1, 2, 3),
    ]
    one.receive(0, worker_messages.Ready(2), 5.6)
    assert one.phase == "recovering"
    one.receive(1, worker_messages.Ready(2), 5.7)
    assert one.phase == "running"
    assert one.recovery.times == [pytest.approx(0.7)]


def test_tasks_of_a_lost_worker_move_to_others_and_return_with_it() -> None:
    one = running(recovery=Recovery(replacement_s=3.0))
    one.lose(1, "connection reset", 5.0)
    one.end_process(1, 5.0)
    one.tick(7.9)
    assert not of_kind(one, controller_messages.Assign)
    one.tick(8.0)
    assert one.placement == ["w0/0"] * 4
    assert one.desired.slots == ["w0/0", "w0/0", "w1/0", "w1/0"]
    one.receive(0, worker_messages.Ready(2), 8.1)
    assert one.phase == "running"
    one.outbox.commands.clear()
    assert register(one, "w1", 9.0) == 1
    (_, assign), *others = of_kind(one, controller_messages.Assign)
    assert (assign.epoch, assign.worker, others) == (2, 1, [])
    one.receive(1, worker_messages.Ready(2), 9.1)
    assert [number for number, _ in of_kind(one, controller_messages.Peers)] == [0]
    assert [number for number, _ in of_kind(one, controller_messages.Start)] == [1]
    one.tick(10.2)
    assert [(number, prepare.task) for number, prepare in of_kind(one, controller_messages.PrepareMove)] == [(0, 2)]


def test_no_epoch_starts_before_a_lost_worker_is_fenced() -> None:
    one = running(recovery=Recovery(replacement_s=1.0, lease_s=3.0))
    one.receive(1, worker_messages.Pong(0, 0.0), 5.0)
    one.lose(1, "connection reset", 5.5)
    one.tick(7.9)
    assert not of_kind(one, controller_messages.Assign)
    one.tick(8.0)
    assert [number for number, _ in of_kind(one, controller_messages.Assign)] == [0]


def test_a_worker_without_heartbeats_is_lost_and_its_messages_are_dropped() -> None:
    one = running(recovery=Recovery(silence_s=5.0))
    for half_seconds in range(1, 13):
        one.receive(0, worker_messages.Pong(0, 0.0), half_seconds / 2)
        one.tick(half_seconds / 2)
    assert one.phase == "running"
    one.tick(6.1)
    assert (one.phase, one.outbox.closing) == ("recovering", [1])
    one.receive(1, worker_messages.Failure(1, "same", 0, "", "late", ""), 6.2)
    assert one.phase == "recovering"


def test_a_suspended_controller_drops_no_worker() -> None:
    one = running(recovery=Recovery(silence_s=5.0))
    one.tick(2.0)
    one.tick(100.0)
    assert one.phase == "running"


def test_starts_a_new_epoch_after_a_broken_connection_between_workers() -> None:
    one = running()
    one.receive(0, worker_messages.PeerLost(1, 1, "reset"), 5.0)
    assert (one.phase, one.epoch) == ("recovering", 2)
    assert one.outbox.lines[-1].text == (
        "worker 'w0' has lost its connection to 'w1' (pid 42 on host): reset; "
        "going back to the beginning, as there is no checkpoint yet"
    )


def test_starts_a_new_epoch_after_a_protocol_violation() -> None:
    one = running()
    one.receive(0, worker_messages.Failure(1, "same", 1, "", "a gap", "", False), 5.0)
    assert (one.phase, one.epoch) == ("recovering", 2)


def fail(one: Prompt, now: float) -> float:
    """Let a worker fail, and wait until tuples flow again or the run has ended; return how long that took."""
    one.receive(0, worker_messages.Failure(one.epoch, "same", 1, "", "a gap", "", False), now)
    waited = 0.0
    while one.phase == "recovering" and not of_kind(one, controller_messages.Assign):
        waited += 0.25
        one.tick(now + waited)
    one.outbox.commands.clear()
    for worker in range(2):
        one.receive(worker, worker_messages.Ready(one.epoch), now + waited)
    return waited


def test_the_restart_limit_ends_the_run_after_growing_pauses() -> None:
    one = running(recovery=Recovery(max_restarts=6, restart_window_s=600.0, silence_s=1e9))
    one.outbox.commands.clear()
    now, waits = 5.0, []
    for _ in range(6):
        waits.append(fail(one, now))
        assert one.phase == "running"
        now += waits[-1] + 1.0
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]
    fail(one, now)
    assert one.phase == "failed"
    assert "worker 'w0' failed in same[1]: a gap; the restart limit of 6 in 600 s is reached" in one.error


def test_recoveries_outside_the_window_neither_count_nor_delay() -> None:
    one = running(recovery=Recovery(max_restarts=2, restart_window_s=100.0, silence_s=1e9))
    one.outbox.commands.clear()
    assert [fail(one, 5.0 + 61.0 * number) for number in range(6)] == [0.0] * 6
    assert (one.phase, one.recovery.count) == ("running", 6)


def test_a_restart_limit_of_zero_ends_the_run_and_names_the_lost_tasks() -> None:
    one = running(recovery=Recovery(max_restarts=0))
    one.lose(1, "connection reset", 5.0)
    assert one.phase == "failed"
    assert one.error.startswith("one of these tasks was running: same[1], out[0] when worker 'w1' (pid 42 on host)")


def test_names_the_task_that_a_lost_worker_was_running() -> None:
    one = running(recovery=Recovery(max_restarts=0))
    member = one.members[1]
    one.disk.replace("./workers/w1.task", struct.pack("=qq", member.incarnation, 2))
    one.lose(1, "connection reset", 5.0)
    assert one.error.startswith("task same[1] was running when worker 'w1' (pid 42 on host) was lost")
    one = running(recovery=Recovery(max_restarts=0))
    one.disk.replace("./workers/w1.task", struct.pack("=qq", one.members[1].incarnation + 1, 2))
    one.lose(1, "connection reset", 5.0)
    assert one.error.startswith("one of these tasks was running")


def test_many_simultaneous_losses_are_one_recovery() -> None:
    one = Many(45)
    for number in range(44):
        one.lose(number, "its machine was lost", 5.0)
        one.end_process(number, 5.0)
    assert one.phase == "recovering"


def test_drops_a_worker_that_cannot_read_a_whole_checkpoint() -> None:
    one = running()
    save_all(one, 1)
    assert one.checkpointing.latest is not None
    one.lose(1, "connection reset", 5.0)
    one.end_process(1, 5.0)
    register(one, "w1", 5.1)
    one.receive(1, worker_messages.CheckpointUnreadable(2, 1, "stale file handle"), 5.2)
    assert one.checkpointing.latest.number == 1
    assert one.outbox.closing == [1]
    assert "cannot read checkpoint 1, which is whole: stale file handle" in one.recovery.reason


def test_falls_back_from_a_damaged_checkpoint_and_fails_without_an_earlier_one() -> None:
    one = running()
    save_all(one, 1)
    save_all(one, 2)
    one.disk.replace("checkpoints/000002/manifest.json", b"torn")
    one.receive(1, worker_messages.Failure(1, "", -1, "", "a gap", "", False), 5.0)
    one.receive(1, worker_messages.CheckpointUnreadable(one.epoch, 2, "damaged"), 5.2)
    assert [manifest.number for manifest in one.checkpointing.complete] == [1]
    assert any("falling back to 1" in line.text for line in one.outbox.lines)
    one.disk.replace("checkpoints/000001/manifest.json", b"torn")
    one.tick(10.0)
    one.receive(1, worker_messages.CheckpointUnreadable(one.epoch, 1, "damaged"), 10.2)
    assert one.phase == "failed"
    assert "there is none before it" in one.error


def test_removes_a_manifest_whose_write_failed() -> None:
    one = running()
    one.disk.torn_share = 1.0  # it is there, though that is not known
    save_all(one, 1, full_after=1)
    assert one.checkpointing.latest is None
    assert "manifest.json" not in one.disk.listed("checkpoints/000001")
    assert one.status(5.0).warnings


def resumed(tmp_path: Path) -> tuple[Prompt, Path]:
    """Return a controller that resumes from a checkpoint, one of whose output files already exists."""
    temporary, final = tmp_path / "_part", tmp_path / "part"
    for path in (temporary, final):
        path.write_text(path.name)
    flow = controllers.layout().flow
    saved = checkpoints.SavedTask("out[0]", "w0.e1", 0, 0, 0, False, 0, "", ((str(temporary), str(final)),))
    shape = checkpoints.shape_of(flow)
    made = checkpoints.CheckpointManifest(
        run="r",
        number=1,
        epoch=1,
        at=0.0,
        seconds=0.0,
        version="0",
        shape=shape,
        placement={},
        files={},
        tasks=(saved,),
    )
    one = controllers.controller(resumed=made, epoch=1)
    one.disk = Posix()  # type: ignore[assignment]
    one.checkpointing.folder = str(tmp_path / "checkpoints")
    return one, final


def test_a_resume_fails_if_output_cannot_be_published(tmp_path: Path) -> None:
    one, final = resumed(tmp_path)
    controllers.register(one, "w0")
    controllers.register(one, "w1")
    assert one.phase == "failed"
    assert one.error.startswith(f"the run cannot be resumed, {final}: already exists")
    assert final.read_text() == "part"
