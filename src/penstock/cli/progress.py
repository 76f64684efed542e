"""What a terminal shows while a command works: a bar that counts what is done, or what is done now and since when."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def counting(what: str, total: int, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Show a bar where somebody looks; give what is told what is being done, and how many more things are done."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from penstock.cli.output import errors

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as progress:
        bar = progress.add_task(what, total=total)

        def tell(doing: str, done: int = 1) -> None:
            progress.update(bar, description=doing, advance=done)

        yield tell


@contextmanager
def spinning(what: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show where somebody looks that work goes on, and for how long; give what is told what is being done."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from penstock.cli.output import errors

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as progress:
        line = progress.add_task(what, total=None)
        yield lambda doing: progress.update(line, description=doing)


@contextmanager
def on_spark(
    name: str,
    reads: Path,
    master: str | None,
    quiet: bool,
    settings: Mapping[str, str] | None = None,
    brief: bool = True,
) -> Iterator[tuple["SparkSession", Callable[[str], None]]]:
    """Give a Spark session and what is told what is being done, which a terminal shows with the time; else a log does.

    name: of the session; reads: what is read on it; brief: as `session` has it.
    """
    from penstock.cli.output import errors
    from penstock.pipeline.session import session

    with spinning("starting Spark", quiet) as show, session(name, master, settings=settings, brief=brief) as spark:

        def tell(doing: str) -> None:
            show(doing)
            if not quiet and not errors.is_terminal:
                errors.print(doing, markup=False, soft_wrap=True)

        tell(f"reading {reads} on {spark.sparkContext.master}")
        yield spark, tell
