"""The file of a part while it is written: a full disk costs a sink time, never a tuple.

What is written is kept in memory until the disk has taken it. So a batch is taken or refused as a whole, whatever it is
encoded as, and a part that could not be completed because the disk was full can be completed later.
"""

import errno
import os
from collections import deque
from io import FileIO
from pathlib import Path

KEPT = 1 << 16  # bytes in memory, beyond which the disk is to take them
FULL = (errno.ENOSPC, errno.EDQUOT)  # what a disk says that has no room


class PartFile:
    """A file to which a part is written, from memory; it is made when the disk is to take the first of it."""

    closed = False  # for Arrow, which writes only to what is open

    def __init__(self, path: Path, final: Path) -> None:
        self.path = path
        self.final = final  # the name that it is to get
        self.kept = 0  # bytes in memory
        self._pieces: deque[bytes] = deque()
        self._file: FileIO | None = None
        self._problem: OSError | None = None

    def write(self, data: bytes) -> int:
        """Take what is to be written; it never fails."""
        self._pieces.append(bytes(data))
        self.kept += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing, for Arrow: the disk takes what is written when the sink says so."""

    def drain(self, most: int) -> None:
        """Have the disk take what is kept, where it is more than `most` bytes; where that fails, the rest is kept."""
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
        """Have the disk take everything, so that it would outlast a power cut, and close the file."""
        if self._problem is not None:  # after a sync that failed, the next would succeed without having synced anything
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
        """Close and remove the file."""
        if self._file is not None:
            self._file.close()
            self.path.unlink(missing_ok=True)

    def _opened(self) -> FileIO:
        if self._file is None:
            self._file = self.path.open("wb", buffering=0)
        return self._file

    def _next_block(self) -> bytes:
        """Take pieces off the front, enough for one write."""
        pieces, size = [], 0
        while self._pieces and size < KEPT:
            pieces.append(self._pieces.popleft())
            size += len(pieces[-1])
        return b"".join(pieces)
