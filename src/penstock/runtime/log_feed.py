"""Passes log lines to the listeners of a run, each in its own thread."""

import threading
import time
from collections import deque
from collections.abc import Callable

from penstock.runtime.handle import LogLine

LINES = 10_000  # buffered for a listener; further ones are dropped


class Feed(threading.Thread):
    """Passes log lines to one listener, which may be slow or use the run, without blocking anything else.

    If it is slower than the log for long, lines are dropped, and a further line reports how many. A listener that
    raises is not called again; the run continues.
    """

    def __init__(self, listener: Callable[[LogLine], None], failed: Callable[["Feed", Exception], None]) -> None:
        super().__init__(name="penstock log", daemon=True)
        self._listener = listener
        self._failed = failed
        self._lines: deque[LogLine] = deque()
        self._dropped = 0
        self._closed = False
        self._changed = threading.Condition()
        self.start()

    def put(self, line: LogLine) -> None:
        """Add a line; returns at once."""
        with self._changed:
            if self._closed:
                return
            if len(self._lines) >= LINES:
                self._dropped += 1
                return
            self._report_dropped()
            self._lines.append(line)
            self._changed.notify()

    def close(self) -> None:
        """Accept no further lines."""
        with self._changed:
            self._report_dropped()
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        """Call the listener for every line."""
        while (line := self._next()) is not None:
            try:
                self._listener(line)
            except Exception as error:
                self._failed(self, error)
                return

    def _next(self) -> LogLine | None:
        with self._changed:
            while not self._lines and not self._closed:
                self._changed.wait()
            return self._lines.popleft() if self._lines else None

    def _report_dropped(self) -> None:
        if self._dropped:
            text = f"{self._dropped} lines of log were dropped, more than {LINES} waited for the listener"
            self._lines.append(LogLine(time.time(), "warning", "", None, "controller", text))
            self._dropped = 0
