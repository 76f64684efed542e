"""The file of a part while it is written: a full disk delays a sink, but loses no tuple.

Data is buffered in memory until the disk has accepted it. So a batch is accepted or rejected as a whole, whatever its
encoding, and a part that could not be completed because the disk was full can be completed later.
"""

import errno
import os
from collections import deque
from io import FileIO
from pathlib import Path

KEPT = 1 << 16  # bytes in memory, beyond which they are written to disk
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a full disk


class PartFile:
    """A file to which a part is written, buffered in memory; it is created at the first write to disk."""

    closed = False  # required by Arrow

    def __init__(self, path: Path, final: Path) -> None:
        self.path = path
        self.final = final  # its final name
        self.kept = 0  # bytes in memory
        self._pieces: deque[bytes] = deque()
        self._file: FileIO | None = None
        self._problem: OSError | None = None

    def write(self, data: bytes) -> int:
        """Buffer data; this never fails."""
        self._pieces.append(bytes(data))
        self.kept += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing, for Arrow: the sink decides when to write to disk."""

    def drain(self, most: int) -> None:
        """Write the buffer to disk if it exceeds `most` bytes; after an error, the unwritten rest is kept."""
        if self.kept <= most:
            return
        file = self._opened()
        while self._pieces:
            block = self._next_block()
            try:
                written = file.write(block)
            except OSError:
                self._pieces.appendleft(block)
                raise
            self.kept -= written
            if written < len(block):
                self._pieces.appendleft(block[written:])

    def complete(self) -> None:
        """Write and sync everything to disk, and close the file."""
        if self._problem is not None:  # after a failed sync, the next one would succeed without having synced anything
            raise self._problem
        self.drain(0)
        file = self._opened()
        try:
            os.fsync(file.fileno())
        except OSError as problem:
            self._problem = problem
            raise
        file.close()

    def drop(self) -> None:
        """Close and delete the file."""
        if self._file is not None:
            self._file.close()
            self.path.unlink(missing_ok=True)

    def _opened(self) -> FileIO:
        if self._file is None:
            self._file = self.path.open("wb", buffering=0)
        return self._file

    def _next_block(self) -> bytes:
        """Remove pieces from the front of the buffer, enough for one write."""
        pieces, size = [], 0
        while self._pieces and size < KEPT:
            pieces.append(self._pieces.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)
