"""A source of the batches of a Spark streaming DataFrame, which are written as files.

`foreachBatch` writes each batch to `batch-<id, 12 digits>.jsonl`, one JSON object per row, in the order of their ids.
Until a file is complete, its name starts with `_`. A file `_END` marks the end of the stream. A batch that Spark writes
again after a failure has the same id and rows; it is not read again.
"""

import os
import re
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from penstock.api.contracts import Source, TaskContext
from penstock.model.decoding import Undecodable, json_decoder, json_lines_decoder
from penstock.model.errors import FileProblem, InvalidInput

END = "_END"
LOOK = 0.05  # s between two scans of the folder

_BATCH = re.compile(r"batch-(\d{12})\.jsonl")


def batch_name(batch: int) -> str:
    """Return the file name of a batch."""
    return f"batch-{batch:012}.jsonl"


class Landed(Source[Any]):
    """The rows of a Spark streaming DataFrame, written to a folder: `Landed("landing", emits=Reading)`.

    folder: the folder of the batches, at the same path on every worker. It may be created later.
    emits: the type of the tuples: a msgspec Struct with the columns as fields, against which every row is checked, or
        dict. Columns that the Struct lacks are dropped.

    Task k of n reads the batches whose id modulo n is k. It ends when the file `_END` exists and all batches have been
    read.
    """

    rewinds = True

    def __init__(self, folder: str | Path, emits: type = dict) -> None:
        if not isinstance(emits, type) or not issubclass(emits, dict | msgspec.Struct):
            raise InvalidInput("emits", f"expected dict or a subclass of msgspec.Struct, got {emits!r}")
        self.folder = Path(os.path.abspath(folder))  # workers have other working directories
        self.emits = emits

    def check(self) -> None:
        """Reject a path that is a file."""
        if self.folder.exists() and not self.folder.is_dir():
            raise FileProblem(f"{self.folder}: expected a folder, this is a file; choose another path")

    def open(self, context: TaskContext) -> None:
        """Initialise the state; `poll` scans the folder."""
        self.check()
        self._task, self._tasks = context.task, context.tasks
        self._decode, self._decode_lines = json_decoder(self.emits), json_lines_decoder(self.emits)
        self._batch = 0  # the current batch, or the lowest id that may come next
        self._row = 0  # rows read from it
        self._last = b""  # the last of these rows
        self._file: BufferedReader | None = None
        self._ended = False
        self._waiting: list[int] = []  # batches found, the next one last
        self._look = -float("inf")  # when to scan the folder again

    def poll(self, now: float, limit: int) -> list[Any] | None:
        """Continue with the current batch, or start the next."""
        while True:
            if self._file is None and not self._waiting:
                if now < self._look and not self._ended:
                    return []
                self._ended = self._ended or (self._list(now) and not self._waiting)
                if not self._waiting:
                    return None if self._ended else []
            if self._file is None:
                self._begin(self._waiting.pop())
            if rows := self._read(limit):
                return rows

    def next_due(self, now: float) -> float:
        """Return when to scan the folder again."""
        return max(now, self._look)

    def position(self) -> dict[str, Any]:
        """Return the batch, the number of rows read, a checksum of the last, and whether no batch can follow."""
        return {"batch": self._batch, "row": self._row, "last": crc32(self._last), "ended": self._ended}

    def seek(self, position: dict[str, Any]) -> None:
        """Continue after a position; raise `FileProblem` if the batch has changed."""
        self._batch, self._ended = position["batch"], position["ended"]
        if not position["row"]:
            return
        self._begin(self._batch)
        assert self._file is not None, "open() was called"
        for line in islice(self._file, position["row"]):
            self._row, self._last = self._row + 1, line
        if self.position() != position:
            path, rows = self.folder / batch_name(self._batch), position["row"]
            problem = f"holds other rows than the {rows} that were read" if self._row == rows else f"lacks row {rows}"
            raise FileProblem(f"{path}: {problem}; restore it to continue")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _list(self, now: float) -> bool:
        """Find new batches of this task; return whether there will be no more."""
        self._look = now + LOOK
        ended = (self.folder / END).exists()  # before scanning for batches, or the last one could be missed
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise FileProblem.of(error, self.folder, "cannot be read", "check the path") from None
        found = (int(match[1]) for name in names if (match := _BATCH.fullmatch(name)))
        own = (batch for batch in found if batch % self._tasks == self._task and batch >= self._batch)
        self._waiting = sorted(own, reverse=True)
        return ended

    def _begin(self, batch: int) -> None:
        path = self.folder / batch_name(batch)
        with FileProblem.on(path, "cannot be read", "check the path"):
            self._file = path.open("rb")
        self._batch, self._row, self._last = batch, 0, b""

    def _read(self, limit: int) -> list[Any]:
        """Return the next rows of the batch; none at its end."""
        assert self._file is not None, "a batch is open"
        lines = list(islice(self._file, limit))
        if not lines:
            self.close()
            self._batch, self._row, self._last = self._batch + 1, 0, b""
            return []
        try:
            rows = self._decode_lines(b"".join(lines))
        except Undecodable:
            raise self._bad_row(lines) from None
        self._row, self._last = self._row + len(lines), lines[-1]
        return rows

    def _bad_row(self, lines: list[bytes]) -> FileProblem:
        """Return the error about the first invalid row."""
        path = self.folder / batch_name(self._batch)
        for number, line in enumerate(lines, self._row + 1):
            try:
                self._decode(line)
            except Undecodable as error:
                row = line.decode("utf-8", "replace").strip()[:80]
                return FileProblem(f"{path}: line {number}: expected {self.emits.__name__}, got {row!r}; {error}")
        raise AssertionError("rows that can be decoded individually can be decoded together")
