"""What all simulated processes share: virtual time, connections with delays, and a disk."""

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable
from functools import partial, wraps
from typing import Any, Protocol, TypeVar

from penstock.runtime.protocol.frames import decode_frame
from penstock.runtime.storage.disk import StorageJob
from penstock.testing.disk import MemoryDisk, Torn

START = 100.0


class SimulatedLine:
    """One direction of a connection: messages arrive in order, each after a delay, until it is cut.

    Messages of different connections have no order. A loss affects all messages from some point on, as in TCP, and the
    sender notices it sooner or later. `clear_at` is the arrival of the last message in transit; `slowness` is a factor
    on delays. Nothing arrives on a `broken` line; the owner decides how the ends react.
    """

    __slots__ = ("broken", "clear_at", "flight", "lossy", "receiver", "sender", "slowness", "take")

    def __init__(
        self, sender: "SimulatedProcess", receiver: "SimulatedProcess", take: Callable[[Any], None], slowness: float
    ) -> None:
        self.sender = sender
        self.receiver = receiver
        self.take = take  # called in the receiver, message by message
        self.slowness = slowness
        self.clear_at = 0.0
        self.broken = False
        self.lossy = False  # broken with a loss, of which the sender must be notified
        self.flight: deque[Any] = deque()

    def cut(self) -> None:
        """Discard messages in transit, and all later ones."""
        self.broken = True
        self.lossy = bool(self.flight)
        self.flight.clear()


class Simulation:
    """Time, connections and a disk. A seed determines all random delays."""

    def __init__(self, seed: int, delay_s: float, disk_s: float, trace: Callable[[str], None] | None) -> None:
        self.rng = random.Random(seed)  # noqa: S311  not for secrets
        self.disk = MemoryDisk()
        self.now = START
        self.events = 0
        self.counts: Counter[str] = Counter()
        self.trace = trace
        self._delay_s = delay_s
        self._disk_s = disk_s
        self._slow_until = 0.0  # of the disk
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._sequence = 0

    def at(self, when: float, step: Callable[[Any], None], argument: Any) -> None:
        """Schedule a call at a time."""
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, step, argument))

    def after(self, seconds: float, step: Callable[[Any], None], argument: Any) -> None:
        """Schedule a call after a delay."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + seconds, self._sequence, step, argument))

    def count(self, what: str) -> None:
        """Count an event."""
        self.events += 1
        self.note(what)

    def note(self, what: str) -> None:
        """Write a line of the trace."""
        if self.trace is not None:
            self.trace(f"{self.now - START:9.4f} {what}")

    def delay(self) -> float:
        """Return a random delay of a message on an ordinary line; a few are much longer."""
        share = self.rng.random()
        return self._delay_s * (0.2 + 0.35 * share / (1.02 - share))

    def slowness(self) -> float:
        """Return the slowness of a new line."""
        return self.rng.choice((0.3, 1.0, 1.0, 3.0, 10.0))

    def disk_delay(self) -> float:
        """Return the duration of a job."""
        slow = 60.0 if self.now < self._slow_until else 1.0
        return slow * self._disk_s * (0.2 + self.rng.expovariate(1.0))

    def slow_disk(self, seconds: float) -> None:
        """Make the disk slow for a while."""
        self._slow_until = self.now + seconds

    def send(self, line: SimulatedLine, message: Any) -> None:
        """Send a message over a line."""
        if line.broken:
            if not line.lossy:
                line.lossy = True
                line.sender.notice_loss(line)
            return
        when = self.now + line.slowness * self.delay()
        if when < line.clear_at:
            when = line.clear_at
        line.clear_at = when
        line.flight.append(message)
        self.at(when, self._arrive, line)

    def _arrive(self, line: SimulatedLine) -> None:
        receiver = line.receiver
        if line.broken or not receiver.alive:
            return
        if receiver.paused:
            receiver.held.append((self._arrive, line))
            return
        message = line.flight.popleft()
        self.events += 1
        if self.trace is not None:
            self.note(f"{line.sender.name} -> {receiver.name}: {_shown(message)}")
        line.take(message)


class JobObserver(Protocol):
    """Who learns what a process does on the disk."""

    def reached(self, label: str, process: "SimulatedProcess") -> None:
        """Note that a message or an action occurs."""

    def done(self, process: "SimulatedProcess", job: StorageJob, problem: str) -> None:
        """Note that a job is done."""


class SimulatedProcess:
    """A process: it runs, may be suspended, crashes, and has a disk with delays.

    `held` contains the actions that arrived during a suspension, to be executed in order afterwards.
    """

    def __init__(self, simulation: Simulation, observer: JobObserver, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[tuple[Callable[[Any], None], Any]] = []
        self.jobs: deque[StorageJob] = deque()
        self._observer = observer

    def store(self, jobs: list[StorageJob]) -> None:
        """Queue jobs after earlier ones."""
        begin = not self.jobs
        self.jobs.extend(jobs)
        if begin:
            self._begin_job()

    def _begin_job(self) -> None:
        if self.jobs:
            self._observer.reached("begin " + self.jobs[0].about.split(" ")[0], self)
            if self.alive:
                self.simulation.after(self.simulation.disk_delay(), self.end_job, self.jobs[0])

    def end_job(self, job: StorageJob) -> None:
        """Perform a job, and report its result."""
        if not self.alive or not self.jobs or self.jobs[0] is not job:
            return
        if self.paused:
            self.held.append((self.end_job, job))
            return
        result, problem = job.run(self.simulation.disk)
        self._observer.done(self, job, problem)
        if not self.alive:
            return  # its effect is on disk, but the result is lost
        self.jobs.popleft()
        self.conclude(job, result, problem)
        self._begin_job()

    def conclude(self, job: StorageJob, result: Any, problem: str) -> None:
        """Report the result of a job."""
        raise NotImplementedError

    def notice_loss(self, line: SimulatedLine) -> None:
        """Notice, after a while, that a line to another process is broken and something on it was lost."""
        raise NotImplementedError

    def pause(self, seconds: float) -> None:
        """Suspend the process for a while."""
        if self.alive and not self.paused:
            self.paused = True
            self.simulation.note(f"{self.name} is suspended for {seconds:.3f} s")
            self.simulation.after(seconds, self._resume, None)

    def _resume(self, _: object) -> None:
        if not self.alive:
            return
        self.paused = False
        self.simulation.count(f"{self.name} resumes")
        held, self.held = self.held, []
        for step, argument in held:
            self.simulation.at(self.simulation.now, step, argument)

    def tear(self) -> None:
        """Leave the current job as a crash of its process leaves it: undone, incomplete, or done."""
        disk, rng = self.simulation.disk, self.simulation.rng
        if self.jobs and rng.random() < 0.8:
            disk.torn_after, disk.torn_share = rng.randrange(4), rng.random()
            try:
                self.jobs[0].run(disk)
            except Torn:
                pass
            finally:
                disk.torn_after = -1
        self.jobs.clear()


P = TypeVar("P", bound=SimulatedProcess)
A = TypeVar("A")


def unless_paused(step: Callable[[P, A], None]) -> Callable[[P, A], None]:
    """Have a process take a step while it is alive; during a suspension, the step is held."""

    @wraps(step)
    def take(process: P, argument: A) -> None:
        if process.alive and process.paused:
            process.held.append((partial(take, process), argument))
        elif process.alive:
            step(process, argument)

    return take


def _shown(message: Any) -> str:
    if isinstance(message, bytes):
        message = decode_frame(message)
    text = repr(message)
    return text if len(text) < 240 else text[:239] + "…"
