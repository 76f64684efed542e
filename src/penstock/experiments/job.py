"""Run many cases as one Spark job and report its progress."""

from collections.abc import Callable, Iterator
from threading import Thread
from time import sleep

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

Run = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
Progress = Callable[[int, int], None]
"""Called with the number of finished cases and of all cases."""

MOST_PARTITIONS = 400
ASKED_EVERY_S = 0.2


def unheard(_done: int, _all: int) -> None:
    """Ignore the progress."""


def run_cases(
    spark: SparkSession, cases: pd.DataFrame, run: Run, schema: pa.Schema, on_progress: Progress = unheard
) -> DataFrame:
    """Run a function over all cases, a few per task; return its rows, cached, in no particular order."""
    parts = min(len(cases), MOST_PARTITIONS)
    results = spark.createDataFrame(cases).repartition(parts).mapInArrow(run, from_arrow_schema(schema)).cache()
    _materialise(spark, results, len(cases), parts, on_progress)
    return results


def _materialise(spark: SparkSession, results: DataFrame, total: int, parts: int, on_progress: Progress) -> None:
    """Compute a cached frame in the background while its finished tasks are counted."""
    failures: list[BaseException] = []

    def compute() -> None:
        try:
            results.count()
        except BaseException as error:
            failures.append(error)

    worker = Thread(target=compute, daemon=True)
    worker.start()
    while worker.is_alive():
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None and stage.numTasks == parts)
        on_progress(total * done // parts, total)
        sleep(ASKED_EVERY_S)
    if failures:
        raise failures[0]
    on_progress(total, total)
