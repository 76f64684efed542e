"""Recorded arrivals: the number of tuples up to a time, from files of four kinds.

Counts: one whole number per line, tuples in equal intervals (NASA-HTTP). Values: csv with a header `timestamp,value`,
tuples from that time to the next (NAB). Requests: csv whose header starts with `timestamp`, one tuple per row (Azure).
Packets: two columns without a header, seconds and bytes, one tuple per row (Bellcore). The first line determines the
kind.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import numpy as np

from penstock.model.errors import FileProblem
from penstock.model.files import read_text
from penstock.model.formats.reading import bad_line, parse_number, parse_whole_number
from penstock.model.slotted import Longs
from penstock.model.taskgraph import Floats


@dataclass(frozen=True)
class Trace:
    """The cumulative number of tuples as a function of time, over `seconds` from time 0.

    `times` ascends from 0; `tuples` is the number up to each time. Between two times, tuples are evenly distributed if
    they were counted by interval; if each was recorded, there are none.
    """

    times: Floats  # [N] s
    tuples: Floats  # [N]
    seconds: float  # at least the last time
    recorded: bool  # each tuple has its own time

    @property
    def total(self) -> float:
        """The number of tuples in the trace."""
        return float(self.tuples[-1])

    @property
    def rate(self) -> float:
        """Mean number of tuples per second."""
        return self.total / self.seconds

    def before(self, times: Floats) -> Floats:
        """Return the number of tuples before each time; the trace repeats after its end."""
        laps, within = np.divmod(times, self.seconds)
        if self.recorded:
            found = np.searchsorted(self.times, within, side="left").astype(np.float64)
        else:
            found = np.interp(within, self.times, self.tuples)
        return laps * self.total + found


def read_trace(path: str | Path, line_seconds: float = 1.0) -> Trace:
    """Read a trace; `line_seconds` is the interval of a line in a file of counts."""
    path = Path(path)
    lines = [line.strip() for line in read_text(path).splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    if not lines:
        raise FileProblem(f"{path}: expected a trace of arrivals, got an empty file")
    header = lines[0].lower().split(",")
    if header == ["timestamp", "value"]:
        trace = _values(path, lines)
    elif header[0] == "timestamp":
        trace = _recorded(path, [_seconds(path, n, line.split(",")[0]) for n, line in enumerate(lines[1:], 2)], 2)
    elif len(lines[0].split()) == 2:
        trace = _recorded(path, _packet_times(path, lines), 1)
    else:
        trace = _counts(path, lines, line_seconds)
    if trace.total <= 0:
        raise FileProblem(f"{path}: expected arrivals, got a trace of none; choose another")
    return trace


@cache
def recording(path: Path) -> Trace:
    """Return a trace that is played repeatedly; it is read once."""
    return read_trace(path)


def whole_tuples(cumulative: Floats) -> Longs:
    """Return the whole tuples between successive values of a running total, with rounding errors carried over."""
    tuples: Longs = np.diff(np.floor(cumulative + 0.5), axis=0).astype(np.int64)
    return tuples


def _counts(path: Path, lines: list[str], line_seconds: float) -> Trace:
    counts = [parse_whole_number(path, n, "count", line) for n, line in enumerate(lines, 1)]
    return _by_interval(np.arange(len(counts) + 1, dtype=np.float64) * line_seconds, np.array(counts, dtype=np.float64))


def _values(path: Path, lines: list[str]) -> Trace:
    times, counts = [], []
    for n, line in enumerate(lines[1:], 2):
        fields = line.split(",")
        if len(fields) != 2:
            raise bad_line(path, n, f"expected timestamp,value, got {line[:40]!r}")
        times.append(_seconds(path, n, fields[0]))
        counts.append(parse_number(path, n, "value", fields[1], least=0.0))
    starts = _ascending(path, times, 2, strictly=True)
    end = starts[-1] + float(np.median(np.diff(starts)))
    return _by_interval(np.append(starts, end), np.array(counts))


def _packet_times(path: Path, lines: list[str]) -> list[float]:
    times = []
    for n, line in enumerate(lines, 1):
        fields = line.split()
        if len(fields) != 2:
            raise bad_line(path, n, f"expected seconds and bytes, got {line[:40]!r}")
        times.append(parse_number(path, n, "seconds", fields[0], least=0.0))
        parse_number(path, n, "bytes", fields[1], least=0.0)
    return times


def _by_interval(edges: Floats, counts: Floats) -> Trace:
    return Trace(edges, np.concatenate([[0.0], np.cumsum(counts)]), float(edges[-1]), recorded=False)


def _recorded(path: Path, stamps: list[float], first_line: int) -> Trace:
    """Return a trace of single times; the last tuple is followed by a mean gap, so that repetition keeps the rate."""
    times = _ascending(path, stamps, first_line, strictly=False)
    gap = times[-1] / (len(times) - 1)
    if gap <= 0:
        raise FileProblem(f"{path}: expected times that differ, got {len(times)} equal ones")
    return Trace(times, np.arange(1.0, len(times) + 1), float(times[-1] + gap), recorded=True)


def _ascending(path: Path, stamps: list[float], first_line: int, strictly: bool) -> Floats:
    if len(stamps) < 2:
        raise FileProblem(f"{path}: expected two times or more, got {len(stamps)}; choose a longer trace")
    times = np.array(stamps) - stamps[0]
    gaps = np.diff(times)
    back = np.flatnonzero(gaps <= 0 if strictly else gaps < 0)
    if len(back):
        raise bad_line(
            path, first_line + int(back[0]) + 1, "expected a later time than in the previous line; sort the file"
        )
    return times


def _seconds(path: Path, line: int, text: str) -> float:
    try:
        stamp = datetime.fromisoformat(text.strip())
    except ValueError:
        raise bad_line(path, line, f"timestamp: expected YYYY-MM-DD hh:mm:ss, got {text[:40]!r}") from None
    return stamp.replace(tzinfo=stamp.tzinfo or UTC).timestamp()
