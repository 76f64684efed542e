"""Rate limits of sources in a whole cluster: what they emit over time, whatever happens meanwhile."""

import math
from pathlib import Path
from typing import Any

import pytest

from penstock.api.dataflow import Dataflow
from penstock.api.sinks.json_lines import JsonLines
from penstock.api.sources.generated import Generated
from penstock.model.errors import InvalidInput, PenstockError, UnknownName
from penstock.model.limits import update_limits
from penstock.model.telemetry import RecordKind
from penstock.runtime.storage import checkpoints
from penstock.testing import Captured, TestCluster, tiny_cluster
from penstock.testing.disk import MemoryDisk


def flow(*, rate: float | None = None, tasks: int = 1, cpu: float = 0.0) -> Dataflow:
    made = Dataflow("limited")
    numbers = made.source("in", Generated(int, rate=rate), parallelism=tasks, cpu=cpu)
    made.sink("out", Captured([]), made.map("next", lambda value: value + 1, numbers))
    return made


def two_sources() -> Dataflow:
    made = Dataflow("two")
    for name, rate in (("slow", 100.0), ("fast", 300.0)):
        made.sink(f"out-{name}", Captured([]), made.source(name, Generated(int, rate=rate)))
    return made


def given(cluster: TestCluster, seconds: float) -> int:
    """Let time pass and return how many tuples came out of it."""
    before = len(cluster.outputs["out"])
    cluster.advance(seconds)
    return len(cluster.outputs["out"]) - before


WAYS: list[dict[str, Any]] = [{"workers": 3}, {"emulate": tiny_cluster(3)}]


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=["direct", "emulated"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_a_source_emits_exactly_its_limit(way: dict[str, Any], tasks: int) -> None:
    cluster = TestCluster(flow(tasks=tasks), limits={"in": 60.0}, **way).start()
    assert abs(given(cluster, 1.0) - 60) <= tasks, "tuples in flight on emulated links have not arrived"
    assert given(cluster, 10.0) == 600
    assert cluster.controller.status(cluster.clock()).limits == {"in": 60.0}


@pytest.mark.parametrize("way", WAYS, ids=["direct", "emulated"])
def test_a_source_below_its_limit_does_not_notice_it(way: dict[str, Any]) -> None:
    free = TestCluster(flow(rate=50.0), **way).start()
    held = TestCluster(flow(rate=50.0), limits=1000.0, **way).start()
    given(free, 1.0), given(held, 1.0)  # its pace starts with the first poll, a token later
    assert given(free, 4.0) == given(held, 4.0) == 200


@pytest.mark.parametrize("way", WAYS, ids=["direct", "emulated"])
def test_a_limit_changes_during_a_run(way: dict[str, Any]) -> None:
    cluster = TestCluster(flow(), limits=40.0, **way).start()
    given(cluster, 1.0)
    assert cluster.limit({"in": 100.0}) == {"in": 100.0}
    given(cluster, 1.0)
    assert given(cluster, 5.0) == 500
    cluster.limit({"in": 10.0})
    given(cluster, 1.0)
    assert given(cluster, 5.0) == 50


def test_a_source_catches_up_after_a_limit_is_removed() -> None:
    cluster = TestCluster(flow(rate=100.0), limits=10.0).start()
    assert given(cluster, 2.0) == 20
    assert cluster.limit(None) == {}
    assert given(cluster, 1.0) == 271, "all that was due since it was first asked, at its first token, less the twenty"
    assert given(cluster, 1.0) == 100


@pytest.mark.parametrize("way", WAYS, ids=["direct", "emulated"])
def test_a_tuple_that_waits_for_a_limit_counts_as_delayed(way: dict[str, Any]) -> None:
    cluster = TestCluster(flow(rate=100.0), limits=50.0, **way).start()
    cluster.advance(4.0)
    roots = [record for record in cluster.result().records if record.kind == RecordKind.ROOT]
    late = {round(record.emitted - record.due, 2) for record in roots[-3:] if record.emitted and record.due}
    assert late
    assert all(1.9 <= seconds <= 2.0 for seconds in late), "half of what was due in four seconds has come"


def test_an_emulated_source_emits_at_the_time_of_the_token_on_a_slow_host() -> None:
    cluster = TestCluster(flow(rate=1000.0, cpu=1e-3), emulate=tiny_cluster(1), limits=100.0).start()
    cluster.advance(0.02)  # in which it is first polled, at its first token
    for _ in range(20):
        cluster.clock.advance(0.04)  # the host does nothing for so long
        cluster.advance(0.0)
    roots = [record for record in cluster.result().records if record.kind == RecordKind.ROOT]
    times = [(record.emitted or 0.0) - 1000.0 for record in roots]
    assert times == pytest.approx([0.01 * number + 0.001 for number in range(1, len(times) + 1)])
    assert len(times) > 75


@pytest.mark.parametrize("way", WAYS, ids=["direct", "emulated"])
def test_checkpoints_and_the_end_pass_a_paused_source(way: dict[str, Any]) -> None:
    cluster = TestCluster(flow(rate=100.0), checkpoint_s=0.5, limits=100.0, in_flight=30, **way).start()
    cluster.advance(1.0)
    cluster.limit({"in": 0.0})
    given(cluster, 0.5)
    before = cluster.controller.status(cluster.clock()).checkpoint
    assert given(cluster, 3.0) == 0
    after = cluster.controller.status(cluster.clock()).checkpoint
    assert before is not None
    assert after is not None
    assert after.number >= before.number + 5
    paused = len(cluster.outputs["out"])
    result = cluster.drain()
    assert len(result["out"]) == paused
    assert result.status.phase == "stopped"


def test_a_paused_source_is_not_polled_repeatedly() -> None:
    cluster = TestCluster(flow(), limits=0.0, workers=1).start()
    before = cluster.workers[0].turns
    cluster.advance(10.0)
    assert cluster.workers[0].turns - before < 100, "it turns for reports only"


def test_a_source_with_a_limit_is_woken_once_per_tuple() -> None:
    cluster = TestCluster(flow(), limits=50.0, workers=1).start()
    before = cluster.workers[0].turns
    assert given(cluster, 10.0) == 500
    assert cluster.workers[0].turns - before < 500 * 3 + 100


@pytest.mark.parametrize("way", WAYS, ids=["direct", "emulated"])
def test_a_recovery_keeps_limits_that_were_changed_even_during_it(way: dict[str, Any]) -> None:
    cluster = TestCluster(flow(), checkpoint_s=0.5, limits=100.0, **way).start()
    cluster.advance(1.2)
    cluster.limit({"in": 20.0})
    cluster.controller.recovery.begin("for the test", cluster.clock())
    given(cluster, 1.0)
    assert given(cluster, 5.0) == 100
    cluster.controller.recovery.begin("for the test", cluster.clock())
    for _ in range(3):  # an epoch is being noted, or opened
        cluster.step()
    cluster.limit({"in": 40.0})
    given(cluster, 1.0)
    assert cluster.controller.status(cluster.clock()).recoveries == 2
    assert given(cluster, 5.0) == 200


@pytest.mark.parametrize("steps", range(12))
def test_a_change_at_any_moment_of_a_recovery_reaches_the_source(steps: int) -> None:
    cluster = TestCluster(flow(), checkpoint_s=0.2, limits=100.0, workers=2, seed=steps).start()
    cluster.advance(0.5)
    cluster.controller.recovery.begin("for the test", cluster.clock())
    for _ in range(steps):
        cluster.step()
    cluster.limit(30.0)
    given(cluster, 1.0)
    assert given(cluster, 2.0) == 60


@pytest.mark.parametrize("way", WAYS, ids=["direct", "emulated"])
def test_a_source_that_moves_keeps_its_limit(way: dict[str, Any]) -> None:
    cluster = TestCluster(flow(rate=100.0), limits=50.0, **way).start()
    slots = list(cluster.controller.members.slots)
    for turn in range(6):
        given(cluster, 0.5)
        cluster.move("in[0]", slots[(turn + 1) % len(slots)])
    assert 130 <= len(cluster.outputs["out"]) <= 150, "at most a token is lost a move, and none is gained"
    given(cluster, 1.0)
    assert given(cluster, 2.0) == 100


def test_the_next_driver_reads_limits_from_the_journal() -> None:
    cluster = TestCluster(flow()).start()
    cluster.limit({"in": 12.0})
    cluster.advance(0.5)
    assert isinstance(cluster.disk, MemoryDisk)
    journal = checkpoints.read_journal(cluster.disk, cluster.controller.checkpointing.folder)
    assert journal is not None
    assert journal.limits == {"in": 12.0}


def test_output_is_exactly_once_under_limits_and_recoveries(tmp_path: Path) -> None:
    made = Dataflow("kept")
    made.sink("out", JsonLines("out"), made.source("in", Generated(int, count=400)))
    cluster = TestCluster(made, capture=False, folder=str(tmp_path), checkpoint_s=0.3, limits=300.0).start()
    for rate in (100.0, 0.0, 500.0):
        cluster.advance(0.5)
        cluster.limit(rate)
        cluster.advance(0.2)
        cluster.controller.recovery.begin("for the test", cluster.clock())
    cluster.finish()
    lines = [line for file in sorted(tmp_path.rglob("out/*.jsonl")) for line in file.read_text().splitlines()]
    assert sorted(map(int, lines)) == list(range(400))


def test_one_number_is_divided_in_proportion_to_offered_rates() -> None:
    application = two_sources().application
    assert update_limits({}, 40.0, application) == {"slow": 10.0, "fast": 30.0}
    assert update_limits({"slow": 5.0}, {"fast": 7}, application) == {"slow": 5.0, "fast": 7.0}
    assert update_limits({"slow": 5.0, "fast": 1.0}, {"slow": None}, application) == {"fast": 1.0}
    assert update_limits({"slow": 5.0}, None, application) == {}


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, True, "10"])
def test_rejects_what_is_no_rate(wrong: Any) -> None:
    for limits in (wrong, {"fast": wrong}):
        with pytest.raises(InvalidInput, match="expected tuples per second ≥ 0"):
            update_limits({}, limits, two_sources().application)


def test_rejects_an_unknown_source() -> None:
    cluster = TestCluster(flow()).start()
    with pytest.raises(UnknownName, match="no source is named 'next'; there are in"):
        cluster.limit({"next": 3.0})
    assert cluster.controller.limits == {}


def test_rejects_a_limit_for_what_has_ended() -> None:
    cluster = TestCluster(flow()).start()
    cluster.drain()
    with pytest.raises(PenstockError, match="the application is stopped"):
        cluster.limit(3.0)
