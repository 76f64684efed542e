"""What a user's code logs or prints in a worker, as lines for the controller, with the task that they came from."""

import contextlib
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from io import TextIOBase

from penstock.runtime.protocol import worker_messages

LINES = 10_000  # that wait to be sent; more are dropped


class Speech:
    """Lines that wait to be sent. `speaker` names the component and the task whose code runs."""

    def __init__(self, speaker: Callable[[], tuple[str, int]]) -> None:
        self._speaker = speaker
        self._lines: deque[worker_messages.Log] = deque()
        self._dropped = 0  # lines that were too many
        self._printed = _Printed(self)

    def line(self, level: str, text: str) -> None:
        """Keep a line, unless too many wait."""
        if len(self._lines) >= LINES:
            self._dropped += 1
            return
        self._lines.append(worker_messages.Log(time.time(), level, *self._speaker(), text))

    def warn(self, text: str) -> None:
        """Keep a line of the worker's own, however many wait."""
        self._lines.append(worker_messages.Log(time.time(), "warning", "", -1, text))

    def take(self) -> list[worker_messages.Log]:
        """Return the lines since the last call."""
        if not self._lines and not self._dropped:
            return []
        if self._dropped:
            self.warn(f"{self._dropped} lines of log were dropped, more than {LINES} came at once")
            self._dropped = 0
        lines, self._lines = list(self._lines), deque()
        return lines

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Hear what is logged and printed."""
        handler = _Forwarder(self)
        root, before = logging.getLogger(), logging.getLogger().level
        root.addHandler(handler)
        root.setLevel(logging.INFO)
        printed = sys.stdout
        sys.stdout = self._printed
        try:
            yield
        finally:
            sys.stdout = printed
            root.removeHandler(handler)
            root.setLevel(before)

    def end(self) -> None:
        """Say what was printed last, without an end of line."""
        self._printed.end()


class _Forwarder(logging.Handler):
    def __init__(self, speech: Speech) -> None:
        super().__init__()
        self._speech = speech

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("py4j"):
            self._speech.line(record.levelname.lower(), self.format(record))


class _Printed(TextIOBase):
    """Standard output that becomes log lines."""

    def __init__(self, speech: Speech) -> None:
        super().__init__()
        self._speech = speech
        self._rest = ""

    def write(self, text: str) -> int:
        *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._speech.line("info", line)
        return len(text)

    def end(self) -> None:
        """Say what was printed last."""
        if self._rest:
            self.write("\n")
