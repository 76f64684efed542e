"""A process of a simulated cluster: it runs, may be suspended, crashes, and has a disk with delays."""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.runtime.storage.disk import Job
from penstock.testing.disk import Torn

if TYPE_CHECKING:
    from penstock.testing.faults import FaultyCluster


class Process:
    """A process: it runs, may be suspended, and has a disk with delays.

    `held` contains the actions that arrived during a suspension, to be executed in order afterwards.
    """

    def __init__(self, cluster: "FaultyCluster", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[tuple[Callable[[Any], None], Any]] = []
        self.jobs: deque[Job] = deque()

    def store(self, jobs: list[Job]) -> None:
        """Queue jobs after earlier ones."""
        begin = not self.jobs
        self.jobs.extend(jobs)
        if begin:
            self._begin_job()

    def _begin_job(self) -> None:
        if self.jobs:
            cluster = self.cluster
            cluster.reached("begin " + self.jobs[0].about.split(" ")[0], self)
            if self.alive:
                cluster.after(cluster.disk_delay(), self.end_job, self.jobs[0])

    def end_job(self, job: Job) -> None:
        """Perform a job, and report its result."""
        cluster = self.cluster
        if not self.alive or not self.jobs or self.jobs[0] is not job:
            return
        if self.paused:
            self.held.append((self.end_job, job))
            return
        result, problem = job.run(cluster.disk)
        cluster.done(self, job, problem)
        if not self.alive:
            return  # its effect is on disk, but the result is lost
        self.jobs.popleft()
        self.conclude(job, result, problem)
        self._begin_job()

    def conclude(self, job: Job, result: Any, problem: str) -> None:
        """Report the result of a job."""
        raise NotImplementedError

    def tear(self) -> None:
        """Leave the current job as a crash of its process leaves it: undone, incomplete, or done."""
        disk, rng = self.cluster.disk, self.cluster.rng
        if self.jobs and rng.random() < 0.8:
            disk.torn_after, disk.torn_share = rng.randrange(4), rng.random()
            try:
                self.jobs[0].run(disk)
            except Torn:
                pass
            finally:
                disk.torn_after = -1
        self.jobs.clear()
