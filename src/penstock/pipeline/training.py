"""Train latency models on the pipeline's windows: every component and every stream at once, one Spark group each.

The rows are those of `task_windows` and `edge_windows`; a group's rows go to one Python process as an Arrow table,
which returns a regression. A mean predictor and a linear model are fitted to the same rows for comparison. For each
component and stream, the best of the three in cross-validation is kept, unless one kind is requested.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.estimate.latency_models import LatencyModels, ModelSet, pack_regressor, unpack_regressor
from penstock.model.decoding import decode_json
from penstock.model.errors import FileProblem
from penstock.model.features import CAPACITIES, EDGE_FEATURES, EDGE_WINDOW, TASK_FEATURES, TASK_WINDOW, WINDOW_S
from penstock.pipeline.fitting import KINDS, Rows, Wanted, fit
from penstock.pipeline.manifest import MANIFEST, read_manifest
from penstock.pipeline.patterns import literal
from penstock.pipeline.small_tables import collect_tables, partitions_for
from penstock.pipeline.store import read_table

BEST: Literal["best"] = "best"
Kept = Wanted | Literal["best"]
BESIDE: tuple[Wanted, ...] = ("linear", "mean")
COLUMNS = {"task_windows": TASK_WINDOW, "edge_windows": EDGE_WINDOW}

_SCHEMA = """of string, name string, rows long, placements long, kind string, parameters string, accuracy double,
    beside string, model binary, linear binary, mean binary"""


class TrainingResult(NamedTuple):
    """Result of training the regression of a component or stream."""

    of: str  # component or stream
    name: str
    kind: str
    parameters: dict[str, Any]
    rows: int
    placements: int
    accuracy: float | None  # cross-validated, of a window's mean
    beside: dict[str, float | None]  # the same for every kind that was fitted: svr, linear, mean
    vectors: int

    @property
    def better(self) -> str:
        """The kind that was better in cross-validation than the selected one; empty if there is none."""
        kinds = [kind for kind, found in self.beside.items() if found is not None]
        best = max(kinds, key=lambda kind: self.beside[kind] or 0.0, default="")
        return best if best and (self.accuracy is None or (self.beside[best] or 0.0) > self.accuracy) else ""


@dataclass(frozen=True, eq=False)
class Training:
    """Models and their training results: components, then streams, by name."""

    models: LatencyModels
    trained: list[TrainingResult]


def train_latency(
    spark: SparkSession,
    tables: str | Path,
    *,
    kind: Kept = BEST,
    application: str | None = None,
    seed: int = 0,
    step: Callable[[str], None] = lambda _: None,
) -> Training:
    """Fit latency models to the tables of a pipeline's output folder.

    kind: `best` selects the best kind in cross-validation for each component and stream. step: called with the name of
    each step.
    """
    step("reading windows")
    with partitions_for(spark, files_of(tables)):
        return _trained_on(spark, tables, kind, application, seed, step)


def _trained_on(
    spark: SparkSession,
    tables: str | Path,
    kind: Kept,
    application: str | None,
    seed: int,
    step: Callable[[str], None],
) -> Training:
    rows = labelled_rows(spark, tables).cache()
    seen = find_origins(rows)
    groups = len(seen.groups)
    if not groups:
        raise _nothing(spark, tables)
    step(f"fitting {groups} regressions")

    def fit_group(table: pa.Table) -> pa.Table:  # Spark reads its annotations
        return _fit_group(kind, seed, table)

    apart = rows.repartition(groups, "of", "name")  # without a number, Spark would use one task
    # By Arrow, not by pandas: a row's features are an array, which pandas stores as an object, while numpy reads all of
    # them from Arrow as one block of numbers.
    fitted = apart.groupBy("of", "name").applyInArrow(fit_group, _SCHEMA).collect()
    rows.unpersist()
    found = sorted(fitted, key=lambda row: (row["of"], row["name"]))
    named = application or _application(seen.runs, tables)
    parallelism, machines = _described(spark, tables)
    trained = [_trained(row) for row in found]
    sets = {which: _model_set(found, which) for which in ("model", *BESIDE)}
    main = sets.pop("model")
    models = LatencyModels(
        main.components,
        main.streams,
        application=named,
        parallelism=parallelism,
        machines=machines,
        runs=seen.runs,
        beside=sets,
        window_s=window_of(tables),
        notes={f"{one.of} {one.name}": {"accuracy": one.accuracy, "rows": one.rows} for one in trained},
    )
    return Training(models, trained)


class RowOrigins(NamedTuple):
    """What labelled rows belong to."""

    groups: set[tuple[str, str]]  # of, name
    runs: dict[str, str]  # by name, a digest of its measurements


def find_origins(rows: DataFrame) -> RowOrigins:
    """Return the components, streams and runs of labelled rows.

    A run's digest is the sum of its rows' hashes, with times rounded to a billionth of a millisecond: it does not
    depend on the order in which Spark adds them up.
    """
    measured = sf.xxhash64("of", "name", "window", "count", sf.round(sf.col("label") * 1e12))
    found = rows.groupBy("run", "of", "name").agg(sf.sum(measured.cast("decimal(38,0)")).alias("digest")).collect()
    digests: dict[str, int] = {}
    for row in found:
        digests[row["run"]] = digests.get(row["run"], 0) + int(row["digest"])
    return RowOrigins(
        {(row["of"], row["name"]) for row in found}, {run: f"{one:x}" for run, one in sorted(digests.items())}
    )


def _nothing(spark: SparkSession, tables: str | Path) -> FileProblem:
    """Return an error that explains why there are no rows to train on."""
    tasks = read_windows(spark, tables, "task_windows")
    if tasks.where("machine_cpu is null or machine_memory is null").isEmpty():
        return FileProblem(f"{tables}: its windows have no tuples to train on; record a longer run")
    problem = "its telemetry has no cores and memory of machines, it was made by an older version"
    return FileProblem(f"{tables}: {problem}; record another run")


def labelled_rows(spark: SparkSession, tables: str | Path) -> DataFrame:
    """Return one row per window and task or pair: of, name, window (its own number), place, count, label, features.

    Rows with an unknown feature are left out.
    """
    tasks, edges = read_windows(spark, tables, "task_windows"), read_windows(spark, tables, "edge_windows")
    both = _features(tasks, "component", TASK_FEATURES, "processing_s", "component").unionByName(
        _features(edges, "stream", EDGE_FEATURES, "transfer_s", "stream")
    )
    whole = both.where("label > 0 and count > 0 and not exists(features, x -> x is null or isnan(x))")
    return whole.join(sf.broadcast(_places(spark, tasks)), ["run", "window"])


def read_windows(spark: SparkSession, tables: str | Path, name: str) -> DataFrame:
    """Return a table of the pipeline, or one that stands alone as a Parquet folder with the same columns."""
    if (Path(tables) / MANIFEST).exists():
        return read_table(spark, Path(tables), name)
    try:
        found = spark.read.parquet(literal(Path(tables) / name)).withColumn("run", sf.col("run").cast("string"))
    except AnalysisException:
        problem = f"expected the output of penstock models tables, but there is no table {name}"
        raise FileProblem(f"{tables}: {problem}; choose another folder") from None
    if missing := [column for column in COLUMNS.get(name, ()) if column not in found.columns]:
        problem = f"table {name} has no column {missing[0]}, it was made by an older version"
        raise FileProblem(f"{tables}: {problem}; run the pipeline again into another folder")
    return found


def files_of(tables: str | Path) -> list[Path]:
    """Return the files of the tables' windows."""
    return [path for path in Path(tables).glob("*_windows/**/*.parquet") if path.is_file()]


def window_of(tables: str | Path) -> float:
    """Return the length of the tables' windows in seconds; the default for tables without a manifest."""
    manifest = read_manifest(Path(tables))
    return WINDOW_S if manifest is None else manifest.window_s


def _features(rows: DataFrame, of: str, names: tuple[str, ...], label: str, column: str) -> DataFrame:
    features = sf.array(*(sf.col(name).cast("double") for name in names))
    return rows.select(
        "run", "window", sf.lit(of).alias("of"), sf.col(column).alias("name"),
        sf.col("count").cast("double").alias("count"), sf.col(label).alias("label"), features.alias("features"),
    )  # fmt: skip


def _places(spark: SparkSession, tasks: DataFrame) -> DataFrame:
    """Return one row per run and window: its number in time, and the number of the placement in force."""
    seen = tasks.select("run", "window", "task", "machine").distinct().collect()
    numbered = placements((row["run"], row["window"], row["task"], row["machine"]) for row in seen)
    rows = [(run, window, at, place) for at, ((run, window), place) in enumerate(numbered.items())]
    return spark.createDataFrame(rows, "run string, window int, at int, place int")


def placements(seen: Iterable[tuple[str, int, str, str]]) -> dict[tuple[str, int], int]:
    """Number the placements of runs: from (run, window, task, machine) to run and window, in order, with the number.

    A task without a row in a window is where it was before; equal placements have one number, also in different runs.
    """
    windows: dict[tuple[str, int], dict[str, str]] = {}
    for run, window, task, machine in sorted(seen):
        windows.setdefault((run, window), {})[task] = machine
    phase: dict[str, str] = {}
    phases: list[dict[str, str]] = []
    of: dict[tuple[str, int], int] = {}
    before = None
    for (run, window), here in windows.items():
        if run != before or any(phase.get(task, machine) != machine for task, machine in here.items()):
            phase = {} if run != before else {**phase, **here}
            phases.append(phase)
        before = run
        phase.update(here)
        of[run, window] = len(phases) - 1
    numbers: dict[tuple[tuple[str, str], ...], int] = {}
    keys = [tuple(sorted(phase.items())) for phase in phases]
    return {key: numbers.setdefault(keys[number], len(numbers)) for key, number in of.items()}


def group_rows(table: pa.Table) -> Rows:
    """Return a group's rows from an Arrow table, in an order that does not depend on Spark."""
    features = table["features"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    columns = [table[name].to_numpy() for name in ("label", "count", "place", "at")]
    wide = np.column_stack([np.asarray(features, dtype=np.float64).reshape(len(table), -1), *columns])
    wide = wide[np.lexsort(wide.T)]
    *_, label, count, place, at = wide.T
    names = TASK_FEATURES if table["of"][0].as_py() == "component" else EDGE_FEATURES
    unlimited = np.isin(names, CAPACITIES)
    return Rows(wide[:, :-4], label, count, place.astype(np.int32), at.astype(np.int32), unlimited)


def _fit_group(kind: Kept, seed: int, table: pa.Table) -> pa.Table:
    rows = group_rows(table)
    kinds = KINDS if kind == BEST else tuple(one for one in KINDS if one in (kind, *BESIDE))
    found = {one: fit(one, rows, seed) for one in kinds}
    accuracies = {name: one.accuracy for name, one in found.items()}
    main = found[max(kinds, key=lambda one: accuracies[one] or 0.0) if kind == BEST else kind]
    return pa.table(
        {
            "of": [table["of"][0].as_py()],
            "name": [table["name"][0].as_py()],
            "rows": [len(rows)],
            "placements": [len(np.unique(rows.places))],
            "kind": [main.candidate.kind],
            "parameters": [msgspec.json.encode(main.candidate.parameters()).decode()],
            "accuracy": pa.array([main.accuracy], pa.float64()),
            "beside": [msgspec.json.encode(accuracies).decode()],
            "model": [pack_regressor(main.regressor)],
            "linear": [pack_regressor(found["linear"].regressor)],
            "mean": [pack_regressor(found["mean"].regressor)],
        }
    )


def _trained(row: Any) -> TrainingResult:
    return TrainingResult(
        of=row["of"],
        name=row["name"],
        kind=row["kind"],
        parameters=decode_json(row["parameters"]),
        rows=row["rows"],
        placements=row["placements"],
        accuracy=row["accuracy"],
        beside=decode_json(row["beside"]),
        vectors=len(unpack_regressor(bytes(row["model"])).weights),
    )


def _model_set(rows: list[Any], which: str) -> ModelSet:
    made = {(row["of"], row["name"]): unpack_regressor(bytes(row[which])) for row in rows}
    return ModelSet(
        {name: one for (of, name), one in made.items() if of == "component"},
        {name: one for (of, name), one in made.items() if of == "stream"},
    )


def _described(spark: SparkSession, tables: str | Path) -> tuple[dict[str, int], dict[str, tuple[float, float]]]:
    """Return the number of tasks of every component, and the cpu and memory of every machine with tasks."""
    edges, tasks = read_windows(spark, tables, "edge_windows"), read_windows(spark, tables, "task_windows")
    ends = edges.select(sf.col("source").alias("task")).union(edges.select(sf.col("target").alias("task"))).distinct()
    has = (sf.max("machine_cpu").alias("cpu"), sf.max("machine_memory").alias("memory"))
    found = collect_tables({"ends": ends, "machines": tasks.groupBy("machine").agg(*has)})
    counted = Counter(re.sub(r"\[\d+\]$", "", row["task"]) for row in found["ends"].to_pylist())
    machines = {row["machine"]: (row["cpu"], row["memory"]) for row in found["machines"].to_pylist()}
    known = {name: both for name, both in sorted(machines.items()) if None not in both}
    return dict(sorted(counted.items())), known


def _application(runs: Iterable[str], tables: str | Path) -> str:
    """Return the common name of the runs, without the time."""
    named = {re.sub(r"-\d{8}-\d{6}.*$", "", run) for run in runs}
    return min(named) if len(named) == 1 else Path(tables).name
