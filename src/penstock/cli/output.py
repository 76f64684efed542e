"""Output of all commands: the console, tables, JSON for programs, formatted numbers."""

import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

import msgspec
from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table

from penstock.model.entity import UNSEEN

PAGE = 160  # columns of a drawing that goes to a file
NARROWEST = 80  # minimum columns of tables; a narrower terminal wraps their lines
UNBOUNDED = 10_000  # columns, more than any table has


_UNSEEN = re.compile(rf"(?![\n\t])[{UNSEEN}]")


def neutral(text: str) -> str:
    """Return a text without the characters that control a terminal, in JSON's escapes; lines and tabs stay.

    Names, logs and errors come from files and other processes, which may imitate other output.
    """
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Terminal(Console):
    """A console that prints only its own control characters, and leaves a closed pipe to the program."""

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        """Return what is written to the terminal."""
        return super()._render_buffer(
            part if part.control else Segment(neutral(part.text), part.style) for part in buffer
        )

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, as any other writer does."""
        raise BrokenPipeError


def terminal_width() -> int:
    """Return the width of drawings: that of the terminal, or of a page without one."""
    return max(shutil.get_terminal_size((PAGE, 24)).columns, 20)


def _table_width(stream: TextIO) -> int:
    """Return the maximum width of tables: that of the terminal or COLUMNS, else unbounded."""
    bounded = stream.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return max(shutil.get_terminal_size().columns, NARROWEST) if bounded else UNBOUNDED


console = Terminal(highlight=False, width=_table_width(sys.stdout))
errors = Terminal(highlight=False, stderr=True, width=None if sys.stderr.isatty() else UNBOUNDED)


def print_line(text: str, style: str | None = None) -> None:
    """Print a text as it is, on one line however long, so that it can be copied."""
    console.print(text, style=style, markup=False, soft_wrap=True)


def print_note(text: str, style: str | None = None) -> None:
    """Print a text likewise on stderr: progress, warnings, errors."""
    errors.print(text, style=style, markup=False, soft_wrap=True)


def note_unless(quiet: bool) -> Callable[[str], None]:
    """Return `print_note`, or a function that prints nothing."""
    return (lambda _: None) if quiet else print_note


def print_json(value: Any) -> None:
    """Print a value as indented JSON; what is infinite or not a number becomes null."""
    print(neutral(msgspec.json.format(msgspec.json.encode(_plain(msgspec.to_builtins(value))), indent=2).decode()))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def table(*columns: str, title: str | None = None, left: tuple[str, ...] = ()) -> Table:
    """Return an empty table; the first column and those in `left` are text, the others numbers."""
    made = Table(title=title, title_justify="left", title_style="bold", box=None, header_style="dim")
    made.padding = (0, 2, 0, 0)
    for number, column in enumerate(columns):
        text = number == 0 or column in left
        made.add_column(
            column,
            justify="left" if text else "right",
            no_wrap=not text,
            overflow="fold",
            min_width=12 if number == 0 else None,
        )
    return made


def fitted(rows: Table) -> Table:
    """Return a table with narrower gaps between columns if it is too wide, before names are folded."""
    if Measurement.get(console, console.options.update(max_width=UNBOUNDED), rows).maximum > console.width:
        rows.padding = (0, 1, 0, 0)
    return rows


def policy_cell(spec: str, best: bool) -> str:
    """Format a policy for the first column: its name, the best marked, its parameters under it."""
    name, _, settings = spec.partition(":")
    return (f"[bold green]{name} ★[/]" if best else name) + (f"\n[dim]  {settings}[/]" if settings else "")


def number(value: float, digits: int = 3) -> str:
    """Format a number: `digits` significant ones, thousands apart."""
    if not math.isfinite(value):
        return "∞" if value > 0 else "-"
    if value == 0:
        return "0"
    rounded = abs(float(f"{value:.{digits}g}"))  # 9.999 is 10.0, not 10.00
    decimals = max(0, digits - 1 - math.floor(math.log10(rounded)))
    return f"{value:,.{min(decimals, 6)}f}"


def duration(seconds: float) -> str:
    """Format a time: µs, ms or s."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def size(amount: float) -> str:
    """Format an amount of bytes."""
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} GB"
