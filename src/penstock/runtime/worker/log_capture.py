"""Captures the logs and output of an author's code in a worker, as lines with the task that caused them."""

import contextlib
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from io import TextIOBase

from penstock.runtime.protocol import worker_messages

LINES = 10_000  # maximum buffered; further lines are dropped


class LogCapture:
    """Log lines that wait to be sent. `running` names the component and the task whose code runs."""

    def __init__(self, running: Callable[[], tuple[str, int]]) -> None:
        self._running = running
        self._lines: deque[worker_messages.LogMessage] = deque()
        self._dropped = 0
        self._stdout = _Stdout(self)

    def add(self, level: str, text: str) -> None:
        """Buffer a line, unless the buffer is full."""
        if len(self._lines) >= LINES:
            self._dropped += 1
            return
        self._lines.append(worker_messages.LogMessage(time.time(), level, *self._running(), text))

    def warn(self, text: str) -> None:
        """Buffer a line of the worker itself, even if the buffer is full."""
        self._lines.append(worker_messages.LogMessage(time.time(), "warning", "", -1, text))

    def take(self) -> list[worker_messages.LogMessage]:
        """Return the lines since the last call."""
        if not self._lines and not self._dropped:
            return []
        if self._dropped:
            self.warn(f"{self._dropped} lines of log were dropped, more than {LINES} came at once")
            self._dropped = 0
        lines, self._lines = list(self._lines), deque()
        return lines

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Capture log messages and printed text."""
        handler = _Handler(self)
        root, before = logging.getLogger(), logging.getLogger().level
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        stdout = sys.stdout
        sys.stdout = self._stdout
        try:
            yield
        finally:
            sys.stdout = stdout
            root.removeHandler(handler)
            root.setLevel(before)

    def flush(self) -> None:
        """Add the last printed line if it has no end of line."""
        if self._stdout.partial:
            self._stdout.write("\n")


class _Handler(logging.Handler):
    def __init__(self, capture: LogCapture) -> None:
        super().__init__()
        self._capture = capture

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("py4j"):
            self._capture.add(record.levelname.lower(), self.format(record))


class _Stdout(TextIOBase):
    """Standard output that becomes log lines."""

    def __init__(self, capture: LogCapture) -> None:
        super().__init__()
        self._capture = capture
        self.partial = ""

    def write(self, text: str) -> int:
        *lines, self.partial = (self.partial + text).split("\n")
        for line in lines:
            self._capture.add("info", line)
        return len(text)
