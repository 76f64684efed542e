"""Run live cases one after another in the driver, because each needs the whole host."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from penstock.pipeline.session import running_session, session
from penstock.runtime.spark.executors import embedded_master, spark_settings

Tell = Callable[[str], None]
"""Called with the progress of a case."""

MOST_MACHINES = 10  # maximum number of machines that a case emulates


def silent(_: str) -> None:
    """Ignore the progress."""


@contextmanager
def live_session(master: str | None = None) -> Iterator[SparkSession]:
    """Return the running session, or start one with room for the machines of any case and for the pipeline."""
    if (running := running_session()) is not None:
        yield running
        return
    settings = spark_settings(MOST_MACHINES, master is None)
    with session("live", master or embedded_master(MOST_MACHINES), settings=settings) as spark:
        yield spark


def temporary() -> TemporaryDirectory[str]:
    """Return a temporary folder for runs that are not kept."""
    return TemporaryDirectory(prefix="penstock-live-")
