"""The Spark session that hosts the workers of runs: one per process, for all of its runs, sized by the first.

It ends with the last run that has workers in it, whichever run started it. A program opens one up front to reserve room
for runs that start later:

    with ps.session(workers=8):
        first = ps.run(flow, emulate=cluster)
        second = ps.run(other, emulate=cluster)
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.model.errors import InvalidInput
from penstock.pipeline.session import common_session, running_session
from penstock.runtime.spark.executors import embedded_master, spark_settings


@contextmanager
def session(workers: int, master: str | None = None, *, folder: Path | str | None = None) -> Iterator[SparkSession]:
    """Open a Spark session with room for a number of workers, of all runs together; the runs must end before it.

    A worker is an emulated machine, or a slot if nothing is emulated. master: a Spark master's URL; default: embedded.
    folder: where its files go, and stay; default: they are temporary. If this process has a session, it is used.
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidInput("workers", f"expected a whole number ≥ 1, got {workers!r}")
    with ExitStack() as stack:
        yield open_session(stack, "session", master, workers, None if folder is None else Path(folder))


def open_session(stack: ExitStack, name: str, master: str | None, workers: int, folder: Path | None) -> SparkSession:
    """Return a session with room for a number of workers: the one that is running, an embedded one, or the master's.

    It stays open until the stack and all other users have closed it.
    """
    embedded = master is None
    url = embedded_master(workers) if embedded and running_session() is None else master
    settings = spark_settings(workers, embedded)
    return stack.enter_context(common_session(name, url, settings=settings, folder=folder))
