"""Reads the share of one task from text files, and finds its place in them again.

A place says enough of the files to notice that they are not the ones any more that were read: going on in others would
lose some lines and give others twice, all the more as every task counts the lines of all.
"""

import os
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

from penstock.api.contracts import TaskContext
from penstock.model.errors import FileProblem

BEFORE = 64  # bytes before a place that are compared


class LineReader:
    """The lines of one task, from one file after the other; all lines are read, the others' are dropped."""

    def __init__(self, path: Path, repeat: bool, context: TaskContext) -> None:
        self.path = path
        self.files = files_of(path)
        self.repeat = repeat
        self.task, self.tasks = context.task, context.tasks
        self.line = 0  # number of the next line, counted over all files and laps
        self.lap = 0
        self.lap_line = 0  # with which the lap began
        self.head = self.tail = b""  # the first line of all, and the last one read
        self.ended = False
        self.number = 0  # of the file
        self.file = open_file(self.files[0])
        self._summed: tuple[int, list[Any]] = (-1, [])  # the files from a number on, summed up
        self._go_on()

    def read(self, limit: int) -> list[str]:
        """Return the next lines of this task, at most `limit` and from one file; it may hold none of them."""
        skip = (self.task - self.line) % self.tasks
        raw = list(islice(self.file, skip + (limit - 1) * self.tasks + 1))
        if raw:
            self.tail = raw[-1]
            self.head = raw[0] if self.line == 0 else self.head
        self.line += len(raw)
        self._go_on()
        return texts(raw[skip :: self.tasks])

    def position(self) -> dict[str, Any]:
        """Return the place of the next line, and of the files what must not change."""
        offset = self.file.tell()
        place = {"file": self.files[self.number].name, "offset": offset, "line": self.line}
        return {**place, **self._state(offset), "files": self._rest()}

    def seek(self, place: dict[str, Any]) -> None:
        """Go to a place; raise `FileProblem` where the files have changed."""
        self.files, self._summed = self._same_files(place), (-1, [])
        self.file.close()
        self.number = [path.name for path in self.files].index(place["file"])
        self.line, self.lap_line, self.ended = place["line"], -1, False
        self.file = open_file(self.files[self.number])
        self._check_file(place)
        self.file.seek(place["offset"])
        self._go_on()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def _go_on(self) -> None:
        """Open the next file that has lines, where this one has none left."""
        while not self.file.peek(1):
            last = self.number == len(self.files) - 1
            if last and (not self.repeat or self.line == self.lap_line):  # a lap without a line has no next
                self.ended = True
                return
            if last:
                self.lap, self.lap_line = self.lap + 1, self.line
            self.file.close()
            self.number = 0 if last else self.number + 1
            self.file = open_file(self.files[self.number])

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
