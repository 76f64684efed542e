"""A source of the batches of a Spark streaming DataFrame, which land as files.

`foreachBatch` writes each batch to `batch-<id, 12 digits>.jsonl`, one JSON object a row, under a name that begins with
`_` until it is complete, and in the order of their ids. A file `_END` says that no more will come. A batch that Spark
writes a second time after a failure has the same id and rows; one that was read already is not read again.
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
LOOK = 0.05  # s between two looks at the folder

_BATCH = re.compile(r"batch-(\d{12})\.jsonl")


def batch_name(batch: int) -> str:
    """Return the name of a batch's file."""
    return f"batch-{batch:012}.jsonl"


class Landed(Source[Any]):
    """The rows of a Spark streaming DataFrame that land in a folder: `Landed("landing", gives=Reading)`.

    folder: where the batches land; every worker must find it at that place. It need not be there yet.
    gives: the type of the tuples: a msgspec Struct with the columns as fields, against which every row is checked, or
        dict. A column that the Struct has not is left out.

    Task k of n takes the batches whose id divided by n leaves k. It ends when the file `_END` is there and all batches
    have been read.
    """

    rewinds = True

    def __init__(self, folder: str | Path, gives: type = dict) -> None:
        if not isinstance(gives, type) or not issubclass(gives, dict | msgspec.Struct):
            raise InvalidInput("gives", f"expected dict or a subclass of msgspec.Struct, got {gives!r}")
        self.folder = Path(os.path.abspath(folder))  # workers run elsewhere
        self.gives = gives

    def check(self) -> None:
        """Refuse a folder that is a file."""
        if self.folder.exists() and not self.folder.is_dir():
            raise FileProblem(f"{self.folder}: expected a folder, this is a file; give another path")

    def open(self, context: TaskContext) -> None:
        """Get ready; the folder is looked at by `poll`."""
        self.check()
        self._task, self._tasks = context.task, context.tasks
        self._decode, self._decode_lines = json_decoder(self.gives), json_lines_decoder(self.gives)
        self._batch = 0  # the batch that is read, or the least that may come next
        self._row = 0  # rows of it that were read
        self._last = b""  # of those
        self._file: BufferedReader | None = None
        self._ended = False
        self._waiting: list[int] = []  # batches seen, the next one last
        self._look = -float("inf")  # when to look at the folder again

    def poll(self, now: float, limit: int) -> list[Any] | None:
        """Read on in a batch, or begin the next."""
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
        """Say when to look at the folder again."""
        return max(now, self._look)

    def position(self) -> dict[str, Any]:
        """Return the batch, how many rows of it were read, a checksum of the last, and whether no batch can follow."""
        return {"batch": self._batch, "row": self._row, "last": crc32(self._last), "ended": self._ended}

    def seek(self, position: dict[str, Any]) -> None:
        """Go on after a position; raise `FileProblem` where the batch is another one now."""
        self._batch, self._ended = position["batch"], position["ended"]
        if not position["row"]:
            return
        self._begin(self._batch)
        assert self._file is not None, "it was opened"
        for line in islice(self._file, position["row"]):
            self._row, self._last = self._row + 1, line
        if self.position() != position:
            path, rows = self.folder / batch_name(self._batch), position["row"]
            problem = f"holds other rows than the {rows} that were read" if self._row == rows else f"lacks row {rows}"
            raise FileProblem(f"{path}: {problem}; put it back as it was to go on reading")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _list(self, now: float) -> bool:
        """Note the batches of this task that have come; return whether no more will."""
        self._look = now + LOOK
        ended = (self.folder / END).exists()  # before looking for batches, or the last could be missed
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise _unreadable(self.folder, error) from None
        found = (int(match[1]) for name in names if (match := _BATCH.fullmatch(name)))
        own = (batch for batch in found if batch % self._tasks == self._task and batch >= self._batch)
        self._waiting = sorted(own, reverse=True)
        return ended

    def _begin(self, batch: int) -> None:
        path = self.folder / batch_name(batch)
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise _unreadable(path, error) from None
        self._batch, self._row, self._last = batch, 0, b""

    def _read(self, limit: int) -> list[Any]:
        """Return the next rows of the batch; none at its end."""
        assert self._file is not None, "a batch was begun"
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
        """Return the complaint about the first row that is not as it should be."""
        path = self.folder / batch_name(self._batch)
        for number, line in enumerate(lines, self._row + 1):
            try:
                self._decode(line)
            except Undecodable as error:
                row = line.decode("utf-8", "replace").strip()[:80]
                return FileProblem(f"{path}: line {number}: expected {self.gives.__name__}, got {row!r}; {error}")
        raise AssertionError("rows that are decoded one by one are decoded together")


def _unreadable(path: Path, error: OSError) -> FileProblem:
    return FileProblem(f"{path}: cannot be read, {(error.strerror or str(error)).lower()}; check the path")
