"""Reads the share of one task from text files, and finds its place in them again.

Files are read by *splits*: whole files, or byte ranges of large ones, in which those lines count that begin there. Task
k of n reads split j of file i where (i + j) mod n is k, so that each split has one reader, which needs nothing of the
others. A place says enough of the files to notice that they are not the ones any more that were read: going on in
others would lose some lines and give others twice.
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

BEFORE = 64  # bytes before a place that are compared
SHORTEST, LONGEST = 4096, 64 * 2**20  # bytes of a split of a file that is cut
SPLITS = 4  # for each task, of files that are large enough


class LineReader:
    """The lines of one task, from one split after the other, in the order of files and places in them."""

    def __init__(self, path: Path, repeat: bool, context: TaskContext) -> None:
        self.path = path
        self.files = files_of(path)
        self.repeat = repeat
        self.task, self.tasks = context.task, context.tasks
        self.cut = _cut(self.files, self.tasks)  # bytes of a split
        self.before = 0  # files before the first of `files`, where some of those have been read and left out
        self.line = 0  # of this task, counted over all splits and laps
        self.lap = 0
        self.lap_line = 0  # with which the lap began
        self.ended = False
        self.number = 0  # of the file
        self.file = open_file(self.files[0])
        self._summed: tuple[int, list[Any]] = (-1, [])  # the files from a number on, summed up
        self._begin(self._first_split())
        self._go_on()

    @property
    def share(self) -> tuple[int, int]:
        """Return which of the tasks that have splits this one is, and how many they are."""
        first = [(number, self._splits(file)) for number, file in enumerate(self.files)]
        having = sorted({(number + j) % self.tasks for number, splits in first for j in range(min(splits, self.tasks))})
        return (having.index(self.task), len(having)) if self.task in having else (0, 1)

    def read(self, limit: int) -> list[str]:
        """Return the next lines of this task, at most `limit` and from one split; there are none at the end."""
        raw = list(islice(self.file, limit))
        size = sum(map(len, raw))
        if self.offset + size > self.stop:  # the last of them may begin behind the split
            size, count = 0, 0
            while self.offset + size < self.stop:
                size, count = size + len(raw[count]), count + 1
            del raw[count:]
            self.file.seek(self.offset + size)
        self.offset += size
        self.line += len(raw)
        self._go_on()
        return texts(raw)

    @property
    def tail(self) -> bytes:
        """The last line of all files; empty where there is none."""
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
        """Return the place of the next line, and of the files what must not change."""
        split = {"number": self.before + self.number, "split": self.split, "cut": self.cut, "tasks": self.tasks}
        place = {"file": self.files[self.number].name, "offset": self.offset, "line": self.line}
        return {**place, **split, **self._state(self.offset), "files": self._rest()}

    def seek(self, place: dict[str, Any]) -> None:
        """Go to a place; raise `FileProblem` where the files have changed."""
        if place.get("tasks", 1) != self.tasks:
            problem = f"was read by {place.get('tasks', 'an earlier version or 1')} tasks and has {self.tasks} now"
            raise FileProblem(f"{self.path}: {problem}; start the run again, or with as many")
        self.files, self._summed = self._same_files(place), (-1, [])
        self.file.close()
        self.number = [path.name for path in self.files].index(place["file"])
        self.before, self.cut = place.get("number", self.number) - self.number, place.get("cut", 0)
        self.line, self.lap_line, self.ended = place["line"], -1, False
        self.file = open_file(self.files[self.number])
        self._check_file(place)
        self._begin(place.get("split", 0))
        self.offset = place["offset"]
        self.file.seek(self.offset)
        self._go_on()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _splits(self, path: Path) -> int:
        """Return how many splits a file has."""
        return max(1, math.ceil(path.stat().st_size / self.cut)) if self.cut else 1

    def _first_split(self) -> int:
        return (self.task - self.before - self.number) % self.tasks

    def _begin(self, split: int) -> None:
        """Begin with a split of the current file: with the first line that begins in it."""
        splits = self._splits(self.files[self.number])
        self.split = split
        self.stop = (split + 1) * self.cut if split + 1 < splits else math.inf
        self.offset = 0
        if split >= splits:  # the file has none for this task
            self.offset = self.stop = 0
        elif split:
            self.file.seek(split * self.cut - 1)
            self.offset = split * self.cut - 1 + len(self.file.readline())

    def _go_on(self) -> None:
        """Go to the next split that has lines, where this one has none left."""
        while self.offset >= self.stop or not self.file.peek(1):
            if self.split + self.tasks < self._splits(self.files[self.number]):
                self._begin(self.split + self.tasks)
                continue
            last = self.number == len(self.files) - 1
            if last and (not self.repeat or self.line == self.lap_line):  # a lap without a line has no next
                self.ended = True
                return
            if last:
                self.lap, self.lap_line = self.lap + 1, self.line
            self.file.close()
            self.number = 0 if last else self.number + 1
            self.file = open_file(self.files[self.number])
            self._begin(self._first_split())

    def _state(self, offset: int) -> dict[str, Any]:
        """Return what tells the file from another, or from itself when it has changed."""
        handle = self.file.fileno()
        before = os.pread(handle, min(offset, BEFORE), max(0, offset - BEFORE))
        return {"size": os.fstat(handle).st_size, "before": crc32(before)}

    def _check_file(self, place: dict[str, Any]) -> None:
        found, path = self._state(place["offset"]), self.files[self.number]
        if found["size"] != place["size"]:
            problem = f"had {place['size']} bytes when it was read and has {found['size']} now"
            raise FileProblem(f"{path}: {problem}; put it back as it was to go on reading")
        if found["before"] != place["before"]:
            problem = f"holds other lines before byte {place['offset']} than when it was read"
            raise FileProblem(f"{path}: {problem}; put it back as it was to go on reading")

    def _rest(self) -> list[Any]:
        """Return the files that are to be read, summed up: how many, the last, and a checksum of their names."""
        if self._summed[0] != self.number:
            self._summed = (self.number, _summary(self.files if self.repeat else self.files[self.number :]))
        return self._summed[1]

    def _same_files(self, place: dict[str, Any]) -> list[Path]:
        """Return the files that were to be read; those that were added after the last of them are left out."""
        current, (count, last, _) = place["file"], place["files"]
        if self.path.is_dir() and current not in [path.name for path in self.files]:
            raise FileProblem(f"{self.path / current}: no longer there; put it back to go on reading")
        rest = [path for path in self.files if (self.repeat or path.name >= current) and path.name <= last]
        if _summary(rest) != place["files"]:
            problem = f"expected the {count} files that were to be read, up to {last!r}, found {len(rest)}"
            raise FileProblem(f"{self.path}: {problem} or others; put back what it held to go on reading")
        return rest


def first_line(path: Path) -> bytes:
    """Return the first line of all files; empty where there is none."""
    for one in files_of(path):
        with open_file(one) as file:
            if line := file.readline():
                return line
    return b""


def _cut(files: list[Path], tasks: int) -> int:
    """Return how many bytes a split has, so that every task has some; 0: files are not cut."""
    if tasks == 1:
        return 0
    total = sum(file.stat().st_size for file in files)
    return min(max(SHORTEST, math.ceil(total / tasks / SPLITS)), LONGEST)


def files_of(path: Path) -> list[Path]:
    """Return the files to read, in order."""
    if not path.exists():
        raise FileProblem(f"{path}: does not exist; give a file or folder that every worker finds there")
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith(("_", ".")))
    if not files:
        raise FileProblem(f"{path}: expected files in this folder, found none; put some there or give another")
    return files


def open_file(path: Path) -> BufferedReader:
    """Open a file to read its bytes."""
    try:
        return path.open("rb")
    except OSError as error:
        raise FileProblem(f"{path}: cannot be read, {(error.strerror or str(error)).lower()}; check the path") from None


def texts(raw: list[bytes]) -> list[str]:
    """Decode lines and drop their ends; only the last may lack its end."""
    return b"".join(raw).decode("utf-8", "replace").replace("\r\n", "\n").split("\n")[: len(raw)]


def _summary(files: list[Path]) -> list[Any]:
    names = [path.name for path in files]
    return [len(names), names[-1] if names else "", crc32("\n".join(names).encode("utf-8", "surrogateescape"))]
