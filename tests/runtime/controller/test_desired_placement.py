"""The desired placement apart from a controller: its moves, and the writes of its journal."""

import pytest

from penstock.model.errors import PenstockError
from penstock.runtime.controller.desired_placement import CHECK_S, DesiredPlacement
from penstock.runtime.controller.membership import Membership
from penstock.runtime.controller.outbox import ControllerOutbox
from penstock.runtime.controller.run_spec import RunState, Site
from penstock.runtime.protocol.worker_messages import Register
from penstock.runtime.storage.checkpoints import Journal

NAMES = ("a[0]", "b[0]")


class Parts:
    """Two workers that are ready, a task on each, and what the desired placement is handed."""

    def __init__(self) -> None:
        sites = (Site("w0", ("w0/0",)), Site("w1", ("w1/0",)))
        self.members = Membership(sites, 3.0, 5.0, 0.0)
        for site in sites:
            number = self.members.register(Register(site.name, "host", 1, 2), 0.0)
            assert number is not None
            self.members[number].ready = True
        self.state = RunState(NAMES, ["w0/0", "w1/0"], 1)
        self.state.phase = "running"
        self.outbox = ControllerOutbox(self.members)
        self.desired = DesiredPlacement(self.state, self.members, self.outbox, None, "checkpoints", self.journal)

    def journal(self) -> Journal:
        return Journal(self.state.epoch, dict(zip(NAMES, self.desired.slots, strict=True)))

    def moves(self, now: float, idle: bool = True) -> list[tuple[int, str]]:
        operation = self.desired.correct(now, idle)
        return [] if operation is None else list(operation.moves)


def test_returns_a_task_to_its_slot_unless_an_operation_is_running() -> None:
    parts = Parts()
    assert parts.moves(1.0) == []
    parts.state.placement = ["w0/0", "w0/0"]
    assert parts.moves(2.0, idle=False) == []
    assert parts.moves(2.0) == [], "it was checked just now"
    assert parts.moves(2.0 + CHECK_S) == [(1, "w1/0")]


def test_moves_tasks_away_from_a_worker_that_leaves() -> None:
    parts = Parts()
    parts.members[1].leaving = True
    assert parts.moves(1.0) == [(1, "w0/0")]
    assert parts.desired.slots == ["w0/0", "w1/0"]


def test_leaves_a_task_alone_that_could_not_move_in_this_epoch() -> None:
    parts = Parts()
    parts.state.placement = ["w0/0", "w0/0"]
    operation = parts.desired.correct(1.0, idle=True)
    assert operation is not None
    operation.error = PenstockError("it cannot move")
    operation.then(operation)
    assert not parts.desired.is_movable(1)
    assert parts.moves(3.0) == []
    assert [line.text for line in parts.outbox.lines] == ["it cannot move"]
    parts.state.epoch += 1
    assert parts.moves(5.0) == [(1, "w1/0")]


@pytest.mark.parametrize("problem", ["", "the disk is full"])
def test_requests_during_a_write_of_the_journal_share_the_next_one(problem: str) -> None:
    parts, called = Parts(), list[str]()
    for name in ("first", "second", "third"):
        parts.desired.write(lambda _, name=name: called.append(name))  # type: ignore[misc]
    (job,) = parts.outbox.take_jobs()
    job.then(None, problem, 1.0)
    assert called == ["first"]
    (job,) = parts.outbox.take_jobs()
    job.then(None, "", 2.0)
    assert called == ["first", "second", "third"]
    assert (parts.outbox.take_jobs(), len(parts.outbox.lines)) == ([], bool(problem))
