"""The controller's checkpoints between moves, recoveries and drains: none twice, none missed."""

import pytest

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


def test_an_aborted_checkpoint_names_the_slots_whose_tasks_are_not_saved() -> None:
    one = running(checkpointing=Checkpointing(interval_s=1.0, timeout_s=5.0))
    one.tick(3.0)
    saved(one, 0, 1, False)
    one.tick(9.1)
    assert one.checkpointing.problem == "no progress for 5 s; tasks that are not saved are on w1/0"


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
