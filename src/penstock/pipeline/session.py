"""The Spark session: embedded by default, or whatever a master URL names.

An embedded session keeps its files in a temporary folder of its own, listens on loopback only, and says nothing unless
something is wrong. On another master the executors need the same Python packages as the driver.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.model.errors import PenstockError
from penstock.pipeline.java import need_java


class NoSpark(PenstockError):
    """A Spark session could not be had."""


@contextmanager
def session(name: str, master: str | None = None) -> Iterator[SparkSession]:
    """Give a Spark session and stop it at the end; `master` None means embedded, one thread a core."""
    need_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        spark = _start(name, master or f"local[{os.cpu_count() or 1}]", Path(folder))
        try:
            yield spark
        finally:
            spark.stop()


def _start(name: str, master: str, folder: Path) -> SparkSession:
    quiet = Path(__file__).with_name("log4j2.properties")
    builder = (
        SparkSession.builder.appName(f"penstock {name}")
        .master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", (folder / "warehouse").as_uri())
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={quiet.as_uri()}")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    )
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    try:
        return builder.getOrCreate()
    except (PySparkException, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise NoSpark(f"master: {master!r} gave no Spark session, {reason}; check the URL and that it runs") from None
