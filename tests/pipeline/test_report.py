"""The report's figures against the truth of a synthetic run, summed up by numpy."""

import math
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.model.errors import PenstockError
from penstock.model.telemetry import RecordKind
from penstock.pipeline.report import run_report
from penstock.pipeline.report_rows import Report
from tests.pipeline.synthetic import CHANGE_S, FIRST_S, LAGS_S, RATE_TPS, SLOW, TASKS, Row, Synthetic, write_records

pytestmark = pytest.mark.spark
CLOSE = 2e-6
SETTLED = (FIRST_S + 2.0, CHANGE_S + 2.0)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report") / "out"


@pytest.fixture(scope="module")
def report(spark: SparkSession, run: Path, output: Path) -> Report:
    return run_report(spark, run, output)


def in_phase(rows: list[Row], number: int, time: str) -> list[Row]:
    end = (CHANGE_S, np.inf)[number]
    return [row for row in rows if SETTLED[number] <= row[time] < end]


def spread(rows: list[Row], end: str, start: str) -> np.ndarray:
    return np.array([row[end] - row[start] for row in rows])


def test_the_run_is_described(report: Report, truth: Synthetic) -> None:
    assert (report.run, report.application, report.emulated) == ("r1", "word-count", "hetero-small")
    assert (report.sampled, report.complete, report.records) == (len(truth.roots), len(truth.roots), len(truth.records))
    assert report.seconds == pytest.approx(truth.roots[-1]["finished"] - truth.roots[0]["due"], abs=CLOSE)
    assert report.quarantine == []


def test_latency_of_each_phase_leaves_out_its_settling_time(report: Report, truth: Synthetic) -> None:
    assert [phase.name for phase in report.phases] == ["round-robin", "local-search"]
    for phase in report.phases:
        own = in_phase(truth.roots, phase.number, "due")
        if phase.number:  # a phase ends when the last tuple was emitted
            own = [root for root in own if root["due"] < max(each["emitted"] for each in truth.roots)]
        times = spread(own, "finished", "due")
        found = phase.latency
        assert found is not None
        assert found.count == len(own)
        assert [found.p50, found.p95, found.p99] == pytest.approx(np.percentile(times, [50, 95, 99]), abs=CLOSE)
        assert (found.mean, found.worst) == pytest.approx((times.mean(), times.max()), abs=CLOSE)
    whole = spread(truth.roots, "finished", "due")
    assert report.end_to_end.p99 == pytest.approx(np.percentile(whole, 99), abs=CLOSE)


def test_phases_are_compared_with_the_first(report: Report, truth: Synthetic) -> None:
    first, second = report.phases
    assert first.throughput_tps == second.throughput_tps == pytest.approx(RATE_TPS)
    roots = {root["root"]: root for root in truth.roots}
    far = [hop for hop in truth.hops if hop["worker"] != hop["source_worker"]]
    own = in_phase(truth.roots, 0, "due")
    carried = sum(SETTLED[0] <= roots[hop["root"]]["due"] < CHANGE_S for hop in far)
    assert first.remote_tps == pytest.approx(RATE_TPS * carried / len(own))
    assert second.remote_tps == 0.0
    before, after = truth.placements
    assert (first.moved, second.moved) == (None, sum(before[task] != after[task] for task in TASKS))
    assert first.latency is not None
    assert second.latency is not None
    assert second.ratios["p99"] == pytest.approx((second.latency.p99 or 0) / (first.latency.p99 or 1))
    assert second.ratios["remote_tps"] == 0.0
    assert (first.lag, second.lag) == LAGS_S
    assert set(first.ratios.values()) == {1.0}


def test_components_have_their_times_and_rates(report: Report, truth: Synthetic) -> None:
    assert [row.component for row in report.components if row.phase == 0] == ["split", "count", "store"]
    for row in report.components:
        own = [hop for hop in truth.hops if hop["task"].startswith(row.component)]
        own = in_phase(own, row.phase, "arrived")
        if row.phase:
            own = [hop for hop in own if hop["arrived"] < max(each["emitted"] for each in truth.roots)]
        assert row.count == len(own)
        waits, spent = spread(own, "started", "arrived"), spread(own, "finished", "started")
        assert (row.wait_p50, row.wait_p99) == pytest.approx(tuple(np.percentile(waits, [50, 99])), abs=CLOSE)
        assert row.processing_p95 == pytest.approx(np.percentile(spent, 95), abs=CLOSE)
        assert row.total_mean == pytest.approx((waits + spent).mean(), abs=CLOSE)
        assert row.tasks == sum(task.startswith(row.component) for task in TASKS)
    split = [row.rate_tps for row in report.components if row.component == "split"]
    assert split == pytest.approx([RATE_TPS, RATE_TPS], rel=0.05)


def test_streams_and_pairs_of_machines_have_their_transfers(report: Report, truth: Synthetic) -> None:
    assert [row.stream for row in report.streams if row.phase == 0] == ["lines->split", "split->count", "count->store"]
    for row in (row for row in [*report.streams, *report.edges] if row.phase == 0):
        own = [hop for hop in in_phase(truth.hops, 0, "arrived") if hop["stream"] == row.stream]
        if row.source_machine is not None:
            pair = (row.source_machine, row.target_machine)
            own = [hop for hop in own if (hop["source_worker"], hop["worker"]) == pair]
        times = np.clip(spread(own, "arrived", "sent"), 0, None)
        assert row.count == len(own)
        assert (row.transfer_p50, row.transfer_p99) == pytest.approx(tuple(np.percentile(times, [50, 99])), abs=CLOSE)
        assert row.remote_share == pytest.approx(np.mean([hop["worker"] != hop["source_worker"] for hop in own]))
        assert row.bytes_mean == pytest.approx(np.mean([hop["bytes"] for hop in own]))


def test_the_slow_task_is_found_and_no_other(report: Report) -> None:
    assert [(row.phase, row.task) for row in report.slow_tasks] == [(0, SLOW), (1, SLOW)]
    assert all(row.ratio > 2 for row in report.slow_tasks)


def test_the_timeline_has_every_second(report: Report, truth: Synthetic) -> None:
    assert [row.second for row in report.timeline] == list(range(20))
    start = truth.roots[0]["due"]
    third = spread([root for root in truth.roots if 3 <= root["due"] - start < 4], "finished", "due")
    found = report.timeline[3]
    assert (found.rate_tps, found.count) == (RATE_TPS, len(third))
    assert found.p50 == pytest.approx(np.percentile(third, 50), abs=CLOSE)


def test_tables_and_report_are_kept(report: Report, output: Path, truth: Synthetic) -> None:
    assert pq.read_table(output / "hops").num_rows == len(truth.hops)
    assert pq.read_table(output / "tuples").num_rows == len(truth.roots)
    assert msgspec.json.decode((output / "report.json").read_bytes(), type=Report) == report
    assert not (output / "quarantine").exists()


def test_a_report_takes_few_jobs_whatever_the_number_of_its_tables(
    spark: SparkSession, run: Path, tmp_path: Path
) -> None:
    context, before = spark.sparkContext, spark.conf.get("spark.sql.shuffle.partitions")
    context.setJobGroup("a report", "counted")
    try:
        run_report(spark, run, tmp_path / "out")
    finally:
        context.setJobGroup("others", "not counted")
    assert len(context.statusTracker().getJobIdsForGroup("a report")) <= 12
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_telemetry_without_a_sampled_tuple_is_rejected(spark: SparkSession, tmp_path: Path, truth: Synthetic) -> None:
    rows = [record for record in truth.records if record["kind"] == "task"]
    rows[0] = rows[0] | {"queue": -1}
    write_records(tmp_path / "a.parquet", rows)
    with pytest.raises(
        PenstockError, match="no sampled tuple among 139 records, 1 in quarantine, mostly: queue is neg"
    ):
        run_report(spark, tmp_path)


def test_distinguishes_runs_that_share_a_folder(spark: SparkSession, tmp_path: Path, truth: Synthetic) -> None:
    telemetry = tmp_path / "shared"
    telemetry.mkdir()
    write_records(telemetry / "a.parquet", truth.records)
    write_records(telemetry / "b.parquet", [record | {"run": "r2"} for record in truth.records])
    with pytest.raises(PenstockError, match="contains the telemetry of 2 runs, r1, r2; use the folder of one run"):
        run_report(spark, telemetry)
    (tmp_path / "run.json").write_text('{"run": "r2", "telemetry": "shared"}')
    found = run_report(spark, tmp_path)
    assert (found.run, found.sampled) == ("r2", len(truth.roots))


WILD = (1e308, -1e308, 1e300, 5e-324, 4e9, -4e9, 0.5, 0.0, math.nan, math.inf, -math.inf)
WILD_COUNTS = (2**63 - 1, -(2**63), 10**12, 0, -1)


def test_extreme_telemetry_is_reported(spark: SparkSession, tmp_path: Path, truth: Synthetic) -> None:
    """Give each number of one record of each kind extreme values: what passes ingest must not break a report."""
    telemetry = tmp_path / "telemetry"
    telemetry.mkdir()
    rows = list(truth.records)
    for kind in RecordKind:
        example = next((row for row in truth.records if row["kind"] == kind), None)
        for name, value in (example or {}).items():
            if isinstance(value, float):
                rows += [{**example, name: wild} for wild in WILD]  # type: ignore[dict-item]
            elif isinstance(value, int) and not isinstance(value, bool):
                rows += [{**example, name: wild} for wild in WILD_COUNTS]  # type: ignore[dict-item]
    write_records(telemetry / "all.parquet", rows)
    found = run_report(spark, telemetry)
    assert found.records > 0
    assert len(found.quarantine) > 20
    assert len(found.timeline) < 100_000
