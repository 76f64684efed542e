"""Emulated machines that several runs have in common, in one process on manual clocks."""

from pathlib import Path

import pytest

from penstock.api.dataflow import Dataflow
from penstock.api.sources.generated import Generated
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.telemetry import Record, RecordKind
from penstock.runtime.emulation import scale_machines
from penstock.testing import Captured, TestCluster, tiny_cluster

STEP_S = 0.001


def flow(cpu: float = 0.01, count: int | None = None, rate: float | None = None) -> Dataflow:
    made = Dataflow("busy")
    numbers = made.source("in", Generated(int, rate=rate, count=count), cpu=cpu)
    made.sink("out", Captured([]), made.map("next", lambda value: value + 1, numbers))
    return made


def together(clusters: list[TestCluster], seconds: float) -> list[int]:
    """Let time pass for all of them, in steps, and return how many tuples came out of each."""
    before = [len(cluster.outputs["out"]) for cluster in clusters]
    for _ in range(round(seconds / STEP_S)):
        for cluster in clusters:
            cluster.advance(STEP_S)
    return [len(cluster.outputs["out"]) - count for cluster, count in zip(clusters, before, strict=True)]


def started(tmp_path: Path, name: str, made: Dataflow, cluster: Cluster) -> TestCluster:
    return TestCluster(made, emulate=cluster, folder=f"/{name}", share=str(tmp_path)).start()


def ways(records: list[Record]) -> list[tuple[float | None, ...]]:
    return [(r.emitted, r.sent, r.arrived, r.started, r.finished) for r in records if r.kind == RecordKind.HOP]


def test_a_single_run_behaves_as_without_sharing(tmp_path: Path) -> None:
    cluster = tiny_cluster(2, slots=2)
    found = [
        TestCluster(flow(count=80, rate=90.0), emulate=cluster, share=share).start().finish()
        for share in ("", str(tmp_path))
    ]
    assert ways(list(found[0].records)) == ways(list(found[1].records)) != []


def test_two_runs_have_half_a_machine_each_and_one_has_all_of_it(tmp_path: Path) -> None:
    one = Cluster(name="one", machines=(Machine(name="m0", cores=1, slots=3),))
    first = started(tmp_path, "first", flow(), one)
    assert together([first], 1.0) == [pytest.approx(100, abs=2)]
    second = started(tmp_path, "second", flow(), one)
    second.clock.now = first.clock.now
    shares = together([first, second], 2.0)
    assert shares == [pytest.approx(100, abs=3), pytest.approx(100, abs=3)]
    second.controller.stop(second.clock())
    second.settle()
    assert together([first], 1.0) == [pytest.approx(100, abs=3)]


def test_a_faster_machine_is_faster_for_current_and_later_runs(tmp_path: Path) -> None:
    one = Cluster(name="one", machines=(Machine(name="m0", cores=1, slots=3),))
    first = started(tmp_path, "first", flow(), one)
    assert together([first], 1.0) == [pytest.approx(100, abs=2)]
    scale_machines(tmp_path, {"m0": 3.0}, first.clock())
    assert together([first], 1.0) == [pytest.approx(300, abs=3)]
    assert first.workers[0].execution.capacity() == (3.0, one.machines[0].memory_mb)
    second = started(tmp_path, "second", flow(), one)
    second.clock.now = first.clock.now
    assert together([first, second], 1.0) == [pytest.approx(150, abs=4), pytest.approx(150, abs=4)]


def test_two_runs_share_a_link(tmp_path: Path) -> None:
    pair = Cluster(
        name="pair",
        machines=(Machine(name="a", slots=1), Machine(name="b", slots=2, cores=2)),
        links=(Link(source="a", target="b", bandwidth_mbps=0.08),),  # a thousand tuples of ten bytes a second
    )

    def wide(name: str) -> TestCluster:
        made = Dataflow("wide")
        made.sink("out", Captured([]), made.source("in", Generated(lambda _: "x" * 97, rate=90.0), cpu=1e-6))
        placement = ["a/0", "b/0"]
        return TestCluster(made, emulate=pair, placement=placement, folder=f"/{name}", share=str(tmp_path)).start()

    first = wide("first")
    assert together([first], 2.0) == [pytest.approx(180, abs=5)], "alone it has room for a hundred a second"
    second = wide("second")
    second.clock.now = first.clock.now
    both = together([first, second], 3.0)
    assert sum(both) == pytest.approx(300, abs=8), "together they have no more"
    assert min(both) > 80


def test_a_recovery_takes_the_place_of_what_was_before(tmp_path: Path) -> None:
    cluster = TestCluster(
        flow(count=150), emulate=tiny_cluster(2), folder="/kept", share=str(tmp_path), checkpoint_s=0.2
    ).start()
    for _ in range(3):
        cluster.advance(0.3)
        cluster.controller.recovery.begin("for the test", cluster.clock())
    result = cluster.finish()
    assert 2 <= result.status.recoveries <= 3  # one that begins during the pause before another is part of it
    assert set(result["out"]) == set(range(1, 151))


def test_a_machine_that_others_describe_otherwise_ends_the_run_with_a_clear_word(tmp_path: Path) -> None:
    kept = started(tmp_path, "first", flow(), tiny_cluster(1))
    other = Cluster(name="other", machines=(Machine(name="m0", cores=3),))
    with pytest.raises(Exception, match="share: machine 'm0' has another description in a run that shares it"):
        started(tmp_path, "second", flow(), other)
    assert kept.controller.phase == "running"
