"""What the parts of a controller leave for its shell: commands, storage jobs, log lines, connections to close."""

import heapq
import math
import time
from collections.abc import Callable

from penstock.runtime.controller.membership import Membership
from penstock.runtime.handle import LogLine
from penstock.runtime.protocol.controller_messages import Command
from penstock.runtime.storage.disk import StorageJob


class ControllerOutbox:
    """The effects of a controller. Its shell takes them after every step; scheduled steps run in its own `tick`."""

    def __init__(self, members: Membership) -> None:
        self.commands: list[tuple[int, Command]] = []  # worker, command
        self.jobs: list[StorageJob] = []
        self.lines: list[LogLine] = []
        self.closing: list[int] = []  # workers whose connections are to be closed
        self._members = members
        self._steps: list[tuple[float, int, Callable[[float], None]]] = []  # heap
        self._count = 0

    def send(self, worker: int, command: Command) -> None:
        """Send a command to a worker."""
        self.commands.append((worker, command))

    def broadcast(self, command: Command) -> None:
        """Send a command to every worker that has been assigned an epoch."""
        self.commands += [(number, command) for number in self._members.assigned]

    def store(self, job: StorageJob) -> None:
        """Run a storage job, after the earlier ones."""
        self.jobs.append(job)

    def schedule(self, when: float, step: Callable[[float], None]) -> None:
        """Call a function at a time, with the time."""
        self._count += 1
        heapq.heappush(self._steps, (when, self._count, step))

    def warn(self, text: str) -> None:
        """Log a warning."""
        self.lines.append(LogLine(time.time(), "warning", "", None, "controller", text))

    def close(self, worker: int) -> None:
        """Close the connections of a worker."""
        self.closing.append(worker)

    # What the controller and its shell take

    @property
    def next_step(self) -> float:
        """When the next scheduled step is due."""
        return self._steps[0][0] if self._steps else math.inf

    def run_steps(self, now: float) -> None:
        """Call the scheduled functions that are due."""
        while self.next_step <= now:
            heapq.heappop(self._steps)[2](now)

    def take_commands(self) -> list[tuple[int, Command]]:
        """Return the commands since the last call."""
        commands, self.commands = self.commands, []
        return commands

    def take_jobs(self) -> list[StorageJob]:
        """Return the storage jobs since the last call."""
        jobs, self.jobs = self.jobs, []
        return jobs

    def take_lines(self) -> list[LogLine]:
        """Return the log lines since the last call."""
        lines, self.lines = self.lines, []
        return lines

    def take_closing(self) -> list[int]:
        """Return the workers whose connections are to be closed, since the last call."""
        closing, self.closing = self.closing, []
        return closing
