"""Relocation: the tasks of a worker that leaves on purpose move away and back, without a recovery."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

import penstock as ps
from penstock.api.contracts import Operator, TaskContext
from penstock.runtime.protocol import worker_messages
from penstock.runtime.worker.state_machine import Worker
from penstock.testing import TestCluster, tiny_cluster
from tests.runtime.flows import Count


class Hoard(Operator[Any, Any]):
    """Keeps state that cannot be saved."""

    def open(self, context: TaskContext) -> None:
        self.seen: list[Any] = []

    def process(self, value: Any) -> Iterable[Any]:
        self.seen.append(value)
        return (value,)


def counting(operator: Any = Count) -> ps.Dataflow:
    flow = ps.Dataflow("counting")
    words = flow.source("words", ps.Generated(lambda n: f"w{n % 40}", rate=100, count=800), emits=str)
    flow.sink("out", ps.Discard(), flow.operator("count", operator, words.fields(), parallelism=3), parallelism=2)
    return flow


def end(cluster: TestCluster, number: int) -> None:
    """End a worker, and register its replacement."""
    controller = cluster.controller
    for other in range(len(cluster.workers)):
        if other != number:
            controller.receive(other, worker_messages.PeerLost(controller.epoch, number, "closed"), cluster.clock())
    controller.lose(number, "closed", cluster.clock())
    controller.end_process(number, cluster.clock())
    cluster.workers[number] = Worker(cluster.flow, "test", cluster.clock)
    assert controller.register(worker_messages.Register(f"w{number}", "test", 1, 9), cluster.clock()) == number


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_a_relocation_is_no_recovery_and_its_tasks_return(seed: int) -> None:
    cluster = TestCluster(counting(), workers=3, seed=seed, window=4, checkpoint_s=0.4).start()
    controller = cluster.controller
    before = list(controller.placement)
    assert "w1/0" in before
    cluster.advance(0.5)
    assert controller.relocate("w1", cluster.clock()) == ""
    cluster.advance(3.0)
    assert cluster.workers[1].phase == "stopped"
    assert "w1/0" not in controller.placement
    end(cluster, 1)
    cluster.advance(3.0)
    assert controller.placement == before
    assert (controller.phase, controller.recovery.count, list(controller.members[1].failures)) == ("running", 0, [])
    result = cluster.finish()
    last = {word: max(count for each, count in result["out"] if each == word) for word, _ in result["out"]}
    assert last == Counter(f"w{n % 40}" for n in range(800))
    assert len(result["out"]) == 800
    assert result.status.epoch == 1


def test_a_worker_with_immovable_tasks_stays() -> None:
    cluster = TestCluster(counting(Hoard), workers=3).start()
    cluster.advance(0.5)
    assert cluster.controller.relocate("w1", cluster.clock()) == ""
    cluster.advance(3.0)
    assert cluster.workers[1].phase == "running"
    assert any("'w1' stays where it is: count[0] cannot move" in line.text for line in cluster.controller.outbox.lines)
    assert len(cluster.finish()["out"]) == 800


def test_a_worker_still_leaves_after_a_recovery() -> None:
    cluster = TestCluster(counting(), workers=3, checkpoint_s=0.4).start()
    cluster.advance(0.5)
    cluster.controller.relocate("w1", cluster.clock())
    cluster.controller.recovery.begin("for the test", cluster.clock())
    cluster.advance(3.0)
    assert cluster.workers[1].phase == "stopped"
    end(cluster, 1)
    cluster.advance(2.0)
    assert (cluster.controller.phase, cluster.controller.recovery.count) == ("running", 1)


def test_the_only_worker_and_an_emulated_machine_stay() -> None:
    one = TestCluster(counting(), workers=1).start()
    assert one.controller.relocate("w0", one.clock()) == "no other slot could have its tasks"
    emulated = TestCluster(counting(), emulate=tiny_cluster(2)).start()
    assert emulated.controller.relocate("m0", emulated.clock()) == "an emulated machine may be anywhere"
