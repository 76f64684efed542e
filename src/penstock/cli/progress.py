"""Progress on a terminal: a bar that counts, or a spinner with the time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.cli.output import errors


@contextmanager
def counting(what: str, total: int, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Show a bar on a terminal; yield a function that sets the current step and adds completed ones."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as progress:
        bar = progress.add_task(what, total=total)

        def advance(doing: str, done: int = 1) -> None:
            progress.update(bar, description=doing, advance=done)

        yield advance


@contextmanager
def spinning(what: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a spinner with the time on a terminal; yield a function that changes its text."""
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal) as progress:
        line = progress.add_task(what, total=None)
        yield lambda doing: progress.update(line, description=doing)
