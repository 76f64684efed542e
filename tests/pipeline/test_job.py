"""The whole pipeline: batch and stream have the same result, also after failures."""

from pathlib import Path
from random import Random

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from penstock.model.errors import FileProblem, InvalidInput, UnknownName
from penstock.pipeline.arrivals import FAR
from penstock.pipeline.job import Summary, _Job, read_table, run_pipeline
from penstock.pipeline.manifest import Manifest
from penstock.pipeline.reading import read_run
from penstock.pipeline.store import DERIVED, Store
from tests.pipeline.spoilt import LATENESS_S, Spoilt, arrive
from tests.pipeline.synthetic import END_S, Synthetic, write_records

pytestmark = pytest.mark.spark
WINDOW_S = 4.0
KILLS = 10
FILES = 12  # of a micro-batch


class Killed(Exception):
    """Ends a job in the middle."""


class Killer:
    """Counts the steps of a job, and ends it before one of them."""

    def __init__(self, before: int | None = None) -> None:
        self.before = before
        self.steps: list[str] = []

    def __call__(self, step: str) -> None:
        if len(self.steps) == self.before:
            raise Killed(step)
        self.steps.append(step)


@pytest.fixture(scope="module")
def came(truth: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Spoilt:
    return arrive(truth, tmp_path_factory.mktemp("came") / "of a run")


@pytest.fixture(scope="module")
def batch(spark: SparkSession, came: Spoilt, tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, Path]:
    output = tmp_path_factory.mktemp("batch") / "tables"
    return run_pipeline(spark, came.folder, output, window_s=WINDOW_S, lateness_s=LATENESS_S), output


def run_stream(spark: SparkSession, folder: Path, output: Path, killer: Killer | None = None) -> Summary:
    return run_pipeline(
        spark, folder, output, window_s=WINDOW_S, lateness_s=LATENESS_S, stream=True, files_per_batch=FILES,
        step=killer or Killer(),
    )  # fmt: skip


def table(spark: SparkSession, output: Path, name: str) -> pd.DataFrame:
    rows = read_table(spark, output, name).toPandas()
    if "path" in rows:
        rows["path"] = rows["path"].map(str)
    by = sorted(map(str, rows.columns), key=lambda column: rows[column].dtype == float)  # exact columns first
    return rows.sort_values(by, ignore_index=True)


def assert_same_tables(spark: SparkSession, one: Path, other: Path) -> None:
    for name in ("records", "quarantine", *DERIVED):
        expected, found = table(spark, one, name), table(spark, other, name)
        pd.testing.assert_frame_equal(found, expected, rtol=1e-9, obj=name)
        assert len(expected) or name in ("reports/slow_machines",)


def test_unusable_records_are_counted_by_reason(batch: tuple[Summary, Path], came: Spoilt) -> None:
    summary, _ = batch
    assert summary.quarantined == came.quarantined
    assert (summary.records, summary.runs) == (came.records, 1)


def test_nothing_of_the_run_is_missing(batch: tuple[Summary, Path], truth: Synthetic, spark: SparkSession) -> None:
    summary, output = batch
    assert (summary.hops, summary.tuples) == (len(truth.hops), len(truth.roots))
    found = read_table(spark, output, "tuples").toPandas().set_index("root")
    assert found["complete"].all()
    expected = {root["root"]: root["finished"] - root["due"] for root in truth.roots}
    assert found["latency"].to_dict() == pytest.approx(expected, abs=1e-6)


def test_a_stream_killed_anywhere_gives_the_same_tables_as_a_batch(
    spark: SparkSession, came: Spoilt, batch: tuple[Summary, Path], tmp_path: Path
) -> None:
    seed = Random().randrange(10**6)
    print(f"seed {seed}")
    whole, output = Killer(), tmp_path / "killed"
    run_stream(spark, came.folder, tmp_path / "undisturbed", whole)
    kept = 0  # the steps that need not be repeated
    for kill in sorted(Random(seed).sample(range(len(whole.steps)), KILLS)):
        killer = Killer(kill - kept)
        with pytest.raises(Killed):
            run_stream(spark, came.folder, output, killer)
        assert killer.steps == whole.steps[kept:kill], f"seed {seed}"
        kept = max((place + 1 for place in range(kill + 1) if whole.steps[place] == "published"), default=0)
    rest = Killer()
    summary = run_stream(spark, came.folder, output, rest)
    assert rest.steps == whole.steps[kept:], f"seed {seed}"
    assert (summary.records, summary.quarantined) == (came.records, came.quarantined), f"seed {seed}"
    assert_same_tables(spark, batch[1], output)
    assert not (output / "_work").exists()
    parts = {path.name for path in (output / "hops").iterdir()}
    again = run_stream(spark, came.folder, output)
    assert (again.records, again.hops, again.quarantined) == (summary.records, summary.hops, summary.quarantined)
    assert {path.name for path in (output / "hops").iterdir()} == parts  # without new files no table is written


def test_the_windows_of_a_run_are_equal_if_read_with_or_without_spark(
    spark: SparkSession, batch: tuple[Summary, Path]
) -> None:
    _, output = batch
    found = read_run(output)
    assert found.window_s == WINDOW_S
    for name, rows in (("features", found.features), ("shares", found.shares)):
        expected = table(spark, output, name)
        by = ["window", *(column for column in ("task", "stream", "source", "target") if column in expected)]
        own = rows.to_pandas().sort_values(by, ignore_index=True)
        expected = expected[list(own.columns)].sort_values(by, ignore_index=True)
        pd.testing.assert_frame_equal(own, expected, check_dtype=False)


def test_a_followed_folder_has_tables_after_each_micro_batch(
    spark: SparkSession, truth: Synthetic, tmp_path: Path
) -> None:
    followed, output = tmp_path / "came", tmp_path / "tables"
    write_records(_made(followed) / "a.parquet", [row for row in truth.records if row["worker"] != "m1"])
    seen: list[int] = []

    def step(reported: str) -> None:
        if reported == "published" and (output / "hops").exists():
            seen.append(read_table(spark, output, "hops").count())
            write_records(followed / "b.parquet", [row for row in truth.records if row["worker"] == "m1"])
            if len(seen) == 3:
                raise Killed(reported)

    with pytest.raises(Killed):
        run_pipeline(spark, followed, output, window_s=0.5, follow=True, step=step)
    here = sum(hop["worker"] != "m1" for hop in truth.hops)
    assert 0 < here < len(truth.hops)
    assert seen == [here, here, len(truth.hops)]  # the second: its records are ingested, its tables not written yet


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


ODD, LIKE_ODD = "a [1] {b,c} *?\\ %20", "a 1 b x %20"  # a pattern that the other fits, and Spark's readers would take


@pytest.mark.parametrize("stream", [False, True])
def test_names_that_look_like_patterns_are_literal(
    spark: SparkSession, truth: Synthetic, tmp_path: Path, stream: bool
) -> None:
    run = truth.write(tmp_path / ODD / "r[1]")
    (run / "telemetry" / "m0-0.parquet").rename(run / "telemetry" / f"m0 {ODD}.parquet")
    other = _made(_made(_made(tmp_path / LIKE_ODD) / "r1") / "telemetry")
    write_records(other / "m0-0.parquet", [row | {"run": "another"} for row in truth.records])
    reported, output = run.parent if stream else run, tmp_path / f"tables of {ODD}"
    summary = run_pipeline(spark, reported, output, window_s=WINDOW_S, stream=stream)
    assert (summary.runs, summary.records, summary.quarantined) == (1, len(truth.records), {})
    assert (summary.hops, summary.tuples) == (len(truth.hops), len(truth.roots))
    if stream:
        again = run_pipeline(spark, reported, output, window_s=WINDOW_S, stream=True)
        assert (again.records, again.hops) == (summary.records, summary.hops)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((ODD, LIKE_ODD, output.name))


@pytest.mark.parametrize("stream", [False, True])
def test_quarantines_times_that_no_window_can_have(
    spark: SparkSession, truth: Synthetic, tmp_path: Path, stream: bool
) -> None:
    run = truth.write(tmp_path / "run")
    task = next(row for row in truth.records if row["kind"] == "task")
    hop = next(row for row in truth.records if row["kind"] == "hop")
    wild = [
        *(task | {"at": at} for at in (3e9, -3e9)),
        task | {"task": "split[7]", "interval": 3e9},
        hop | {"id": 5, "started": 3.2e9, "finished": 3.3e9},
    ]
    write_records(run / "telemetry" / "m9-wild.parquet", wild)
    output = tmp_path / "tables"
    summary = run_pipeline(spark, run, output, window_s=0.5, stream=stream)
    assert (summary.records, summary.quarantined) == (len(truth.records), {FAR: len(wild)})
    assert table(spark, output, "features")["window"].between(0, 2 * END_S + 1).all()


def test_a_stream_without_files_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    wanted = Manifest(mode="stream", input=str(tmp_path), window_s=WINDOW_S, lateness_s=LATENESS_S)
    job = _Job(spark, Store(spark, tmp_path / "tables"), wanted, Killer())
    with pytest.raises(FileProblem, match="the stream found no telemetry there; run it as a batch"):
        job.run_stream(str(_made(tmp_path / "rotated away")), FILES, follow=False)


def test_reports_colons_before_taking_files(spark: SparkSession, tmp_path: Path) -> None:
    folder = _made(_made(tmp_path / "runs") / "14:25") / "telemetry"
    (_made(folder) / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        FileProblem, match=r"14:25: Spark cannot follow a folder of runs if a name contains a colon; rename"
    ):
        run_pipeline(spark, tmp_path / "runs", tmp_path / "tables", stream=True)
    with pytest.raises(FileProblem, match=r"14:25\[1\]: Spark cannot read a path with a colon and one of"):
        run_pipeline(spark, tmp_path / "runs", tmp_path / "14:25[1]")
    assert not list((tmp_path / "tables").glob("records*"))


def test_a_killed_batch_leaves_the_previous_tables(
    spark: SparkSession, came: Spoilt, batch: tuple[Summary, Path]
) -> None:
    _, output = batch
    before = table(spark, output, "task_windows")
    with pytest.raises(Killed, match="making tuples"):
        run_pipeline(spark, came.folder, output, window_s=2.0, step=_at("making tuples"))
    pd.testing.assert_frame_equal(table(spark, output, "task_windows"), before)


def _at(name: str) -> Killer:
    class At(Killer):
        def __call__(self, step: str) -> None:
            if step == name:
                raise Killed(step)

    return At()


def test_rejects_inputs_that_do_not_match_the_tables(
    spark: SparkSession, came: Spoilt, batch: tuple[Summary, Path], tmp_path: Path
) -> None:
    _, output = batch
    with pytest.raises(FileProblem, match="contains the tables of a batch; use another folder for a stream"):
        run_stream(spark, came.folder, output)
    with pytest.raises(InvalidInput, match="window: expected seconds > 0, got 0"):
        run_pipeline(spark, came.folder, output, window_s=0)
    with pytest.raises(FileProblem, match="contains no telemetry"):
        run_pipeline(spark, tmp_path, tmp_path / "out", stream=True)
    with pytest.raises(FileProblem, match=r"tables cannot be written to .*, which is read"):
        run_pipeline(spark, came.folder, came.folder / "tables")
    with pytest.raises(FileProblem, match="contains no tables; create them with: penstock models tables"):
        read_table(spark, tmp_path, "hops")
    with pytest.raises(
        UnknownName, match="table: there is no 'hop'; choose from arrivals, edge_windows, features, hops"
    ):
        read_table(spark, output, "hop")
