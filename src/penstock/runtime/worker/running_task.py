"""Which task a worker runs, kept where it outlasts the process: a few bytes of a file in the run's folder.

A process that is killed, or that kills itself, says nothing any more. The system keeps what it had written to memory
that it shares with a file, so that the controller can name the task that was running.
"""

import mmap
import os
import struct
from array import array
from collections.abc import MutableSequence
from pathlib import Path

from penstock.runtime.storage.disk import Disk

NOTHING = -1  # no task: the worker waits, or does something else
FOLDER = "workers"
_LAYOUT = struct.Struct("=qq")  # incarnation, task


def nowhere() -> MutableSequence[int]:
    """Return a footprint that nobody will see."""
    return array("q", [NOTHING])


def leave(folder: str, site: str, incarnation: int) -> MutableSequence[int]:
    """Return a footprint in a file; where it cannot be made, one that nobody will see."""
    path = Path(_path(folder, site))
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, _LAYOUT.pack(incarnation, NOTHING))
            shared = mmap.mmap(descriptor, _LAYOUT.size)
        finally:
            os.close(descriptor)
    except OSError:
        return nowhere()
    return memoryview(shared).cast("q")[1:]  # type: ignore[return-value]


def found(disk: Disk, folder: str, site: str, incarnation: int) -> int:
    """Return the task that a worker ran last, or `NOTHING`."""
    data = disk.read(_path(folder, site))
    whose, task = _LAYOUT.unpack(data) if len(data) == _LAYOUT.size else (0, NOTHING)
    return task if whose == incarnation else NOTHING


def _path(folder: str, site: str) -> str:
    return os.path.join(folder, FOLDER, f"{site.replace('/', '.')}.task")
