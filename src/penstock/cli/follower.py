"""Staying with a run until it ends: what is shown meanwhile, and what Ctrl-C does.

Ctrl-C once drains the run, twice stops it at once, three times leaves it to itself. Draining and stopping happen in
threads of their own, so that the display goes on and the next Ctrl-C is heard. SIGTERM counts as Ctrl-C.
"""

import re
import signal
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic
from typing import Any, Protocol, TypeVar

import msgspec
from rich.live import Live
from rich.text import Text

from penstock.cli.output import Terminal
from penstock.cli.run_view import ended, status_line, view
from penstock.model.errors import PenstockError
from penstock.model.status import ComponentStatus, Status
from penstock.runtime.handle import Handle, LogLine

T = TypeVar("T")

PACE = 0.1  # s between looks at the run
TABLE_SECONDS = 0.5  # between two drawings of the table
LINE_SECONDS = 5.0  # between two plain lines
MOST_LINES = 20  # of the log at a time; the rest is in run.log
LEVELS = {"debug": "dim", "warning": "yellow", "error": "red", "critical": "red"}
DRAINING = "draining; Ctrl-C again stops at once"
TIME_IS_UP = "the time is up, draining; Ctrl-C stops at once"
STOPPING = "stopping at once"


class Display(Protocol):
    """Shows a run while it goes on."""

    seconds: float  # between two statuses

    def __enter__(self) -> "Display": ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, status: Status, note: str) -> None:
        """Show how it is going, and a note of ours."""
        ...

    def say(self, text: Text) -> None:
        """Show one line of the log, or one of ours."""
        ...


class TableDisplay:
    """The live table, log lines scrolling above it."""

    def __init__(self, terminal: Terminal, seconds: float = TABLE_SECONDS) -> None:
        self.seconds = seconds
        self._terminal = terminal
        self._live = Live(console=terminal, auto_refresh=False, redirect_stdout=False, vertical_overflow="crop")

    def __enter__(self) -> "TableDisplay":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, status: Status, note: str) -> None:
        """Draw the table anew."""
        width, height = self._terminal.size
        self._live.update(view(status, width, height - 1, note), refresh=True)

    def say(self, text: Text) -> None:
        """Print a line above the table."""
        self._terminal.print(text, soft_wrap=True)


class LineDisplay:
    """A plain line every few seconds, and log lines as they come; for output that is not a terminal."""

    def __init__(self, terminal: Terminal, seconds: float = LINE_SECONDS) -> None:
        self.seconds = seconds
        self._terminal = terminal
        self._noted = self._line = ""
        self._end: Status | None = None
        self._warned: set[str] = set()

    def __enter__(self) -> "LineDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        """Print the end, of which workers have said their last by now."""
        if self._end is not None:
            self.say(Text(status_line(self._end)))

    def show(self, status: Status, note: str) -> None:
        """Print a line, but keep that of the end; notes once, and warnings that differ in more than their figures."""
        for warning in status.warnings:
            kind = re.sub(r"[\d.]+ m?s\b| on machine '[^']*'| \(\d+ more.*", "", warning)
            if kind not in self._warned:
                self._warned.add(kind)
                self.say(Text(f"warning: {warning}"))
        if note and note != self._noted:
            self.say(Text(note))
        self._noted = note
        if ended(status):
            self._end = status
        elif (line := status_line(status)) != self._line:
            self.say(Text(line))
            self._line = line

    def say(self, text: Text) -> None:
        """Print a line."""
        self._terminal.print(text, soft_wrap=True)


class NoDisplay:
    """Nothing, for programs."""

    seconds = TABLE_SECONDS

    def __enter__(self) -> "NoDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, status: Status, note: str) -> None:
        """Show nothing."""

    def say(self, text: Text) -> None:
        """Say nothing."""


class Interrupts:
    """Counts Ctrl-C and SIGTERM in place of what they do otherwise; the third Ctrl-C does that again."""

    def __init__(self) -> None:
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Interrupts":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _hear(self, *_: object) -> None:
        self.count += 1
        if self.count > 2:
            raise KeyboardInterrupt


class Follower:
    """Stays with one run."""

    def __init__(
        self,
        handle: Handle,
        display: Display,
        duration: float | None = None,
        changes: Sequence[Callable[[], str]] = (),
    ) -> None:
        self.stopped = False  # at once, with tuples in flight
        self._changes = _spread(changes, duration or 0.0, monotonic())
        self._handle = handle
        self._display = display
        self._until = None if duration is None else monotonic() + duration
        self._lines: SimpleQueue[LogLine] = SimpleQueue()
        self._problems: SimpleQueue[str] = SimpleQueue()
        self._said: SimpleQueue[str] = SimpleQueue()  # by changes that were made
        self._draining = False
        self._patience = 2  # times Ctrl-C before it is stopped at once
        self._note = ""
        self._going: Status | None = None  # the last status while it ran
        handle.on_log(self._lines.put)

    def follow(self) -> Status:
        """Show the run until it ends; return its last status, with the rates and times from before it was ended."""
        with Interrupts() as interrupts, self._display:
            shown = -self._display.seconds
            while not self._handle.wait(PACE):
                changed = self._heed(interrupts.count)
                self._say_lines()
                if changed or monotonic() - shown >= self._display.seconds:
                    shown = monotonic()
                    self._display.show(self._look(), self._note)
            self._say_lines()
            status = self._look()
            self._display.show(status, "")
        return status

    def _look(self) -> Status:
        """Return how it is going, or, at the end, how it was going as long as it ran: an empty run has no rates."""
        status = self._handle.status()
        if status.phase == "running":
            self._going = status
        if self._going is None or not self._handle.wait(0):
            return status
        going, latency = self._going, self._going.latency or status.latency  # a short one was seen only at its start
        parts = {"components": _as_it_ran(going, status), "machines": going.machines, "latency": latency}
        return msgspec.structs.replace(status, **parts)

    def _heed(self, interrupts: int) -> bool:
        """Drain or stop where that is asked for and not under way; return whether it was just begun."""
        over = self._until is not None and monotonic() >= self._until
        if self._changes and monotonic() >= self._changes[0][0] and not (over or interrupts):
            _, change = self._changes.pop(0)
            self._begin(lambda: self._said.put(change()))
        if interrupts >= self._patience and not self.stopped:
            self.stopped, self._note = True, STOPPING
            self._begin(self._handle.stop)
            return True
        if self._draining or self.stopped or not (over or interrupts):
            return False
        self._draining = True
        self._patience, self._note = (2, DRAINING) if interrupts else (1, TIME_IS_UP)
        self._begin(self._handle.drain)
        return True

    def _begin(self, what: Callable[[], None]) -> None:
        def run() -> None:
            try:
                what()
            except PenstockError as mistake:
                self._problems.put(str(mistake))

        Thread(target=run, name="penstock end", daemon=True).start()

    def _say_lines(self) -> None:
        lines = _taken(self._lines)
        for line in lines[:MOST_LINES]:
            self._display.say(log_text(line))
        if len(lines) > MOST_LINES:
            log = self._handle.folder / "run.log"
            self._display.say(Text(f"… {len(lines) - MOST_LINES:,} more lines in {log}", style="dim"))
        for text in _taken(self._said):
            self._display.say(Text(text, style="green"))
        for problem in _taken(self._problems):
            self._display.say(Text(f"error: {problem}", style="red"))


def _as_it_ran(going: Status, over: Status) -> list[ComponentStatus]:
    """Return the components at the end with the rates and times of before it; what is counted goes on until then."""
    last = {component.name: component for component in over.components}
    counts = ("queue", "waiting_out", "skipped", "retried")
    return [
        msgspec.structs.replace(ran, **{name: getattr(last.get(ran.name, ran), name) for name in counts})
        for ran in going.components
    ]


def _spread(
    changes: Sequence[Callable[[], str]], duration: float, start: float
) -> list[tuple[float, Callable[[], str]]]:
    """Say when each change is made: the time before, between and after them is equal."""
    part = duration / (len(changes) + 1)
    return [(start + part * number, change) for number, change in enumerate(changes, 1)]


def log_text(line: LogLine) -> Text:
    """Write a line of the log for a terminal: who says it, then what."""
    return Text.assemble((f"{line.speaker}: ", "bold cyan"), (line.text, LEVELS.get(line.level.lower(), "")))


def _taken(queue: SimpleQueue[T]) -> list[T]:
    """Take what is in a queue."""
    found = []
    while True:
        try:
            found.append(queue.get_nowait())
        except Empty:
            return found
