"""The task whose code a worker runs, published in a few bytes of a file that survives the process.

A killed process reports nothing. The operating system keeps what the process wrote to memory that is shared with a
file in the run's folder, so the controller can name the task that was running.
"""

import mmap
import os
import struct
from array import array
from collections.abc import MutableSequence
from pathlib import Path

from penstock.runtime.storage.disk import Disk
from penstock.runtime.worker.task import Task

NO_TASK = -1  # the worker waits, or runs no author's code
FOLDER = "workers"
_LAYOUT = struct.Struct("=qq")  # incarnation, task


class RunningTask:
    """The task whose code runs, or ran last; errors and log lines are attributed to it."""

    def __init__(self) -> None:
        self.task: Task | None = None
        self._published: MutableSequence[int] = array("q", [NO_TASK])

    def set(self, task: Task | None) -> None:
        """Attribute later errors and log lines to a task, or to none."""
        self.task = task
        self._published[0] = NO_TASK if task is None else task.number

    def clear(self) -> None:
        """Publish that no task runs; errors are still attributed to the last one."""
        self._published[0] = NO_TASK

    def publish(self, folder: str, site: str, incarnation: int) -> None:
        """Publish the task in a file of the run's folder; without effect if the file cannot be created."""
        path = Path(_path(folder, site))
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            path.unlink(missing_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(descriptor, _LAYOUT.pack(incarnation, NO_TASK))
                shared = mmap.mmap(descriptor, _LAYOUT.size)
            finally:
                os.close(descriptor)
        except OSError:
            return
        self._published = memoryview(shared).cast("q")[1:]  # type: ignore[assignment]


def last_running(disk: Disk, folder: str, site: str, incarnation: int) -> int:
    """Return the task that a worker ran last, or `NO_TASK`."""
    data = disk.read(_path(folder, site))
    owner, task = _LAYOUT.unpack(data) if len(data) == _LAYOUT.size else (0, NO_TASK)
    return task if owner == incarnation else NO_TASK


def _path(folder: str, site: str) -> str:
    return os.path.join(folder, FOLDER, f"{site.replace('/', '.')}.task")
