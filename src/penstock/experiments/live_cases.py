"""Run live cases: one after another, in the driver, as each has the whole host for itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from penstock.pipeline.session import running_session, session
from penstock.runtime.spark.executors import embedded_master, spark_settings

Tell = Callable[[str], None]
"""Hears what is being done."""

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


def temporary() -> TemporaryDirectory[str]:
    """Return a folder for runs of which nothing is kept."""
    return TemporaryDirectory(prefix="penstock-live-")
