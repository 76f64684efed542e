"""A source of the lines of text files, paced by a rate, an arrival process, or recorded times."""

import math
import os
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.api.contracts import Source, TaskContext, Timed
from penstock.api.sources.line_reader import LineReader, decode_lines, first_line, input_files, open_file
from penstock.api.sources.pace import ArrivalProcess, Pace, check_number
from penstock.model.errors import InvalidInput

BLOCK = 256  # lines read ahead per task if their times are needed

Timestamps = str | Callable[[str], float]


class Lines(Source[str]):
    """The lines of a file, or of all files of a folder in order of their names: `Lines("book.txt", rate=1000)`.

    path: a file or a folder, at the same path on every worker; names that start with `_` or `.` are ignored.
    rate: lines per second of all tasks together; or
    arrivals: an arrival process (`penstock.arrivals`); or
    timestamps: as recorded: a function from a line to seconds, or the format of the date at the start of lines, as for
        `strptime` ("%Y-%m-%d %H:%M:%S"; default time zone: UTC). A line with an earlier time than its predecessor is
        due together with it, as is a line without a date, such as the second line of a message. Without any of the
        three, lines are emitted at maximum speed.
    speed: factor by which recorded times are accelerated.
    repeat: start again at the end, indefinitely; recorded times then continue after the last.

    Tasks share files by *splits*: a whole file, or a byte range of a large one with the lines that start in it. Each
    split is read by one task, in order; a task reads its splits in the order of file names and positions. With one
    task, all lines are emitted in order; with several, lines of different splits have no order. Shares are about equal.
    A task that has read its share ends, and the others keep their part of the rate.

    Text is UTF-8, with � for invalid bytes; lines end with a line feed, optionally preceded by a carriage return. Files
    must not change while they are read: a task that moves or is rolled back and finds changed files raises an error.
    Files added to the folder after the last one are not read by the current run.
    """

    rewinds = True

    def __init__(
        self,
        path: str | Path,
        rate: float | None = None,
        timestamps: Timestamps | None = None,
        arrivals: ArrivalProcess | None = None,
        repeat: bool = False,
        speed: float = 1.0,
    ) -> None:
        if timestamps is not None and (rate is not None or arrivals is not None):
            raise InvalidInput("timestamps", f"expected no rate or arrivals in addition to {timestamps!r}; remove them")
        if timestamps is not None and not isinstance(timestamps, str) and not callable(timestamps):
            raise InvalidInput("timestamps", f"expected a date format or a function of a line, got {timestamps!r}")
        check_number("speed", speed)
        self.path = Path(os.path.abspath(path))  # workers have other working directories
        self.pace = Pace(rate, arrivals)
        self.timestamps = timestamps
        self.repeat = repeat
        self.speed = speed

    @property
    def rate_tps(self) -> float | None:
        """The lines per second of all tasks together, if known."""
        return self.pace.rate_tps

    def check(self) -> None:
        """Reject a path that does not exist, and a folder without files."""
        for file in input_files(self.path):
            open_file(file).close()

    def open(self, context: TaskContext) -> None:
        """Open the first file."""
        self._times = None
        if self.timestamps is not None:
            self._times = _Times(self.timestamps, self.speed, first_line(self.path))
        self._reader = LineReader(self.path, self.repeat, context)
        self._ahead: list[str] = []  # lines read that are not yet due; unused without recorded times
        self._mark = self._place()  # position of the block that `_ahead` is the rest of
        self._size = 0  # lines in that block
        self._skip = 0  # lines of the next block that were emitted before the source moved
        self._end: dict[str, Any] | None = None  # the position sought, if it was the end
        self._context = context
        self._open_pace(*self._reader.share)

    def _open_pace(self, task: int, tasks: int) -> None:
        """Divide the pace among the tasks with lines."""
        self._share = (task, tasks)
        context = copy(self._context)
        context.task, context.tasks = task, tasks
        self.pace.open(context, None if self._times is None else self._read_ahead)

    def poll(self, now: float, limit: int) -> list[str] | Timed[str] | None:
        """Read the lines that are due."""
        if self._at_end():
            return None
        dues = self.pace.take(now, limit)
        lines = self._next(len(dues))
        if not lines and self._at_end():
            return None
        return Timed(lines, dues[: len(lines)]) if self.pace.paces else lines

    def next_due(self, now: float) -> float:
        """Return when the next line is due, or now if only the end remains to be reported."""
        return now if self._at_end() else self.pace.next_due(now)

    def position(self) -> dict[str, Any]:
        """Return the position in the files and of the pace: that of a block, and the lines emitted from it."""
        if self._end is not None:
            return self._end
        place, given = (self._place(), 0) if self._times is None else (self._mark, self._size - len(self._ahead))
        return {
            **place,
            "given": given + self._skip,
            "ended": self._at_end(),
            "share": self._share,
            "pace": self.pace.position(),
        }

    def seek(self, position: dict[str, Any]) -> None:
        """Continue after a position. At the end, changed files do not matter."""
        if position["ended"]:
            self._end, self._reader.ended = position, True
            return
        self._reader.seek(position)
        pace = position["pace"]
        if self._times is not None:
            faster = self._times.seek(position["times"])
            pace = pace | {"elapsed": pace["elapsed"] / faster}
        self._mark, self._skip = self._place(), position["given"]
        self._open_pace(*position.get("share", (0, 1)))
        self.pace.seek(pace)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()

    def _at_end(self) -> bool:
        return self._reader.ended and not self._ahead

    def _next(self, count: int) -> list[str]:
        """Return the lines that are due; fewer only at the end."""
        if self._times is not None:
            lines, self._ahead = self._ahead[:count], self._ahead[count:]
            return lines
        lines = []
        while len(lines) < count and not self._reader.ended:
            lines += self._reader.read(count - len(lines))
        return lines

    def _read_ahead(self) -> list[float]:
        """Read the next block and return when its lines are due; an empty list at the end."""
        assert self._times is not None, "only recorded times need reading ahead"
        while not self._reader.ended:
            self._mark, lap = self._place(), self._reader.lap
            lines = self._reader.read(BLOCK)
            times = self._times.of(lines)
            if self._reader.lap > lap:
                self._times.turn(self._reader.tail)
            skip, self._skip = self._skip, max(0, self._skip - len(lines))
            self._ahead += lines[skip:]
            self._size = len(lines)
            if lines[skip:]:
                return times[skip:]
        return []

    def _place(self) -> dict[str, Any]:
        times = None if self._times is None else self._times.position()
        return {**self._reader.position(), "times": times}


class _Times:
    """When recorded lines are due, in seconds from the first of all lines."""

    def __init__(self, timestamps: Timestamps, speed: float, head: bytes) -> None:
        self.stamp = _Dates(timestamps) if isinstance(timestamps, str) else timestamps
        self.speed = speed
        self.base = 0.0  # when the current round started
        self.latest = 0.0  # when the previous line was due
        line = decode_lines([head])[0] if head else ""
        self.first = self._seconds(line) if head else 0.0  # time of the first of all lines
        if self.first is None:
            problem = f"expected the first line to start with a date like {self.stamp}, got {line[:60]!r}"
            raise InvalidInput("timestamps", f"{problem}; see strptime for the format")

    def of(self, lines: list[str]) -> list[float]:
        """Return when lines are due."""
        return [self._due(line) for line in lines]

    def turn(self, tail: bytes) -> None:
        """Start the next round when the last line of this one was due."""
        self._due(decode_lines([tail])[0])
        self.base = self.latest

    def position(self) -> list[float | None]:
        """Return the state needed to continue."""
        return [self.first, self.base, self.latest, self.speed]

    def seek(self, position: Any) -> float:
        """Continue after a position, and return the ratio of the speeds."""
        self.first, base, latest, speed = position
        faster: float = self.speed / speed
        self.base, self.latest = base / faster, latest / faster
        return faster

    def _due(self, line: str) -> float:
        seconds = self._seconds(line)
        if seconds is not None and self.first is not None:
            self.latest = max(self.latest, self.base + (seconds - self.first) / self.speed)
        return self.latest

    def _seconds(self, line: str) -> float | None:
        seconds = self.stamp(line)
        if seconds is not None and not math.isfinite(seconds):
            raise InvalidInput("timestamps", f"expected a time in seconds, got {seconds} for the line {line[:60]!r}")
        return seconds


class _Dates:
    """Parses the dates at the start of lines."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.length = 0  # of the last date; most have the same length

    def __repr__(self) -> str:
        return repr(self.form)

    def __call__(self, line: str) -> float | None:
        """Return the date in seconds since 1970, or None if the line does not start with one."""
        if self.length and not line[self.length : self.length + 1].isalnum():
            found = self._parse(line[: self.length])
            if isinstance(found, float):
                return found
        found = self._parse(line)
        if isinstance(found, str):  # the text after the date
            self.length = len(line) - len(found)
            found = self._parse(line[: self.length])
        return found if isinstance(found, float) else None

    def _parse(self, text: str) -> float | str | None:
        try:
            date = datetime.strptime(text, self.form)
        except ValueError as error:
            _, found, rest = str(error).partition("unconverted data remains: ")
            return rest if found else None
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
