"""Operators that are slower than their sources: turns, queues, checkpoints and moves stay short all the same.

An operator takes its time by advancing the cluster's clock, so that every figure here is of that clock.
"""

from collections.abc import Callable, Container

import pytest

import penstock as ps
from penstock.runtime.controller.operations import Operation
from penstock.runtime.worker.output import FULL, Lane
from penstock.runtime.worker.service_time import TARGET_S, BatchSize
from penstock.runtime.worker.state_machine import Worker
from penstock.runtime.worker.task import Task
from penstock.testing import ManualClock, TestCluster

WINDOW = 2048
SERVICE_S = 0.01


class Clocked:
    """A cluster with operators that take time, which is known only once it is made."""

    clock: ManualClock

    def slow(self, value: int) -> int:
        self.clock.advance(SERVICE_S)
        return value


def overloaded(rate: float = 3 / SERVICE_S, *, key: bool = False, service: bool = True) -> TestCluster:
    """Start a quick operator that feeds a slow one, with three times as many tuples as the slow one can process."""
    clocked = Clocked()
    flow = ps.Dataflow("overload")
    numbers = flow.source("in", ps.Generated(lambda i: i, rate=rate), emits=int)
    quick = flow.map("quick", abs, numbers, emits=int)
    fed = quick.fields(lambda _: 7) if key else quick
    slow = flow.map("slow", clocked.slow if service else abs, fed, parallelism=2 if key else 1, emits=int)
    flow.sink("out", ps.Discard(), slow)
    cluster = TestCluster(flow, workers=4, window=WINDOW, sample_tps=1.0, checkpoint_s=5.0, telemetry=False)
    clocked.clock = cluster.clock
    return cluster.start()


def tasks(cluster: TestCluster) -> dict[str, Task]:
    return {task.name: task for worker in cluster.workers for task in worker.tasks.values()}


@pytest.mark.slow
@pytest.mark.parametrize("key", [False, True], ids=["one", "one key of two tasks"])
def test_checkpoints_complete_and_the_rate_shown_is_true_while_an_operator_is_overloaded(key: bool) -> None:
    cluster = overloaded(key=key)
    took = []
    for _ in range(60):
        cluster.advance(1.0)
        latest = cluster.controller.checkpointing.latest
        took += [] if latest is None else [latest.seconds]
    status = cluster.controller.status(cluster.clock())
    assert cluster.controller.checkpointing.number >= 8
    assert max(took) < 3.0
    assert not status.warnings
    assert status.recoveries == 0
    rates = {component.name: component.rate_tps for component in status.components}
    assert rates["slow"] == pytest.approx(1 / SERVICE_S, rel=0.1)


def test_a_turn_ends_after_the_tuple_in_which_its_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    turn: Callable[[Worker], bool] = Worker.turn
    took = []

    def timed(worker: Worker) -> bool:
        started = worker.clock()
        busy = turn(worker)
        took.append(worker.clock() - started)
        return busy

    monkeypatch.setattr(Worker, "turn", timed)
    overloaded().advance(20.0)
    assert max(took) < 0.05


def test_a_slow_operator_moves_within_seconds_without_a_recovery() -> None:
    cluster = overloaded()
    cluster.advance(20.0)
    for slot in ("w3/0", "w0/0", "w2/0"):
        asked, ended = cluster.clock(), list[Operation]()
        cluster.request([("slow[0]", slot)], ended.append)
        while not ended and cluster.clock() < asked + 30.0:
            cluster.advance(0.1)
        assert ended
        assert ended[0].error is None
        assert cluster.clock() < asked + 3.0  # a checkpoint may have come first
        cluster.advance(5.0)
    assert cluster.controller.recovery.count == 0
    assert cluster.controller.status(cluster.clock()).recoveries == 0


def test_queues_hold_seconds_of_work_and_not_thousands_of_tuples() -> None:
    cluster = overloaded()
    most = 0
    for _ in range(60):
        cluster.advance(1.0)
        most = max(
            most,
            sum(task.inbox.queued + sum(queue.backlog for queue in task.queues) for task in tasks(cluster).values()),
        )
    assert most * SERVICE_S < 4.0


def test_fast_tasks_keep_their_windows_and_queues() -> None:
    cluster = overloaded(service=False)
    cluster.advance(1.0)
    for task in tasks(cluster).values():
        for queue in task.queues:
            assert {lane.window for lane in queue.lanes} == {WINDOW}
            assert queue.limit == FULL


def test_the_windows_of_a_task_grow_again_when_it_gets_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = overloaded(rate=1000)
    cluster.advance(10.0)
    (lane,) = tasks(cluster)["quick[0]"].queues[0].lanes
    assert 2 <= lane.window < 64
    balanced = False
    for _ in range(50):
        cluster.advance(0.01)
        balanced = balanced or _accounts_for_all(cluster, lane)
    assert balanced
    monkeypatch.setattr(cluster.clock, "advance", lambda _: None)  # it takes no time any more
    cluster.advance(0.5)
    assert lane.window == WINDOW


def _accounts_for_all(cluster: TestCluster, lane: Lane) -> bool:
    """Return whether all tuples without credit wait, or were processed: no credit is on the wire."""
    inbox = tasks(cluster)["slow[0]"].inbox
    (channel,) = inbox.channels.values()
    on_wire = lane.number - channel.expected
    return lane.outstanding == inbox.queued + lane.backlog + channel.consumed + on_wire


@pytest.mark.parametrize(
    ("batched", "took", "expected"),
    [
        (False, lambda n: 1e-6 * n, {500}),
        (False, lambda n: 1e-5 * n, {64}),
        (False, lambda n: 0.01 * n, {1}),
        (True, lambda n: 0.01 * n, {1}),
        (True, lambda n: 1e-3 * n, {4, 8}),
        (True, lambda _: 0.1, {1024}),  # a commit, say, whatever it is of
        (True, lambda n: 0.1 + 1e-3 * n, range(90, 110)),  # twice the time of a commit
    ],
)
def test_an_operator_gets_only_the_tuples_that_it_has_time_for(
    batched: bool, took: Callable[[int], float], expected: Container[int]
) -> None:
    size = BatchSize(1024, batched=batched)
    counts = []
    for _ in range(140):
        size.add(size.count, took(size.count))
        counts.append(size.count)
    assert sorted(counts[40:])[50] in expected


def test_code_that_becomes_slow_soon_gets_one_tuple_at_a_time() -> None:
    for batched in (False, True):
        size = BatchSize(1024, batched=batched)
        for _ in range(20):
            size.add(size.count, TARGET_S / 100)
        calls = 0
        while size.count > 1:
            size.add(size.count, 0.01 * size.count)
            calls += 1
        assert calls <= 2
