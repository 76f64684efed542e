"""Following a run until it ends: its display, and the handling of Ctrl-C.

Ctrl-C once drains the run, twice stops it at once, three times detaches from it. Draining and stopping run in threads
of their own, so that the display continues and the next Ctrl-C is handled. SIGTERM counts as Ctrl-C.
"""

import re
import signal
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Self, TypeVar

import msgspec
from rich.live import Live
from rich.text import Text

from penstock.cli.output import Terminal
from penstock.cli.run_view import ended, status_line, view
from penstock.model.errors import PenstockError
from penstock.model.status import ComponentStatus, Status
from penstock.runtime.handle import Handle, LogLine

T = TypeVar("T")

PACE = 0.1  # s between polls of the run
TABLE_SECONDS = 0.5  # between two updates of the table
LINE_SECONDS = 5.0  # between two plain lines
MOST_LINES = 20  # of the log at a time; the rest is in run.log
LEVELS = {"debug": "dim", "warning": "yellow", "error": "red", "critical": "red"}
DRAINING = "draining; Ctrl-C again stops at once"
TIME_IS_UP = "the time is up, draining; Ctrl-C stops at once"
STOPPING = "stopping at once"


class Display:
    """Shows a run until it ends; this one shows nothing, for programs."""

    seconds = TABLE_SECONDS  # between two statuses

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Print what is left."""

    def show(self, status: Status, note: str) -> None:
        """Show the status and a note."""

    def print_line(self, text: Text) -> None:
        """Print a line of the log or a message."""


class TableDisplay(Display):
    """The live table, log lines scrolling above it."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._live = Live(console=terminal, auto_refresh=False, redirect_stdout=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: Status, note: str) -> None:
        """Redraw the table."""
        width, height = self._terminal.size
        self._live.update(view(status, width, height - 1, note), refresh=True)

    def print_line(self, text: Text) -> None:
        """Print a line above the table."""
        self._terminal.print(text, soft_wrap=True)


class LineDisplay(Display):
    """A plain line every few seconds, and log lines as they come; for output that is not a terminal."""

    def __init__(self, terminal: Terminal, seconds: float = LINE_SECONDS) -> None:
        self.seconds = seconds
        self._terminal = terminal
        self._noted = self._line = ""
        self._end: Status | None = None
        self._warned: set[str] = set()

    def __exit__(self, *_: object) -> None:
        """Print the last status, after the last lines of the workers."""
        if self._end is not None:
            self.print_line(Text(status_line(self._end)))

    def show(self, status: Status, note: str) -> None:
        """Print a status line, the last one at exit; print notes once, and warnings once unless only figures differ."""
        for warning in status.warnings:
            kind = re.sub(r"[\d.]+ m?s\b| on machine '[^']*'| \(\d+ more.*", "", warning)
            if kind not in self._warned:
                self._warned.add(kind)
                self.print_line(Text(f"warning: {warning}"))
        if note and note != self._noted:
            self.print_line(Text(note))
        self._noted = note
        if ended(status):
            self._end = status
        elif (line := status_line(status)) != self._line:
            self.print_line(Text(line))
            self._line = line

    def print_line(self, text: Text) -> None:
        """Print a line."""
        self._terminal.print(text, soft_wrap=True)


class Interrupts:
    """Counts Ctrl-C and SIGTERM instead of their default action; the third raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._count)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _count(self, *_: object) -> None:
        self.count += 1
        if self.count > 2:
            raise KeyboardInterrupt


class Follower:
    """Follows one run until it ends."""

    def __init__(
        self, handle: Handle, display: Display, duration: float | None = None, changes: Sequence[Callable[[], str]] = ()
    ) -> None:
        self.stopped = False  # at once, with tuples in flight
        self._changes = _spread(changes, duration or 0.0, monotonic())
        self._handle = handle
        self._display = display
        self._until = None if duration is None else monotonic() + duration
        self._lines: SimpleQueue[LogLine] = SimpleQueue()
        self._problems: SimpleQueue[str] = SimpleQueue()
        self._messages: SimpleQueue[str] = SimpleQueue()  # of completed changes
        self._draining = False
        self._patience = 2  # number of Ctrl-C that stops the run at once
        self._note = ""
        self._running: Status | None = None  # the last status of the running application
        handle.on_log(self._lines.put)

    def follow(self) -> Status:
        """Show the run until it ends; return its last status, with the last rates and times before the end."""
        with Interrupts() as interrupts, self._display:
            shown = -self._display.seconds
            while not self._handle.wait(PACE):
                changed = self._act(interrupts.count)
                self._print_log()
                if changed or monotonic() - shown >= self._display.seconds:
                    shown = monotonic()
                    self._display.show(self._status(), self._note)
            self._print_log()
            status = self._status()
            self._display.show(status, "")
        return status

    def _status(self) -> Status:
        """Return the status; after the end, with the last rates before it, since those of a drained run are 0."""
        status = self._handle.status()
        if status.phase == "running":
            self._running = status
        if self._running is None or not self._handle.wait(0):
            return status
        last, latency = self._running, self._running.latency or status.latency  # a short run has only its first status
        parts = {"components": _with_running_rates(last, status), "machines": last.machines, "latency": latency}
        return msgspec.structs.replace(status, **parts)

    def _act(self, interrupts: int) -> bool:
        """Start due changes, draining or stopping; return whether draining or stopping has just started."""
        over = self._until is not None and monotonic() >= self._until
        if self._changes and monotonic() >= self._changes[0][0] and not (over or interrupts):
            _, change = self._changes.pop(0)
            self._run_in_thread(lambda: self._messages.put(change()))
        if interrupts >= self._patience and not self.stopped:
            self.stopped, self._note = True, STOPPING
            self._run_in_thread(self._handle.stop)
            return True
        if self._draining or self.stopped or not (over or interrupts):
            return False
        self._draining = True
        self._patience, self._note = (2, DRAINING) if interrupts else (1, TIME_IS_UP)
        self._run_in_thread(self._handle.drain)
        return True

    def _run_in_thread(self, what: Callable[[], None]) -> None:
        def run() -> None:
            try:
                what()
            except PenstockError as error:
                self._problems.put(str(error))

        Thread(target=run, name="penstock end", daemon=True).start()

    def _print_log(self) -> None:
        lines = _take_all(self._lines)
        for line in lines[:MOST_LINES]:
            self._display.print_line(log_text(line))
        if len(lines) > MOST_LINES:
            log = self._handle.folder / "run.log"
            self._display.print_line(Text(f"… {len(lines) - MOST_LINES:,} more lines in {log}", style="dim"))
        for text in _take_all(self._messages):
            self._display.print_line(Text(text, style="green"))
        for problem in _take_all(self._problems):
            self._display.print_line(Text(f"error: {problem}", style="red"))


def _with_running_rates(running: Status, final: Status) -> list[ComponentStatus]:
    """Return the final components with the rates and times of the running application; counts are the final ones."""
    last = {component.name: component for component in final.components}
    counts = ("queue", "waiting_out", "skipped", "retried")
    return [
        msgspec.structs.replace(ran, **{name: getattr(last.get(ran.name, ran), name) for name in counts})
        for ran in running.components
    ]


def _spread(
    changes: Sequence[Callable[[], str]], duration: float, start: float
) -> list[tuple[float, Callable[[], str]]]:
    """Return the time of each change: the intervals before, between and after them are equal."""
    part = duration / (len(changes) + 1)
    return [(start + part * number, change) for number, change in enumerate(changes, 1)]


def log_text(line: LogLine) -> Text:
    """Format a line of the log for a terminal: its source, then its text."""
    return Text.assemble((f"{line.speaker}: ", "bold cyan"), (line.text, LEVELS.get(line.level.lower(), "")))


def _take_all(queue: SimpleQueue[T]) -> list[T]:
    """Return everything in a queue, and empty it."""
    found = []
    while True:
        try:
            found.append(queue.get_nowait())
        except Empty:
            return found
