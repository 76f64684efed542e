"""What a terminal shows while a command works: a bar that counts what is done, or what is done now and since when."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
