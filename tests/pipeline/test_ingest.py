"""Valid records are processed; invalid ones are quarantined with the reason."""

import math
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.model.errors import PenstockError
from penstock.model.telemetry import Record
from penstock.pipeline.hops import hops
from penstock.pipeline.ingest import ingest, read_telemetry, record_schema
from tests.pipeline.conftest import Steps
from tests.pipeline.synthetic import Row, Synthetic, write_records

pytestmark = pytest.mark.spark

HOP: Row = {
    "root": 1, "id": 2, "parent": 1, "stream": "a->b", "source": "a[0]", "task": "b[0]", "source_worker": "m0",
    "source_incarnation": 0, "emitted": 1.0, "sent": 1.1, "arrived": 1.2, "started": 1.3, "finished": 1.4, "bytes": 5,
}  # fmt: skip
TASK: Row = {"task": "b[0]", "interval": 1.0, "processed": 3, "given": 3, "queue": 0, "busy": 0.1}
ROOT: Row = {"root": 1, "id": 1, "task": "a[0]", "due": 1.0, "emitted": 1.0}

BAD: dict[str, tuple[str, Row, Row]] = {
    "no kind": ("hop", HOP, {"kind": None}),
    "unknown kind rumour": ("rumour", {}, {}),
    "version 3": ("hop", HOP, {"version": 3}),
    "version none": ("hop", HOP, {"version": None}),
    "worker is missing": ("hop", HOP, {"worker": None}),
    "hop without sent": ("hop", HOP, {"sent": None}),
    "root without due": ("root", ROOT, {"due": None}),
    "done without finished": ("done", {"root": 1, "due": 1.0}, {}),
    "task without processed": ("task", TASK, {"processed": None}),
    "machine without busy": ("machine", {"interval": 1.0}, {}),
    "clock without drift": ("clock", {"offset": 1.0}, {}),
    "event without event": ("event", {}, {}),
    "at is not a finite number": ("hop", HOP, {"at": math.nan}),
    "due is not a finite number": ("root", ROOT, {"due": math.inf}),
    "offset is not a finite number": ("clock", {"offset": -math.inf, "drift": 0.0}, {}),
    "sent before emitted": ("hop", HOP, {"sent": 0.999}),
    "started before arrived": ("hop", HOP, {"started": 1.1999}),
    "finished before started": ("hop", HOP, {"finished": 1.29999}),
    "queue is negative": ("task", TASK, {"queue": -1}),
    "bytes is negative": ("hop", HOP, {"bytes": -5}),
    "interval is negative": ("task", TASK, {"interval": -1.0}),
    "due is too large": ("root", ROOT, {"due": -1e300}),
    "at is too large": ("task", TASK, {"at": 1e12}),
    "drift is too large": ("clock", {"offset": 1.0, "drift": 1e308}, {}),
    "processed is too large": ("task", TASK, {"processed": 2**63 - 1}),
    "given is negative": ("task", TASK, {"given": -(2**63)}),
    "incarnation is negative": ("task", TASK, {"incarnation": -(2**63)}),
    "bytes is too large": ("hop", HOP, {"bytes": 2**62}),
    "interval is too short": ("task", TASK, {"interval": 1e-320}),
}


def row(kind: str, columns: Row, change: Row) -> Row:
    record = Record(kind=kind, run="r", worker="m0", at=2.0, **columns)
    return msgspec.structs.asdict(record) | change


def test_each_kind_of_bad_record_is_kept_whole_with_its_reason(spark: SparkSession) -> None:
    rows = [row(*case) | {"epoch": number} for number, case in enumerate(BAD.values())]
    other_clock = {"sent": 9.0, "arrived": 2.0, "started": 2.0, "finished": 2.0}
    hops_that_are_fine = [row("hop", HOP, change) for change in ({}, {"finished": 1.3 - 1e-7}, other_clock)]
    fine = [*hops_that_are_fine, row("task", TASK, {}), row("root", ROOT, {})]
    names = record_schema().names
    raw = spark.createDataFrame([tuple(each[name] for name in names) for each in rows + fine], record_schema())
    good, quarantined = ingest(raw)
    assert good.count() == len(fine)
    assert quarantined.columns == [*names, "reason"]
    found = {each["epoch"]: each for each in quarantined.collect()}
    assert [found[number]["reason"] for number in range(len(BAD))] == list(BAD)
    assert found[5]["task"] == "b[0]"
    assert found[5]["finished"] == 1.4


def test_converts_cores_of_version_1_to_shares(spark: SparkSession) -> None:
    machine = {"interval": 1.0, "busy": 2.0, "lag": 0.0, "memory_mb": 1.0, "capacity_cpu": 8.0, "capacity_mb": 9.0}
    reported: tuple[Row, ...] = ({"version": 1}, {}, {"version": 1, "emulated": True})
    rows = [row("machine", machine, change | {"epoch": number}) for number, change in enumerate(reported)]
    rows.append(row("task", TASK, {"version": 1, "epoch": 3}))
    names = record_schema().names
    raw = spark.createDataFrame([tuple(each[name] for name in names) for each in rows], record_schema())
    good = ingest(raw).good.orderBy("epoch").collect()
    assert [each["busy"] for each in good] == [2.0 / 8.0, 2.0, 2.0, TASK["busy"]]


def test_all_records_of_a_sound_run_are_good(made: Steps, truth: Synthetic) -> None:
    assert made.quarantined.count() == 0
    assert made.good.count() == len(truth.records)


def test_reports_unreadable_files_and_reads_the_others(spark: SparkSession, tmp_path: Path) -> None:
    sound = [row("hop", HOP, {})]
    write_records(tmp_path / "a.parquet", sound)
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "truncated.parquet").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.parquet").write_text("root,id\n1,2\n")
    (tmp_path / "empty.parquet").write_bytes(b"")
    (tmp_path / "_half.parquet").write_bytes(whole[:100])
    (tmp_path / "14:25.parquet").write_bytes(whole)
    spoilt = bytearray(whole)
    spoilt[4:300] = bytes(296)
    (tmp_path / "pages.parquet").write_bytes(spoilt)
    pq.write_table(pa.table({"kind": ["hop"], "root": ["seven"]}), tmp_path / "types.parquet")
    pq.write_table(pa.table({"kind": ["hop"], "root": [[7]]}), tmp_path / "nested.parquet")
    records, unreadable = read_telemetry(spark, tmp_path)
    assert [each["root"] for each in records.collect()] == [1]
    reasons = sorted(each["reason"] for each in unreadable.collect())
    names = ["14:25", "empty", "nested", "pages", "text", "truncated", "types"]
    assert [reason.split(" unreadable: ")[0] for reason in reasons] == [f"file {name}.parquet" for name in names]
    assert reasons[0].endswith("Spark reads no file with a colon in its name")
    assert reasons[-1].endswith("column root is string, expected int64")
    assert unreadable.columns == [*record_schema().names, "reason"]


def test_a_column_that_a_file_lacks_is_missing_from_its_records(spark: SparkSession, tmp_path: Path) -> None:
    kept: dict[str, Any] = row("event", {"event": "start"}, {})
    del kept["detail"], kept["worker"]
    pq.write_table(pa.Table.from_pylist([{k: v for k, v in kept.items() if v is not None}]), tmp_path / "a.parquet")
    good, quarantined = ingest(read_telemetry(spark, tmp_path).good)
    assert good.count() == 0
    assert [each["reason"] for each in quarantined.collect()] == ["worker is missing"]


def test_a_folder_without_telemetry_is_rejected_with_a_remedy(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "_temporary.parquet").write_bytes(b"")
    with pytest.raises(PenstockError, match=r"contains no telemetry \(\*\.parquet\); use another folder"):
        read_telemetry(spark, tmp_path)
    with pytest.raises(PenstockError, match="is not a folder"):
        read_telemetry(spark, tmp_path / "nowhere")


def test_ingest_and_hops_give_the_same_from_a_stream(
    spark: SparkSession, run: Path, made: Steps, tmp_path: Path
) -> None:
    stream = spark.readStream.schema(record_schema()).parquet(str(run / "telemetry"))
    query = (
        hops(ingest(stream).good, made.clocks)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "hops"))
    )
    assert query.awaitTermination(120)
    streamed = spark.read.parquet(str(tmp_path / "hops"))
    columns = ["id", "finished", "transfer", "processing"]
    assert sorted(map(tuple, streamed.select(columns).collect())) == sorted(
        map(tuple, made.hops.select(columns).collect())
    )
