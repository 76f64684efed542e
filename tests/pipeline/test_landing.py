"""Streams that land as files, on one embedded session."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.api.contracts import TaskContext
from penstock.api.sources.landed import Landed, batch_name
from penstock.model.errors import FileProblem
from penstock.pipeline.landing import finish_landing, land

pytestmark = pytest.mark.spark


def drop(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def files_of(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("word string, size int").option("maxFilesPerTrigger", 1).json(str(folder))


def landed(folder: Path) -> dict[str, list[Any]]:
    return {
        file.name: [json.loads(line) for line in file.read_text().splitlines()] for file in folder.glob("batch-*.jsonl")
    }


def read(folder: Path) -> list[Any]:
    """Return the tuples that the source of landed batches reads from a finished folder."""
    source, rows = Landed(folder), []
    source.open(TaskContext("landed", 0, 1))
    for turn in range(100):
        came = source.poll(float(turn), 10)
        if came is None:
            break
        rows.extend(came)
    source.close()
    return rows


def run(stream: DataFrame, folder: Path) -> None:
    query = land(stream, folder)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_every_batch_becomes_a_file_and_no_row_lands_twice(spark: SparkSession, tmp_path: Path) -> None:
    came, folder = tmp_path / "came", tmp_path / "landed"
    first: list[dict[str, Any]] = [{"word": "wätër", "size": 1}, {"word": None, "size": 2}]
    drop(came, "a.json", first)
    stream = files_of(spark, came)
    run(stream, folder)
    assert landed(folder) == {"batch-000000000000.jsonl": first}
    # As after a stop between the file's rename and Spark's commit: the batch is handed over again.
    (folder / "_checkpoint" / "commits" / "0").unlink()
    (folder / "_checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    written = (folder / batch_name(0)).stat().st_mtime_ns
    drop(came, "b.json", [{"word": "more", "size": 3}])
    run(stream, folder)
    assert landed(folder) == {batch_name(0): first, batch_name(1): [{"word": "more", "size": 3}]}
    assert (folder / batch_name(0)).stat().st_mtime_ns == written
    finish_landing(folder)
    assert sorted(file.name for file in folder.iterdir()) == ["_END", "_checkpoint", batch_name(0), batch_name(1)]
    with pytest.raises(FileProblem, match="this landing is complete"):
        land(stream, folder)
    assert read(folder) == [*first, {"word": "more", "size": 3}]


def test_an_incomplete_batch_is_written_again(spark: SparkSession, tmp_path: Path) -> None:
    came, folder = tmp_path / "came", tmp_path / "landed"
    drop(came, "a.json", [{"word": "whole", "size": 1}])
    folder.mkdir()
    (folder / f"_{batch_name(0)}.part").write_text('{"word": "ha')
    run(files_of(spark, came), folder)
    assert landed(folder) == {batch_name(0): [{"word": "whole", "size": 1}]}


def test_batches_without_their_checkpoint_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    came, folder = tmp_path / "came", tmp_path / "landed"
    drop(came, "a.json", [{"word": "old", "size": 1}])
    stream = files_of(spark, came)
    run(stream, folder)
    shutil.rmtree(folder / "_checkpoint")
    with pytest.raises(FileProblem, match="contains batches but not their _checkpoint"):
        land(stream, folder)
