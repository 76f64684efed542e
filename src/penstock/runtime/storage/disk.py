"""What is written to disk, and when it counts as written.

The worker and the controller do no I/O themselves: they leave *jobs*, which a shell runs in order, outside the loop
that moves tuples, in a thread (`Writer`), and whose results it returns to them. So a simulated disk can be slow, full
or torn in a test.
"""

import contextlib
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.model.errors import FileProblem


class Disk(Protocol):
    """What jobs do to files. Paths are absolute. A method that fails raises OSError; absence is FileNotFoundError."""

    def write(self, path: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Write a file and its folder, and sync it; after a failure it may be torn."""

    def replace(self, path: str, data: bytes) -> None:
        """Replace a file atomically."""

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Read a part of a file; a negative size: to its end."""

    def publish(self, temporary: str, final: str) -> None:
        """Give a file its final name; never replace another file."""

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""

    def listed(self, folder: str) -> list[str]:
        """Return the names in a folder, sorted; none if it does not exist."""


@dataclass
class StorageJob:
    """An action on the disk, and what follows: `then(result, problem, now)`, in the loop's thread."""

    about: str
    do: Callable[[Disk], Any]
    then: Callable[[Any, str, float], None]

    def run(self, disk: Disk) -> tuple[Any, str]:
        """Run the action; return its result, and the problem if it failed."""
        try:
            return self.do(disk), ""
        except FileProblem as problem:
            return None, str(problem)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            return None, f"{where}{(error.strerror or str(error)).lower()}"


class Posix:
    """A local or shared POSIX file system."""

    def write(self, path: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Write a file and its folder, and sync it."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())

    def replace(self, path: str, data: bytes) -> None:
        """Write a temporary file, sync it, and rename it."""
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, f"_{name}.{os.getpid()}")
        try:
            self.write(temporary, [data])
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(folder)
        _sync_folder(os.path.dirname(folder))  # it may be new as well

    def read(self, path: str, offset: int = 0, size: int = -1) -> bytes:
        """Read a part of a file."""
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)

    def publish(self, temporary: str, final: str) -> None:
        """Give a file its final name by a link, which never replaces another file; then remove the old name."""
        try:
            os.link(temporary, final)
        except FileNotFoundError:
            if not os.path.exists(final):
                raise FileProblem(f"{final}: cannot be published, {temporary} is missing") from None
            return  # it was published before
        except FileExistsError:
            if not os.path.samefile(temporary, final):
                raise _taken(final) from None
        except OSError:  # a file system without links
            _rename(temporary, final)
        else:
            self.remove(temporary)
        _sync_folder(os.path.dirname(final))

    def remove(self, path: str) -> None:
        """Remove a file or a folder."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):
            shutil.rmtree(path)

    def listed(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        try:
            return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []


def _rename(temporary: str, final: str) -> None:
    """Rename a file, unless it has been renamed or another file has the name."""
    if not os.path.exists(final):
        os.rename(temporary, final)
    elif os.path.exists(temporary):
        raise _taken(final) from None


def _taken(final: str) -> FileProblem:
    return FileProblem(f"{final}: already exists and differs; use separate folders for two runs")


def _sync_folder(folder: str) -> None:
    handle = os.open(folder or os.curdir, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Writer:
    """The storage thread of a worker or of the driver; it starts with the first job.

    It calls `wake` when a job is done; the loop then calls `conclude`. A job that fails by a defect, not by the disk,
    is reported like any other; if `strict`, `conclude` raises its exception.
    """

    def __init__(self, wake: Callable[[], None], strict: bool = False) -> None:
        self._wake = wake
        self._strict = strict
        self._disk = Posix()
        self._jobs: deque[StorageJob] = deque()
        self._done: deque[tuple[StorageJob, Any, str]] = deque()
        self._defect: Exception | None = None
        self._unfinished = 0  # jobs whose results the loop does not have yet
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """Whether the loop has the results of all jobs."""
        return self._unfinished == 0

    def add(self, jobs: Iterable[StorageJob]) -> None:
        """Add jobs after the earlier ones; returns at once."""
        added = list(jobs)
        self._unfinished += len(added)
        with self._changed:
            self._jobs.extend(added)
            self._changed.notify()
        if self._thread is None and added:
            self._thread = threading.Thread(target=self._run, name="penstock storage", daemon=True)
            self._thread.start()

    def conclude(self) -> None:
        """Call `then` of the jobs that are done, in the calling thread."""
        if self._strict and self._defect is not None:
            raise self._defect
        while self._done:
            job, result, problem = self._done.popleft()
            self._unfinished -= 1
            job.then(result, problem, time.monotonic())

    def close(self, within_s: float = 2.0) -> None:
        """Start no further job, and wait up to `within_s` for the one in progress."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            try:
                result, problem = job.run(self._disk)
            except Exception as error:  # a defect: those who wait for the job must learn of it
                self._defect = error
                result, problem = None, f"{job.about}: {type(error).__name__}: {error}"
            self._done.append((job, result, problem))
            self._wake()

    def _next(self) -> StorageJob | None:
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            return None if self._closed else self._jobs.popleft()
