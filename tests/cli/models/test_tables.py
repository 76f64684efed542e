"""`penstock models tables`: what it prints, and what it refuses before Spark starts."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.job import read_table
from penstock.pipeline.session import session
from penstock.pipeline.store import locked
from penstock.runtime.storage.run_folder import create, mark_ended
from tests.conftest import Ran
from tests.pipeline.conftest import SMALL
from tests.pipeline.synthetic import Synthetic

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("tests", "local[2]", settings=SMALL) as made:
        yield made  # the command uses the session that there is


def test_the_tables_of_runs_below_a_folder_are_made(
    spark: SparkSession, penstock: Callable[..., Ran], tmp_path: Path
) -> None:
    truth = Synthetic()
    for name in ("007", "8 of 9"):
        truth.records = [record | {"run": name} for record in truth.records]
        truth.write(tmp_path / "runs" / name)
    command = ("models", "tables", "--input", tmp_path / "runs", "--output", tmp_path / "tables", "--window", 4)
    ran = penstock(*command, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["runs"] == 2
    assert (found["hops"], found["tuples"]) == (2 * len(truth.hops), 2 * len(truth.roots))
    assert (found["records"], found["quarantined"]) == (2 * len(truth.records), {})
    counts = read_table(spark, tmp_path / "tables", "task_windows").groupBy("run").count().collect()
    assert {row["run"]: row["count"] for row in counts} == dict.fromkeys(("007", "8 of 9"), found["task_windows"] / 2)


def test_a_stream_reports_its_tables_and_is_not_mixed_with_another(
    spark: SparkSession, penstock: Callable[..., Ran], tmp_path: Path
) -> None:
    truth = Synthetic()
    truth.records[0] = truth.records[0] | {"due": None}
    run = truth.write(tmp_path / "run")
    command = ("models", "tables", "--input", run, "--output", tmp_path / "tables", "--stream")
    ran = penstock(*command)
    assert ran.code == 0, ran.err
    lines = {line.rsplit(maxsplit=1)[0].strip(): line.rsplit(maxsplit=1)[-1] for line in ran.out.splitlines() if line}
    assert (lines["hops"], lines["quarantine"], lines["root without due"]) == (f"{len(truth.hops):,}", "1", "1")
    assert "seconds" in lines
    mixed = penstock(*command, "--window", 7)
    assert mixed.code == 2
    assert "was started with window_s 30.0, not 7.0; use that, or another folder" in mixed.err


def test_warns_of_an_exploration_that_has_not_ended(
    spark: SparkSession, penstock: Callable[..., Ran], tmp_path: Path
) -> None:
    explored, output = tmp_path / "explored", tmp_path / "tables"
    explored.mkdir()
    for number in range(2):
        (explored / f"explore-00{number}.parquet").write_bytes(b"PAR1")
    warning = (
        "has no placements.json, its exploration is running or was killed; only the 2 placements that it has written"
    )
    with locked(output):  # so that no tables need be made
        ran = penstock("models", "tables", "--input", explored, "--output", output)
        (explored / "placements.json").write_text("{}")
        whole = penstock("models", "tables", "--input", explored, "--output", output)
    assert warning in ran.err
    assert "another pipeline writes there" in whole.err
    assert warning not in whole.err


def test_a_run_is_found_by_its_name_or_as_the_latest(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    info = mark_ended(create("words", tmp_path / "runs"))
    for name in ("latest", info.run, info.path):
        command = ("models", "tables", "--input", name, "--runs", tmp_path / "runs", "--output", tmp_path / "tables")
        assert f"{info.telemetry_path}: contains no telemetry" in penstock(*command).err
    unknown = penstock("models", "tables", "--input", "lates", "--runs", tmp_path / "runs", "--output", tmp_path / "t")
    assert unknown.err.startswith("error: run: no run is named 'lates'; there are ")


def test_reports_invalid_input_in_one_line(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    nowhere = penstock("models", "tables", "--input", tmp_path / "nowhere", "--output", tmp_path / "tables")
    assert (nowhere.code, nowhere.err.count("\n")) == (2, 1)
    assert "run: no run is named" in nowhere.err
    empty = penstock("models", "tables", "--input", tmp_path, "--output", tmp_path / "tables")
    assert "contains no telemetry (*.parquet); use another folder" in empty.err
    window = penstock("models", "tables", "--input", tmp_path, "--output", tmp_path, "--window", 0)
    assert "window: expected seconds > 0, got 0" in window.err
    run = tmp_path / "run"
    (run / "telemetry").mkdir(parents=True)
    (run / "telemetry" / "w0.parquet").write_bytes(b"PAR1")
    for folder in (run, run / "telemetry", run / "tables", run / "telemetry" / ".." / "tables"):
        inside = penstock("models", "tables", "--input", run, "--output", folder)
        assert (inside.code, inside.err.count("\n")) == (2, 1)
        assert f"tables cannot be written to {run}, which is read; choose another folder" in inside.err
    assert sorted(path.name for path in run.iterdir()) == ["telemetry"]
    (tmp_path / "file").write_text("")
    taken = penstock("models", "tables", "--input", tmp_path, "--output", tmp_path / "file")
    assert "is not a folder; choose another --output" in taken.err
    master = penstock("models", "tables", "--input", tmp_path, "--output", tmp_path / "tables", "--master", "here")
    assert "master: expected local[n], spark://host:port, yarn or k8s://…, got 'here'" in master.err
    assert not (tmp_path / "tables").exists()
