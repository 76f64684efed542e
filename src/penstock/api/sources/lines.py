"""A source of the lines of text files, paced by a rate, an arrival process, or times that the lines hold."""

import math
import os
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from penstock.api.contracts import Source, TaskContext, Timed
from penstock.api.sources.line_reader import LineReader, files_of, first_line, open_file, texts
from penstock.api.sources.pace import Arrivals, Pace, check_number
from penstock.model.errors import InvalidInput

BLOCK = 256  # lines of a task that are read ahead where their times must be known

Timestamps = str | Callable[[str], float]


class Lines(Source[str]):
    """The lines of a file, or of all files of a folder in the order of their names: `Lines("book.txt", rate=1000)`.

    path: a file or a folder; names that begin with `_` or `.` are left out. Every worker must find it at that place.
    rate: lines per second of all tasks together; or
    arrivals: an arrival process (`penstock.workloads.arrivals`); or
    timestamps: as recorded, by a function from a line to seconds, or by the format of the date with which lines begin,
        as for `strptime` ("%Y-%m-%d %H:%M:%S"; UTC where it names no zone). A line that comes before an earlier one's
        time is due with it, as is a line that begins with no date, such as the second of a message. With none of the
        three, lines are given as fast as they can be taken.
    speed: how many times faster than recorded.
    repeat: begin anew at the end, without end; recorded times then go on from the last.

    Tasks share files by *splits*: a whole file, or a byte range of a large one with the lines that begin there. Each
    split is read by one task, in order; a task reads its splits in the order of file names and places. With one task,
    all lines come in order; with several, lines of different splits have no order among each other. Shares are about
    equal. A task that has read its share ends, and the others keep their part of the rate.

    Text is UTF-8, with � for what is not; lines end with a line feed, before which a carriage return is dropped. Files
    must not change while they are read: where a task moves or goes back to a checkpoint and finds that they have, it
    says so and does not go on. Files that are added to the folder after the last are left for another run.
    """

    rewinds = True

    def __init__(
        self,
        path: str | Path,
        rate: float | None = None,
        timestamps: Timestamps | None = None,
        arrivals: Arrivals | None = None,
        repeat: bool = False,
        speed: float = 1.0,
    ) -> None:
        if timestamps is not None and (rate is not None or arrivals is not None):
            raise InvalidInput("timestamps", f"expected no rate or arrivals beside {timestamps!r}; leave them out")
        if timestamps is not None and not isinstance(timestamps, str) and not callable(timestamps):
            raise InvalidInput("timestamps", f"expected a date format or a function of a line, got {timestamps!r}")
        check_number("speed", speed)
        self.path = Path(os.path.abspath(path))  # workers run elsewhere
        self.pace = Pace(rate, arrivals)
        self.timestamps = timestamps
        self.repeat = repeat
        self.speed = speed

    @property
    def rate_tps(self) -> float | None:
        """The lines per second of all tasks together, where that is known."""
        return self.pace.rate_tps

    def check(self) -> None:
        """Refuse a path that is not there, and a folder without files."""
        for file in files_of(self.path):
            open_file(file).close()

    def open(self, context: TaskContext) -> None:
        """Open the first file."""
        self._times = None
        if self.timestamps is not None:
            self._times = _Times(self.timestamps, self.speed, first_line(self.path))
        self._reader = LineReader(self.path, self.repeat, context)
        self._ahead: list[str] = []  # lines read that are not yet due; empty without recorded times
        self._mark = self._place()  # where the block was read that `_ahead` is the rest of
        self._size = 0  # lines of that block
        self._skip = 0  # lines of the next block that were given before the source moved
        self._end: dict[str, Any] | None = None  # the position sought, where that was the end
        self._context = context
        self._open_pace(*self._reader.share)

    def _open_pace(self, task: int, tasks: int) -> None:
        """Divide the pace among the tasks that have lines."""
        self._share = (task, tasks)
        context = copy(self._context)
        context.task, context.tasks = task, tasks
        self.pace.open(context, None if self._times is None else self._read_ahead)

    def poll(self, now: float, limit: int) -> list[str] | Timed[str] | None:
        """Read what is due."""
        if self._at_end():
            return None
        dues = self.pace.take(now, limit)
        lines = self._next(len(dues))
        if not lines and self._at_end():
            return None
        return Timed(lines, dues[: len(lines)]) if self.pace.paces else lines

    def next_due(self, now: float) -> float:
        """Say when the next line is due, or now where only the end is left to be told."""
        return now if self._at_end() else self.pace.next_due(now)

    def position(self) -> dict[str, Any]:
        """Return the place in the files and the pace's: where a block was read, and how much of it was given."""
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
        """Go on after a position. Where that was the end, it does not matter what has become of the files."""
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
        assert self._times is not None, "only recorded times are read ahead"
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
        self.base = 0.0  # when the lap began
        self.latest = 0.0  # when the line before was due
        line = texts([head])[0] if head else ""
        self.first = self._seconds(line) if head else 0.0  # time of the first line of all
        if self.first is None:
            problem = f"expected the first line to begin with a date like {self.stamp}, got {line[:60]!r}"
            raise InvalidInput("timestamps", f"{problem}; see strptime for the format")

    def of(self, lines: list[str]) -> list[float]:
        """Return when lines are due."""
        return [self._due(line) for line in lines]

    def turn(self, tail: bytes) -> None:
        """Begin the next lap when the last line of this one was due."""
        self._due(texts([tail])[0])
        self.base = self.latest

    def position(self) -> list[float | None]:
        """Return what must be known to go on."""
        return [self.first, self.base, self.latest, self.speed]

    def seek(self, position: Any) -> float:
        """Go on after a position, and return how many times faster than there; earlier versions do not say."""
        self.first, base, latest, *speed = position
        faster = self.speed / speed[0] if speed else 1.0
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
    """The dates with which lines begin."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.length = 0  # of the last date; most are equally long

    def __repr__(self) -> str:
        return repr(self.form)

    def __call__(self, line: str) -> float | None:
        """Return the date in seconds since 1970, or None where the line does not begin with one."""
        if self.length and not line[self.length : self.length + 1].isalnum():
            found = self._parse(line[: self.length])
            if isinstance(found, float):
                return found
        found = self._parse(line)
        if isinstance(found, str):  # what is left after the date
            self.length = len(line) - len(found)
            found = self._parse(line[: self.length])
        return found if isinstance(found, float) else None

    def _parse(self, text: str) -> float | str | None:
        try:
            date = datetime.strptime(text, self.form)
        except ValueError as error:
            _, told, rest = str(error).partition("unconverted data remains: ")
            return rest if told else None
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
