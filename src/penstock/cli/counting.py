"""A bar on the terminal that counts what is done, for commands that do many things one after another."""

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
