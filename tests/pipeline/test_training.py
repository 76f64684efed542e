import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from penstock.estimate.latency_models import LatencyModels, load_models, save_models
from penstock.model.errors import FileProblem, InvalidInput
from penstock.pipeline.accuracy import evaluate_latency
from penstock.pipeline.training import Training, labelled_rows, train_latency
from tests.pipeline.latency_tables import MEMORY_MB, write_tables

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tables(tmp_path_factory.mktemp("tables") / "known", seed=0)


@pytest.fixture(scope="module")
def training(spark: SparkSession, tables: Path) -> Training:
    return train_latency(spark, tables)


def test_trains_a_model_for_every_component_and_stream(training: Training) -> None:
    models = training.models
    assert list(models.components) == ["out", "split"]
    assert list(models.streams) == ["in->split", "split->out"]
    assert set(models.beside) == {"linear", "mean"}
    assert models.application == "imaginary"
    assert models.parallelism == {"in": 2, "out": 2, "split": 3}
    assert {one.placements for one in training.trained} == {10}
    assert models.machines == {name: (1.0, memory) for name, memory in MEMORY_MB.items()}
    assert list(models.runs) == ["imaginary-20250101-000000"]


def test_predicts_placements_it_was_not_trained_on_better_than_the_mean_does(
    spark: SparkSession, training: Training, tmp_path: Path
) -> None:
    save_models(training.models, tmp_path / "models.npz")
    others = write_tables(tmp_path / "others", seed=1)
    compared = evaluate_latency(spark, others, load_models(tmp_path / "models.npz")).rows
    by_name = {one.name: one for one in compared}
    assert set(by_name) == {"out", "split", "in->split", "split->out", "paths", "trees"}
    for name in ("in->split", "split->out", "paths"):
        assert by_name[name].accuracy() > 0.85
        assert by_name[name].accuracy() > by_name[name].accuracy("mean")
    assert len(by_name["paths"].measured) == 30
    assert by_name["trees"].measured == pytest.approx([0.01] * 30)
    longest = [sum(by_name[n].measured[0] for n in ("in->split", "split", "split->out", "out"))]
    assert by_name["paths"].measured[0] == pytest.approx(longest[0])


def test_keeps_the_kind_that_cross_validation_finds_best(spark: SparkSession, training: Training, tables: Path) -> None:
    for one in training.trained:
        assert one.accuracy == max(found for found in one.beside.values() if found is not None)
        assert one.beside[one.kind.partition("-")[0]] == one.accuracy
        assert one.better == ""
    asked = train_latency(spark, tables, kind="mean").trained
    assert {one.kind for one in asked} == {"mean"}
    assert {one.name for one in asked if one.better == "linear"} >= {"in->split", "split->out"}


def test_notices_the_tables_that_it_was_trained_on(
    spark: SparkSession, training: Training, tables: Path, tmp_path: Path
) -> None:
    save_models(training.models, tmp_path / "models.npz")
    models = load_models(tmp_path / "models.npz")
    with pytest.raises(InvalidInput, match="tables: the model was trained on 1 of its 1 runs, such as 'imaginary-2025"):
        evaluate_latency(spark, tables, models)
    assert evaluate_latency(spark, tables, models, in_sample=True).in_sample == ["imaginary-20250101-000000"]
    others = write_tables(tmp_path / "others", seed=1)  # whose run has the same name
    assert evaluate_latency(spark, others, models).in_sample == []


def test_gives_the_same_models_for_the_same_seed(spark: SparkSession, tables: Path) -> None:
    first, again = (train_latency(spark, tables, kind="linear", seed=4).models for _ in range(2))
    rows = np.random.default_rng(0).random((5, 9)) * 100
    for name in first.streams:
        assert (first.streams[name].predict(rows) == again.streams[name].predict(rows)).all()
        assert first.streams[name].kind == "linear"


def test_rejects_missing_tables_or_those_of_another_application(
    spark: SparkSession, training: Training, tables: Path, tmp_path: Path
) -> None:
    with pytest.raises(FileProblem, match="penstock models tables"):
        train_latency(spark, tmp_path)
    fewer = LatencyModels({"out": training.models.components["out"]}, training.models.streams)
    with pytest.raises(InvalidInput, match="'split'"):
        evaluate_latency(spark, tables, fewer)


def test_tables_whose_name_looks_like_a_pattern_are_read(spark: SparkSession, tmp_path: Path) -> None:
    write_tables(tmp_path / "tables1", seed=0, places=2)
    own = write_tables(tmp_path / "tables[1]", seed=0, places=3)
    places = labelled_rows(spark, own).select("place").distinct().count()
    assert places == 3


def test_rejects_windows_without_machine_capacities(spark: SparkSession, tmp_path: Path) -> None:
    folder = write_tables(tmp_path / "before", seed=0, places=2)
    for name, column in (("task_windows", "machine_cpu"), ("edge_windows", "target_cpu")):
        path = folder / name / "part-0.parquet"
        table = pq.read_table(path)
        at = table.schema.get_field_index(column)
        pq.write_table(table.set_column(at, column, pa.nulls(len(table), pa.float64())), path)
    with pytest.raises(FileProblem, match="has no cores and memory of machines"):
        train_latency(spark, folder)
    pq.write_table(table.drop_columns("source_used_cpu"), path)
    with pytest.raises(FileProblem, match="edge_windows has no column source_used_cpu"):
        train_latency(spark, folder)


def test_whole_tuples_are_in_the_windows_of_the_tables(spark: SparkSession, training: Training, tmp_path: Path) -> None:
    """Windows are counted from when the first tuple was due, also one that was never complete, and are as long."""
    folder = write_tables(tmp_path / "tables", seed=1, places=2)
    run = "imaginary-20250101-000000"
    due = [(0.0, None), (29.9, 1.0), (30.1, 3.0), (59.9, 5.0)]
    rows = [{"run": run, "source": "in[0]", "due": t, "latency": s, "complete": s is not None} for t, s in due]
    pq.write_table(pa.Table.from_pylist(rows), folder / "tuples" / "part-0.parquet")
    other = dataclasses.replace(training.models, window_s=5.0)
    trees = next(one for one in evaluate_latency(spark, folder, other).rows if one.name == "trees")
    assert trees.measured == [1.0, 4.0]


def test_rejects_windows_of_which_none_contains_every_component(
    spark: SparkSession, training: Training, tmp_path: Path
) -> None:
    folder = write_tables(tmp_path / "tables", seed=1, places=2)
    path = folder / "task_windows" / "part-0.parquet"
    table = pq.ParquetFile(path).read()
    pq.write_table(table.filter([name != "out" for name in table["component"].to_pylist()]), path)
    with pytest.raises(FileProblem, match="no window has tuples at every component"):
        evaluate_latency(spark, folder, training.models)
