"""Operations of the controller: moves, and what interrupts them."""

from collections import deque

from penstock.runtime.controller.operations import MOVE_S, PREPARE_S, CannotMove, Operation
from penstock.runtime.protocol import controller_messages, worker_messages
from tests.runtime.controllers import controller, moving, of_kind, running, saved


def test_takes_a_checkpoint_once_that_is_due_twice_during_a_move() -> None:
    one = running()
    moving(one, (1, "w1/0"))
    one.operations.request_checkpoint(2.0)
    one.operations.request_checkpoint(2.0)
    one.receive(0, worker_messages.MovePrepared(1, 1, "it cannot"), 2.0)
    assert len(of_kind(one, controller_messages.BeginCheckpoint)) == 2  # one for each worker
    for worker in range(2):
        saved(one, worker, 1, False)
    assert len(of_kind(one, controller_messages.BeginCheckpoint)) == 2


def test_warns_of_a_checkpoint_that_waits_for_a_move() -> None:
    one = running()
    moving(one, (1, "w1/0"))
    one.receive(0, worker_messages.MovePrepared(1, 1, ""), 2.0)
    one.operations.request_checkpoint(2.0)
    waiting = "a checkpoint has waited for more than 60 s: "
    assert not [text for text in one.status(61.0).warnings if waiting in text]
    assert [text for text in one.status(63.0).warnings if waiting in text]
    one.receive(1, worker_messages.Moved(1, 1, 2.0, 70.0), 70.0)
    assert not [text for text in one.status(71.0).warnings if waiting in text]


def test_moves_a_task_once_its_worker_has_prepared_it() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"))
    assert of_kind(one, controller_messages.PrepareMove) == [(0, controller_messages.PrepareMove(1, 1, 1))]
    one.receive(0, worker_messages.MovePrepared(1, 1, ""), 2.0)
    assert [number for number, _ in of_kind(one, controller_messages.PerformMove)] == [0, 1]
    one.receive(1, worker_messages.Moved(1, 1, 2.25, 2.5), 3.0)
    assert one.placement[1] == "w1/0"
    assert [(done.task, done.before, done.after, done.seconds) for done in ended[0].done] == [
        ("same[0]", "w0/0", "w1/0", 0.25)
    ]


def test_gives_up_a_move_that_is_not_answered() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"))
    one.tick(PREPARE_S + 2.0)
    assert "same[0] did not answer in 30 s" in str(ended[0].error)
    assert of_kind(one, controller_messages.ReleaseTask) == [(0, controller_messages.ReleaseTask(1, 1, 1))]
    one.receive(0, worker_messages.MovePrepared(1, 1, ""), PREPARE_S + 3.0)
    assert not of_kind(one, controller_messages.PerformMove)


def test_a_slow_move_ends_without_a_recovery() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"), (2, "w0/0"))
    one.receive(0, worker_messages.MovePrepared(1, 1, ""), 2.0)
    one.receive(0, worker_messages.Pong(0, 2.0), 1.5 + MOVE_S)
    one.tick(2.5 + MOVE_S)  # worker w1 has sent nothing for that long
    assert "the move of task same[0] ends when worker 'w1' has time for it" in str(ended[0].error)
    assert (one.phase, one.epoch, one.recovery.count) == ("running", 1, 0)
    one.receive(1, worker_messages.Moved(1, 1, 2.0, 90.0), 90.0)
    assert one.placement == ["w0/0", "w1/0", "w1/0", "w1/0"]
    assert len(ended) == 1
    assert len(of_kind(one, controller_messages.PerformMove)) == 2  # to two workers: none follows it


def test_waits_for_a_move_while_workers_send_messages() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"))
    one.receive(0, worker_messages.MovePrepared(1, 1, ""), 2.0)
    for now in range(3, 200):
        for worker in range(2):
            one.receive(worker, worker_messages.Pong(0, now), now)
        one.tick(now)
    assert not ended
    one.receive(1, worker_messages.Moved(1, 1, 2.0, 200.0), 200.0)
    assert ended[0].error is None


def test_a_drain_completes_the_move_in_progress_and_no_other() -> None:
    one = running()
    first, second = moving(one, (1, "w1/0"), (2, "w0/0")), moving(one, (3, "w0/0"))
    one.receive(0, worker_messages.MovePrepared(1, 1, ""), 2.0)
    one.drain(2.5)
    assert "the application is ending" in str(second[0].error)
    assert not first
    one.receive(1, worker_messages.Moved(1, 1, 2.0, 3.0), 3.0)
    assert one.placement[1] == "w1/0"
    assert len(first[0].done) == 1
    assert "the application is ending" in str(first[0].error)


def test_a_drain_releases_a_task_that_prepares_to_move() -> None:
    one = running()
    ended = moving(one, (1, "w1/0"))
    one.drain(2.5)
    assert "the application is ending" in str(ended[0].error)
    assert of_kind(one, controller_messages.ReleaseTask) == [(0, controller_messages.ReleaseTask(1, 1, 1))]
    sent = [type(command) for _, command in one.outbox.commands]
    assert sent.index(controller_messages.ReleaseTask) < sent.index(controller_messages.Drain)


def test_sends_the_routes_of_an_operation_when_it_starts() -> None:
    one = running()
    moving(one, (1, "w1/0"))
    route = ("numbers->same", "w0", "w1", ("w0-w1",))
    one.operations.request(Operation(deque([(1, "w1/0")]), lambda _: None, "apply", (route,)), 2.0)
    assert not of_kind(one, controller_messages.Routes)
    one.receive(0, worker_messages.MovePrepared(1, 1, ""), 2.0)
    one.receive(1, worker_messages.Moved(1, 1, 2.0, 2.5), 3.0)
    assert of_kind(one, controller_messages.Routes) == [
        (number, controller_messages.Routes(1, (route,))) for number in (0, 1)
    ]


def test_an_operation_requested_at_the_end_of_another_starts_once() -> None:
    one = running()
    again: list[Operation] = []
    back = Operation(deque([(1, "w0/0")]), again.append, "back")
    one.operations.request(Operation(deque([(1, "w1/0")]), lambda _: one.operations.request(back, 2.1), "move"), 2.0)
    one.receive(0, worker_messages.MovePrepared(1, 1, ""), 2.0)
    one.receive(1, worker_messages.Moved(1, 1, 2.0, 2.0), 2.1)
    assert len(of_kind(one, controller_messages.PrepareMove)) == 2
    one.receive(1, worker_messages.MovePrepared(1, 2, ""), 2.2)
    one.receive(0, worker_messages.Moved(1, 2, 2.2, 2.2), 2.3)
    assert [outcome.after for outcome in again[0].done] == ["w0/0"]


def test_rejects_a_move_before_the_run_has_started() -> None:
    ended = moving(controller(), (1, "w1/0"))
    assert isinstance(ended[0].error, CannotMove)
    assert str(ended[0].error) == "move: the application is starting; only a running one can be changed"
