"""Accuracy of latency models on windows, as defined by Li (§2.3.2): 1 - |Pred - Act| / Act, window by window.

Act is the mean time of tuples in a window: at a component, over a stream, or over the whole application. Pred is the
same mean of the predictions for its tasks or pairs; for the application, the longest path (2.5). The application is
compared with two measures: the longest path of the measured means, and the mean time until all descendants of a source
tuple were processed. The latter is longer if one tuple becomes many, because the last of them counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from penstock.estimate.latency_models import LatencyModels, ModelSet, pack_regressor, unpack_regressor
from penstock.estimate.paths import Graph, longest_path
from penstock.model.errors import FileProblem, InvalidInput
from penstock.pipeline.small_tables import partitions_for
from penstock.pipeline.training import files_of, find_origins, group_rows, labelled_rows, read_windows, window_of
from penstock.pipeline.windows import find_tuple_starts, in_windows

OVERALL, TREES = "paths", "trees"

_SCHEMA = "of string, name string, at int, tuples double, measured double, predicted array<double>"

Key = tuple[str, str]
"""What a time belongs to: component, stream or overall; and its name."""


class Compared(NamedTuple):
    """Measurements and the predictions of each set of models, window by window."""

    of: str  # component, stream, overall
    name: str
    measured: list[float]
    predicted: dict[str, list[float]]  # by set: model, linear, mean

    def accuracy(self, which: str = "model") -> float:
        """Return the mean accuracy over the windows."""
        measured, predicted = np.array(self.measured), np.array(self.predicted[which])
        return float(np.mean(1.0 - np.abs(predicted - measured) / measured))


class Comparison(NamedTuple):
    """Accuracy of models on tables."""

    rows: list[Compared]
    in_sample: list[str]  # runs that the models were trained on


def evaluate_latency(
    spark: SparkSession,
    tables: str | Path,
    models: LatencyModels,
    *,
    in_sample: bool = False,
    step: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Compare models with the tables of a pipeline's output folder: components, streams, then the application.

    in_sample: also accept runs that the models were trained on, where they look better than they are; by default, such
    runs are rejected. step: called with the name of each step.
    """
    step("reading windows")
    with partitions_for(spark, files_of(tables)):
        return _comparison(spark, tables, models, in_sample, step)


def _comparison(
    spark: SparkSession, tables: str | Path, models: LatencyModels, in_sample: bool, step: Callable[[str], None]
) -> Comparison:
    sets: dict[str, ModelSet] = {"model": models, **models.beside}
    rows = labelled_rows(spark, tables).cache()
    seen = find_origins(rows)
    if not seen.groups:
        raise FileProblem(f"{tables}: its windows have no tuples to compare with; record a longer run")
    _check(models, seen.groups)
    known = [run for run, digest in seen.runs.items() if models.runs.get(run) == digest]
    if known and not in_sample:
        problem = f"the model was trained on {len(known)} of its {len(seen.runs)} runs, such as {known[0]!r}"
        raise InvalidInput("tables", f"{problem}; use tables of other runs, or --in-sample to compare anyway")
    step(f"comparing {len(seen.groups)} components and streams")
    packed = [_packed(one) for one in sets.values()]

    def compare_group(table: pa.Table) -> pa.Table:  # Spark reads its annotations
        return _compare_group(packed, table)

    made = rows.groupBy("of", "name").applyInArrow(compare_group, _SCHEMA).collect()
    numbered = rows.select("run", "window", "at").distinct().collect()
    rows.unpersist()
    windows: dict[Key, dict[int, list[float]]] = {}
    for row in made:
        windows.setdefault((row["of"], row["name"]), {})[row["at"]] = [row["measured"], *row["predicted"]]
    compared = [_compared(key, list(times.values()), list(sets)) for key, times in sorted(windows.items())]
    paths = _overall(windows, len(sets))
    if not paths:
        problem = "no window has tuples at every component, so the application cannot be compared"
        raise FileProblem(f"{tables}: {problem}; record a longer run or sample more tuples")
    compared.append(_compared(("overall", OVERALL), list(paths.values()), list(sets)))
    whole = _trees(spark, tables)
    numbers = {(row["run"], row["window"]): row["at"] for row in numbered}
    both = [[whole[key], *paths[at][1:]] for key, at in sorted(numbers.items()) if key in whole and at in paths]
    return Comparison([*compared, *([_compared(("overall", TREES), both, list(sets))] if both else [])], known)


def _check(models: ModelSet, found: set[Key]) -> None:
    """Reject tables with a component or stream that the models do not know."""
    for of, name in sorted(found):
        known = models.components if of == "component" else models.streams
        if name not in known:
            problem = f"it has no {of} {name!r}, which is in the tables; use tables of the model's application"
            raise InvalidInput("model", problem)


def _compared(key: Key, rows: Sequence[Sequence[float]], sets: Sequence[str]) -> Compared:
    columns = list(zip(*rows, strict=True))
    return Compared(*key, list(columns[0]), {name: list(columns[i + 1]) for i, name in enumerate(sets)})


def _packed(one: ModelSet) -> dict[Key, bytes]:
    made = {("component", name): pack_regressor(regressor) for name, regressor in one.components.items()}
    return made | {("stream", name): pack_regressor(regressor) for name, regressor in one.streams.items()}


def _compare_group(packed: Sequence[Mapping[Key, bytes]], table: pa.Table) -> pa.Table:
    """Return one row per window: the mean measured and predicted times, weighted by tuples (2.2), (2.3)."""
    key = (table["of"][0].as_py(), table["name"][0].as_py())
    rows = group_rows(table)
    known, window = np.unique(rows.windows, return_inverse=True)
    tuples = np.bincount(window, rows.counts)

    def mean(values: "np.typing.NDArray[np.float64]") -> "np.typing.NDArray[np.float64]":
        return np.bincount(window, rows.counts * values) / tuples

    predicted = [mean(unpack_regressor(one[key]).predict(rows.features)) for one in packed]
    return pa.table(
        {
            "of": [key[0]] * len(known),
            "name": [key[1]] * len(known),
            "at": pa.array(known.astype(np.int32)),
            "tuples": tuples,
            "measured": mean(rows.labels),
            "predicted": pa.array(np.column_stack(predicted).tolist(), pa.list_(pa.float64())),
        }
    )


def _overall(windows: Mapping[Key, Mapping[int, Sequence[float]]], sets: int) -> dict[int, list[float]]:
    """Return the longest path (2.5) of measured and of predicted times, by window."""
    times: dict[int, dict[Key, Sequence[float]]] = {}
    for key, rows in windows.items():
        for at, row in rows.items():
            times.setdefault(at, {})[key] = row
    return {at: list(_longest(found, sets)) for at, found in sorted(times.items()) if _whole(found)}


def _whole(found: Mapping[Key, Sequence[float]]) -> bool:
    """Whether a window has a stream at all, and every component that its streams lead to."""
    ends = {name.partition("->")[2] for of, name in found if of == "stream"}
    return bool(ends) and all(("component", name) in found for name in ends)


def _longest(found: Mapping[Key, Sequence[float]], sets: int) -> Iterator[float]:
    ends = [tuple(name.split("->", 1)) for of, name in found if of == "stream"]
    after: dict[str, set[str]] = {}
    for source, target in ends:
        after.setdefault(target, set()).add(source)
        after.setdefault(source, set())
    order = list(TopologicalSorter(after).static_order())
    number = {name: position for position, name in enumerate(order)}
    streams = sorted((number[source], number[target]) for source, target in ends)
    sources = tuple(number[name] for name in order if not after[name])
    graph = Graph(len(order), tuple(streams), sources)
    for column in range(sets + 1):
        processing = [found[key][column] if (key := ("component", name)) in found else 0.0 for name in order]
        transfer = [found["stream", f"{order[a]}->{order[b]}"][column] for a, b in streams]
        yield longest_path(graph, processing, transfer).seconds


def _trees(spark: SparkSession, tables: str | Path) -> dict[tuple[str, int], float]:
    """Return the mean latency of the source tuples that were due in each window, by run; empty without that table."""
    if not (Path(tables) / "tuples").exists():
        return {}
    tuples = read_windows(spark, tables, "tuples")
    done = tuples.where("complete and latency > 0")
    placed = in_windows(done, "due", find_tuple_starts(tuples), window_of(tables))
    means = placed.groupBy("run", "window").agg(sf.avg("latency").alias("mean")).collect()
    return {(row["run"], row["window"]): row["mean"] for row in means}
