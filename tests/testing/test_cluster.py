"""The harness in which users test their applications."""

import math
from typing import Any

import pytest

from penstock.api.contracts import Operator, Source, TaskContext
from penstock.api.dataflow import Dataflow
from penstock.api.sources.generated import Generated
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.placement import Placement
from penstock.model.plan import to_plan
from penstock.testing import START, ApplicationFailed, Captured, ManualClock, TestCluster, run, tiny_cluster
from tests.runtime import flows


def doubled(**pace: Any) -> Dataflow:
    flow = Dataflow("doubled")
    numbers = flow.source("numbers", Generated(int, **pace))
    flow.sink("out", Captured([]), flow.map("double", lambda number: 2 * number, numbers, emits=int))
    return flow


def test_runs_an_application_to_the_end_of_its_sources() -> None:
    result = run(doubled(count=100))
    assert result["out"] == [2 * number for number in range(100)]
    assert result.status.phase == "stopped"
    assert (result.status.emitted, result.status.written) == (100, 100)


def test_an_endless_run_ends_with_its_sources() -> None:
    assert len(run(doubled(count=10), seconds=math.inf)["out"]) == 10


@pytest.mark.slow
def test_runs_for_a_number_of_seconds_of_its_own_clock() -> None:
    result = run(doubled(rate=100.0), seconds=60.0)
    assert len(result["out"]) == pytest.approx(6_000, abs=2)
    assert result.status.seconds == pytest.approx(60.0, abs=0.1)


def test_equal_seeds_produce_equal_runs_and_others_differ() -> None:
    def order(seed: int) -> list[Any]:
        return run(flows.word_count(50), workers=4, seed=seed)["out"]

    assert order(1) == order(1)
    assert len({tuple(order(seed)) for seed in range(5)}) > 1


class Unsaved(Operator[int, int]):
    """Cannot be saved, from a given tuple on."""

    def __init__(self, after: int) -> None:
        self.after, self.seen = after, 0

    def process(self, value: int) -> list[int]:
        self.seen += 1
        return [value]

    def snapshot(self) -> int:
        if self.seen >= self.after:
            raise ValueError("it cannot be saved")
        return self.seen

    def restore(self, state: int) -> None:
        self.seen = state


@pytest.mark.slow
@pytest.mark.parametrize("pace", [{"count": 200}, {"count": 200, "rate": 1000.0}, {"rate": 10.0}])
@pytest.mark.parametrize("after", [0, 1])
def test_a_snapshot_that_raises_fails_a_test_as_it_would_fail_in_production(pace: dict[str, Any], after: int) -> None:
    flow = Dataflow("unsaved")
    numbers = flow.source("numbers", Generated(int, **pace), emits=int)
    flow.sink("out", Captured([]), flow.operator("operator", lambda: Unsaved(after), numbers, emits=int))
    for seed in range(5):
        with pytest.raises(ApplicationFailed, match=r"operator\[0\]: ValueError: it cannot be saved"):
            run(flow, seconds=20.0, seed=seed)
    assert run(flow, seconds=2.0, checkpoint_s=0).status.phase == "stopped"


def test_checkpoints_do_not_carry_a_test_beyond_its_time() -> None:
    result = run(doubled(rate=0.1), seconds=3.0)
    assert result.status.seconds == pytest.approx(3.0, abs=0.1)
    assert result.status.checkpoint is not None


def test_time_passes_only_on_request() -> None:
    cluster = TestCluster(doubled(rate=10.0)).start()
    cluster.settle()
    assert cluster.clock() == START
    cluster.advance(1.05)
    assert cluster.clock() == pytest.approx(START + 1.05)
    assert len(cluster.outputs["out"]) == 11
    assert len(cluster.drain()["out"]) == 11


def test_a_manual_clock_advances_only_on_request() -> None:
    clock = ManualClock(5.0)
    assert (clock(), clock()) == (5.0, 5.0)
    clock.advance(2.5)
    assert clock() == 7.5


def test_a_value_that_cannot_travel_shows_itself() -> None:
    flow = Dataflow("strange")
    numbers = flow.source("numbers", Generated(int, count=5))
    flow.sink("out", Captured([]), flow.map("strange", lambda number: {number}.pop, numbers))
    with pytest.raises(ApplicationFailed, match=r"strange\[0\]: strange->out: tuple <built-in method pop"):
        run(flow)


def test_real_sinks_run_if_not_captured() -> None:
    taken: list[int] = []
    flow = Dataflow("kept")
    flow.sink("out", lambda: Captured(taken), flow.source("numbers", Generated(int, count=5)))
    assert run(flow, capture=False).outputs == {}
    assert taken == [0, 1, 2, 3, 4]


def test_takes_a_plan_for_the_cluster_that_is_emulated() -> None:
    flow, cluster = doubled(count=20), tiny_cluster(2, 2)
    placement = Placement(slots=(3, 0, 1))
    plan = to_plan(flow.application, cluster, placement, policy="by hand", objective="delay")
    result = run(flow, plan=plan, emulate=cluster)
    assert list(result.status.placement.values()) == ["m1/1", "m0/0", "m0/1"]
    with pytest.raises(InvalidInput, match="expected the plan's cluster as well"):
        run(flow, plan=plan)


def test_rejects_a_slot_that_there_is_not() -> None:
    with pytest.raises(UnknownName, match="no worker has slot 'w5/0'"):
        run(doubled(count=5), placement=["w0/0", "w5/0", "w0/0"])


class Silent(Source[int]):
    def open(self, context: TaskContext) -> None:
        self.opened = True

    def poll(self, now: float, limit: int) -> list[int]:
        return []


def test_says_so_when_an_application_does_not_end() -> None:
    flow = Dataflow("silent")
    flow.sink("out", Captured([]), flow.source("numbers", Silent))
    cluster = TestCluster(flow).start()
    with pytest.raises(
        RuntimeError, match=r"not ended after 2 s of its clock: numbers\[0\], out\[0\] are still running"
    ):
        cluster.finish(2.0)
    assert cluster.drain()["out"] == []


def test_the_status_has_rates_and_latency() -> None:
    cluster = TestCluster(doubled(rate=200.0)).start()
    cluster.advance(4.0)
    status = cluster.controller.status(cluster.clock())
    rates = {component.name: component.rate_tps for component in status.components}
    assert rates == pytest.approx({"numbers": 200.0, "double": 200.0, "out": 200.0}, rel=0.05)
    assert status.latency is not None
    assert status.latency.count > 100
    assert all(component.queue == 0 and component.blocked == 0.0 for component in status.components)
    assert {machine.name: machine.tasks for machine in status.machines} == {"w0": 2, "w1": 1}
