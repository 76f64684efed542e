"""A Spark session for a command, with its progress."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.cli.output import errors, print_note
from penstock.cli.progress import spinning
from penstock.pipeline.session import session
from penstock.runtime.storage.run_folder import INFO, find_run


def folder_read(run: str | None, runs: Path) -> Path:
    """Return the folder of a run, or of telemetry or several runs: a folder that is no run's is enough."""
    if run is not None and (runs / run / INFO).is_file():
        return runs / run
    return Path(run) if run and Path(run).is_dir() else find_run(run, runs).path


@contextmanager
def on_spark(
    name: str,
    reads: Path,
    master: str | None,
    quiet: bool,
    settings: Mapping[str, str] | None = None,
    brief: bool = True,
) -> Iterator[tuple[SparkSession, Callable[[str], None]]]:
    """Start Spark; yield its session and a function that logs each step: with the time on a terminal, else as a line.

    name: of the session; reads: the input; brief: see `session`.
    """
    with spinning("starting Spark", quiet) as show, session(name, master, settings=settings, brief=brief) as spark:

        def log_step(doing: str) -> None:
            show(doing)
            if not quiet and not errors.is_terminal:
                print_note(doing)

        log_step(f"reading {reads} on {spark.sparkContext.master}")
        yield spark, log_step
