"""Reads one task's share of text files, and continues from a position in them.

Files are read in *splits*: whole files, or byte ranges of large ones, which contain the lines that start in them. Task
k of n reads split j of file i if (i + j) mod n is k, so each split has one reader, which needs no information from the
others. A position contains enough information to detect changed files: continuing in changed files would lose some
lines and duplicate others.
"""

import math
import os
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

from penstock.api.contracts import TaskContext
from penstock.model.errors import FileProblem

BEFORE = 64  # bytes before a position that are compared
SHORTEST, LONGEST = 4096, 64 * 2**20  # bytes per split of a large file
SPLITS = 4  # per task, of large files


class LineReader:
    """The lines of one task, split by split, in the order of files and positions."""

    def __init__(self, path: Path, repeat: bool, context: TaskContext) -> None:
        self.path = path
        self.files = input_files(path)
        self.repeat = repeat
        self.task, self.tasks = context.task, context.tasks
        self.cut = _cut(self.files, self.tasks)  # bytes per split
        self.before = 0  # number of files before the first of `files`, if some were read and dropped
        self.line = 0  # number of lines of this task, over all splits and rounds
        self.lap = 0
        self.lap_line = 0  # the value of `line` at the start of the round
        self.ended = False
        self.number = 0  # index of the file
        self.file = open_file(self.files[0])
        self._summed: tuple[int, list[Any]] = (-1, [])  # the files from an index on, summarised
        self._begin(self._first_split())
        self._skip_exhausted()

    @property
    def share(self) -> tuple[int, int]:
        """Return this task's number among the tasks with splits, and their count."""
        first = [(number, self._splits(file)) for number, file in enumerate(self.files)]
        having = sorted({(number + j) % self.tasks for number, splits in first for j in range(min(splits, self.tasks))})
        return (having.index(self.task), len(having)) if self.task in having else (0, 1)

    def read(self, limit: int) -> list[str]:
        """Return the next lines of this task, at most `limit` and from one split; none at the end."""
        raw = list(islice(self.file, limit))
        size = sum(map(len, raw))
        if self.offset + size > self.stop:  # the last of them may start after the split
            size, count = 0, 0
            while self.offset + size < self.stop:
                size, count = size + len(raw[count]), count + 1
            del raw[count:]
            self.file.seek(self.offset + size)
        self.offset += size
        self.line += len(raw)
        self._skip_exhausted()
        return decode_lines(raw)

    @property
    def tail(self) -> bytes:
        """The last line of all files; empty if there is none."""
        for path in reversed(self.files):
            with open_file(path) as file:
                size = os.fstat(file.fileno()).st_size
                length = min(size, BEFORE)
                while length:
                    file.seek(size - length)
                    end = file.read(length)
                    begin = end.rfind(b"\n", 0, -1) + 1
                    if begin or length == size:
                        return end[begin:]
                    length = min(size, 2 * length)
        return b""

    def position(self) -> dict[str, Any]:
        """Return the position of the next line, and the properties of the files that must not change."""
        split = {"number": self.before + self.number, "split": self.split, "cut": self.cut, "tasks": self.tasks}
        place = {"file": self.files[self.number].name, "offset": self.offset, "line": self.line}
        return {**place, **split, **self._state(self.offset), "files": self._rest()}

    def seek(self, place: dict[str, Any]) -> None:
        """Continue at a position; raise `FileProblem` if the files have changed."""
        if place["tasks"] != self.tasks:
            problem = f"was read by {place['tasks']} tasks and has {self.tasks} now"
            raise FileProblem(f"{self.path}: {problem}; restart the run, or use the same number")
        self.files, self._summed = self._same_files(place), (-1, [])
        self.file.close()
        self.number = [path.name for path in self.files].index(place["file"])
        self.before, self.cut = place["number"] - self.number, place["cut"]
        self.line, self.lap_line, self.ended = place["line"], -1, False
        self.file = open_file(self.files[self.number])
        self._check_file(place)
        self._begin(place["split"])
        self.offset = place["offset"]
        self.file.seek(self.offset)
        self._skip_exhausted()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _splits(self, path: Path) -> int:
        """Return the number of splits of a file."""
        return max(1, math.ceil(path.stat().st_size / self.cut)) if self.cut else 1

    def _first_split(self) -> int:
        return (self.task - self.before - self.number) % self.tasks

    def _begin(self, split: int) -> None:
        """Start a split of the current file at the first line that starts in it."""
        splits = self._splits(self.files[self.number])
        self.split = split
        self.stop = (split + 1) * self.cut if split + 1 < splits else math.inf
        self.offset = 0
        if split >= splits:  # the file has no split for this task
            self.offset = self.stop = 0
        elif split:
            self.file.seek(split * self.cut - 1)
            self.offset = split * self.cut - 1 + len(self.file.readline())

    def _skip_exhausted(self) -> None:
        """Advance to the next split with lines if this one is exhausted."""
        while self.offset >= self.stop or not self.file.peek(1):
            if self.split + self.tasks < self._splits(self.files[self.number]):
                self._begin(self.split + self.tasks)
                continue
            last = self.number == len(self.files) - 1
            if last and (not self.repeat or self.line == self.lap_line):  # an empty round would repeat forever
                self.ended = True
                return
            if last:
                self.lap, self.lap_line = self.lap + 1, self.line
            self.file.close()
            self.number = 0 if last else self.number + 1
            self.file = open_file(self.files[self.number])
            self._begin(self._first_split())

    def _state(self, offset: int) -> dict[str, Any]:
        """Return properties that distinguish the file from others and from changed versions of itself."""
        handle = self.file.fileno()
        before = os.pread(handle, min(offset, BEFORE), max(0, offset - BEFORE))
        return {"size": os.fstat(handle).st_size, "before": crc32(before)}

    def _check_file(self, place: dict[str, Any]) -> None:
        found, path = self._state(place["offset"]), self.files[self.number]
        if found["size"] != place["size"]:
            problem = f"had {place['size']} bytes when it was read and has {found['size']} now"
            raise FileProblem(f"{path}: {problem}; restore it to continue")
        if found["before"] != place["before"]:
            problem = f"holds other lines before byte {place['offset']} than when it was read"
            raise FileProblem(f"{path}: {problem}; restore it to continue")

    def _rest(self) -> list[Any]:
        """Return a summary of the remaining files: their number, the last, and a checksum of their names."""
        if self._summed[0] != self.number:
            self._summed = (self.number, _summary(self.files if self.repeat else self.files[self.number :]))
        return self._summed[1]

    def _same_files(self, place: dict[str, Any]) -> list[Path]:
        """Return the remaining files, without those added after the last of them."""
        current, (count, last, _) = place["file"], place["files"]
        if self.path.is_dir() and current not in [path.name for path in self.files]:
            raise FileProblem(f"{self.path / current}: no longer exists; restore it to continue")
        rest = [path for path in self.files if (self.repeat or path.name >= current) and path.name <= last]
        if _summary(rest) != place["files"]:
            problem = f"expected the {count} remaining files, up to {last!r}, found {len(rest)}"
            raise FileProblem(f"{self.path}: {problem} or others; restore its content to continue")
        return rest


def first_line(path: Path) -> bytes:
    """Return the first line of all files; empty if there is none."""
    for one in input_files(path):
        with open_file(one) as file:
            if line := file.readline():
                return line
    return b""


def _cut(files: list[Path], tasks: int) -> int:
    """Return the bytes per split such that every task has some; 0: files are not divided."""
    if tasks == 1:
        return 0
    total = sum(file.stat().st_size for file in files)
    return min(max(SHORTEST, math.ceil(total / tasks / SPLITS)), LONGEST)


def input_files(path: Path) -> list[Path]:
    """Return the files to read, in order."""
    if not path.exists():
        raise FileProblem(f"{path}: does not exist; choose a file or folder that exists on every worker")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith(("_", ".")))
    if not files:
        raise FileProblem(f"{path}: expected files in this folder, found none; add some or choose another")
    return files


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading bytes."""
    with FileProblem.on(path, "cannot be read", "check the path"):
        return path.open("rb")


def decode_lines(raw: list[bytes]) -> list[str]:
    """Decode lines without their line ends; only the last may lack one."""
    return b"".join(raw).decode("utf-8", "replace").replace("\r\n", "\n").split("\n")[: len(raw)]


def _summary(files: list[Path]) -> list[Any]:
    names = [path.name for path in files]
    return [len(names), names[-1] if names else "", crc32("\n".join(names).encode("utf-8", "surrogateescape"))]
