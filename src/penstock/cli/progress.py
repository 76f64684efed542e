"""Progress on a terminal: a bar that counts, or a spinner with the time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from penstock.cli.output import errors, print_note


@contextmanager
def counting(what: str, total: int, quiet: bool) -> Iterator[Callable[[str, int], None]]:
    """Show a bar on a terminal; yield a function that sets the current step and adds completed ones."""
    with _progress(quiet, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as progress:
        bar = progress.add_task(what, total=total)

        def advance(doing: str, done: int = 1) -> None:
            progress.update(bar, description=doing, advance=done)

        yield advance


@contextmanager
def tracking(what: str, quiet: bool) -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on a terminal, else a line per step; yield a function that sets completed and all cases, and the step.

    Without a step, the last one stays.
    """
    with _progress(quiet, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as progress:
        bar, step = progress.add_task(what, total=None), ""

        def show(done: int, total: int, doing: str) -> None:
            nonlocal step
            progress.update(bar, description=doing or step, completed=done, total=total)
            if doing and doing != step:
                step = doing
                if not quiet and not errors.is_terminal:
                    print_note(doing)

        yield show


@contextmanager
def spinning(what: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Show a spinner with the time on a terminal; yield a function that changes its text."""
    with _progress(quiet, TimeElapsedColumn()) as progress:
        line = progress.add_task(what, total=None)
        yield lambda doing: progress.update(line, description=doing)


def _progress(quiet: bool, *columns: ProgressColumn) -> Progress:
    """Return a display that is erased at the end; none unless the output is a terminal."""
    shown = (SpinnerColumn(), TextColumn("{task.description}", markup=False), *columns)
    return Progress(*shown, console=errors, transient=True, disable=quiet or not errors.is_terminal)
