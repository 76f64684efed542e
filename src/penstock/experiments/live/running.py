"""Run live cases: one after another, in the driver, as each has the whole host for itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.experiments.figure import Row
from penstock.experiments.live.measures import cell_rows, look
from penstock.experiments.live.trial import Tell, Trial, conduct, temporary
from penstock.pipeline.session import running_session, session
from penstock.runtime.spark.executors import embedded_master, spark_settings

MOST_MACHINES = 10  # that any case emulates


def silent(_: str) -> None:
    """Tell nobody."""


@contextmanager
def live_session(master: str | None = None) -> Iterator[SparkSession]:
    """Give the session that is running, or one with room for the machines of any case and for the pipeline."""
    if (running := running_session()) is not None:
        yield running
        return
    settings = spark_settings(MOST_MACHINES, master is None)
    with session("live", master or embedded_master(MOST_MACHINES), settings=settings) as spark:
        yield spark


def measured(trial: Trial, tell: Tell = silent, with_splits: bool = False) -> list[Row]:
    """Run a trial and return a row a choice and round, with what each split task took where that is wanted."""
    with live_session() as spark, temporary() as folder:
        conducted = conduct(trial, Path(folder), tell)
        tell("reading telemetry")
        seen = look(spark, conducted, trial, with_splits)
    return list(cell_rows(seen, conducted, trial))
