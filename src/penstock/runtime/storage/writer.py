"""Runs storage jobs in order, in a side thread, and keeps their results for the loop."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.runtime.storage.disk import Disk, Job, Posix


class Writer:
    """The storage thread of a worker or of the driver; it starts with the first job.

    It calls `wake` when a job is done; the loop then calls `conclude`. A job that fails by a defect, not by the disk,
    is reported like any other; if `strict`, `conclude` raises its exception.
    """

    def __init__(self, wake: Callable[[], None], disk: Disk | None = None, strict: bool = False) -> None:
        self._wake = wake
        self._strict = strict
        self._disk = disk or Posix()
        self._jobs: deque[Job] = deque()
        self._done: deque[tuple[Job, Any, str]] = deque()
        self._defect: Exception | None = None
        self._unfinished = 0  # jobs whose results the loop does not have yet
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """Whether the loop has the results of all jobs."""
        return self._unfinished == 0

    def add(self, jobs: Iterable[Job]) -> None:
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

    def _next(self) -> Job | None:
        with self._changed:
            while not self._jobs and not self._closed:
                self._changed.wait()
            return None if self._closed else self._jobs.popleft()
