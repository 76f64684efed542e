"""The Spark session that runs have their workers in: one a process, for all of its runs, as large as the first asks.

Whichever run starts it, it goes on until the last that has workers in it has ended. So that there is room for runs that
are started later, a program has one up front:

    with ps.session(workers=8):
        first = ps.run(flow, emulate=cluster)
        second = ps.run(other, emulate=cluster)
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.model.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def session(workers: int, master: str | None = None, *, folder: Path | str | None = None) -> Iterator["SparkSession"]:
    """Have a Spark session with room for so many workers of all runs together; they have to end before it does.

    A worker is an emulated machine, or a slot where nothing is emulated. master: a Spark master's URL; None: embedded.
    folder: where its files go, to stay there; None: they are temporary. A session that this process has is used as it
    is.
    """
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise InvalidInput("workers", f"expected a whole number ≥ 1, got {workers!r}")
    with ExitStack() as stack:
        yield open_session(stack, "session", master, workers, None if folder is None else Path(folder))


def open_session(stack: ExitStack, name: str, master: str | None, workers: int, folder: Path | None) -> "SparkSession":
    """Give a session with room for so many workers: the one that runs already, an embedded one, or the master's.

    It is kept until the stack is closed, and by others who have it beyond that.
    """
    from penstock.pipeline.session import common_session, running_session
    from penstock.runtime.spark.executors import embedded_master, spark_settings

    embedded = master is None
    url = embedded_master(workers) if embedded and running_session() is None else master
    settings = spark_settings(workers, embedded)
    return stack.enter_context(common_session(name, url, settings=settings, folder=folder))
