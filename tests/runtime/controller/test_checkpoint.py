"""The controller's checkpoints between moves, recoveries and drains: none twice, none missed."""

from typing import Any

import pytest

from penstock.model.status import SavingStatus
from penstock.runtime.config import Checkpointing
from penstock.runtime.controller.checkpoint import RETRY_S
from penstock.runtime.controller.state_machine import Controller
from penstock.runtime.protocol import controller_messages, worker_messages
from tests.runtime.controllers import moving, of_kind, register, running, saved


def begun(one: Controller) -> list[int]:
    """Return the numbers of the checkpoints that a worker was commanded to begin."""
    return [command.number for worker, command in of_kind(one, controller_messages.BeginCheckpoint) if worker == 0]


def end_all(one: Controller, now: float) -> None:
    for task in range(4):
        one.receive(task // 2, worker_messages.Ended(one.epoch, task, 5), now)
    one.tick(now)


def save_all(one: Controller, number: int, now: float, ended: bool = True) -> None:
    for worker in range(2):
        entries = tuple(
            worker_messages.TaskEntry(task, 0, 0, 0, ended, 5, "", ()) for task in (2 * worker, 2 * worker + 1)
        )
        one.receive(
            worker, worker_messages.CheckpointSaved(one.epoch, number, f"w{worker}.e{one.epoch}", 0, entries), now
        )
    one.tick(now)


def test_takes_the_last_checkpoint_after_an_aborted_one() -> None:
    one = running(checkpointing=Checkpointing(interval_s=1.0))
    one.tick(3.0)
    end_all(one, 3.0)
    one.receive(0, worker_messages.CheckpointFailed(1, 1, "the disk is full"), 3.0)
    one.tick(3.0)
    assert begun(one) == [1]
    one.tick(3.0 + RETRY_S)
    assert begun(one) == [1, 2]
    save_all(one, 2, 4.0)
    assert one.phase == "stopped"


def test_takes_a_checkpoint_one_interval_after_an_aborted_one() -> None:
    one = running(checkpointing=Checkpointing(interval_s=1.0, timeout_s=5.0))
    for now in (3.0, 5.0, 8.1):  # it is due, due again, and overdue
        one.tick(now)
    assert begun(one) == [1]
    assert one.wakeup() <= 9.1
    one.tick(9.1)
    assert begun(one) == [1, 2]


def test_an_aborted_checkpoint_names_the_tasks_that_it_waited_for() -> None:
    one = running(checkpointing=Checkpointing(interval_s=1.0, timeout_s=5.0))
    one.tick(3.0)
    saved(one, 0, 1, False)
    one.tick(9.1)
    assert one.checkpointing.problem == "no progress for 5 s; it waits for same[1]; not saved either: out[0]"


def report(one: Controller, worker: int, now: float, *tasks: worker_messages.TaskReport, **saved: Any) -> None:
    one.receive(worker, worker_messages.ActivityReport(1, now, 1.0, tasks, (), (), 0.0, 0.0, **saved), now)


def test_the_status_shows_which_tasks_a_checkpoint_waits_for() -> None:
    one = running(checkpointing=Checkpointing(interval_s=1.0))
    assert one.status(2.9).saving is None
    one.tick(3.0)
    report(one, 0, 3.5, checkpoint=1, saved=(0, 1))
    report(one, 1, 3.5, checkpoint=0, saved=(2,))  # of an earlier checkpoint
    saving = one.status(4.0).saving
    assert saving == SavingStatus(number=1, age_s=1.0, awaited=["same[1]"], others=["out[0]"])
    report(one, 1, 4.5, checkpoint=1, saved=(2,))
    saving = one.status(5.0).saving
    assert saving is not None
    assert saving.cause == "waits for out[0]"
    report(one, 1, 5.5, checkpoint=1, saved=(3,))
    saving = one.status(6.0).saving
    assert saving is not None
    assert saving.cause == "is being written"
    save_all(one, 1, 6.0, ended=False)
    assert one.status(6.0).saving is None


def test_a_task_without_credit_waits_for_the_busiest_one_behind_it() -> None:
    one = running(checkpointing=Checkpointing(interval_s=1.0))
    one.tick(3.0)
    for worker, tasks in ((0, [(0, 0.9, 0), (1, 0.0, 2)]), (1, [(2, 0.0, 50), (3, 0.0, 1)])):
        readings = [worker_messages.TaskReport(task, 1, 1, 0.1, blocked, queue, 0) for task, blocked, queue in tasks]
        report(one, worker, 3.5, *readings)
    saving = one.status(4.0).saving
    assert saving is not None
    assert saving.awaited == ["same[1]"]
    assert saving.others == ["numbers[0]", "same[0]", "out[0]"]


def test_a_checkpoint_that_takes_long_is_logged_once() -> None:
    one = running(checkpointing=Checkpointing(interval_s=2.0))
    for now in range(3, 30):
        one.tick(float(now))
    text = "checkpoint 1 has taken 6 s so far: it waits for numbers[0]; not saved either: same[0-1] out[0]"
    assert [line.text for line in one.outbox.lines if "so far" in line.text] == [text]


def test_progress_of_alignment_extends_the_timeout() -> None:
    one = running(checkpointing=Checkpointing(interval_s=1.0, timeout_s=5.0))
    one.tick(3.0)
    for now in range(4, 60):
        for worker in range(2):
            aligning = worker == 0 and now < 50
            one.receive(
                worker, worker_messages.ActivityReport(1, now, 1.0, (), (), (), 0.0, 0.0, aligning=aligning), now
            )
        one.tick(now)
        assert (one.checkpointing.problem != "") == (now > 54), now


def test_takes_the_last_checkpoint_after_a_recovery() -> None:
    one = running(checkpointing=Checkpointing(interval_s=1.0))
    one.tick(3.0)
    end_all(one, 3.0)
    one.lose(1, "connection reset", 3.0)
    one.end_process(1, 3.0)
    register(one, "w1", 3.5)
    for worker in range(2):
        one.receive(worker, worker_messages.Ready(2), 3.5)
    assert one.phase == "running"
    end_all(one, 3.6)
    (_, number) = begun(one)
    save_all(one, number, 3.7)
    assert one.phase == "stopped"


@pytest.mark.parametrize("answered", [False, True])
def test_takes_a_waiting_checkpoint_when_a_drain_ends_the_move_before_it(answered: bool) -> None:
    one = running()
    moving(one, (1, "w1/0"))
    if answered:
        one.receive(0, worker_messages.MovePrepared(1, 1, ""), 2.0)
    one.operations.request_checkpoint(2.0)
    one.drain(2.0)
    end_all(one, 3.0)
    if answered:  # the move cannot be rolled back
        assert begun(one) == []
        one.receive(1, worker_messages.Moved(1, 1, 2.5, 2.6), 3.0)
    assert begun(one) == [1]
    save_all(one, 1, 3.1)
    assert one.phase == "stopped"
