"""Runs tasks at the processor's speed: polls sources, takes batches from inboxes, emits their results."""

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Any

from penstock.runtime.protocol.controller_messages import Route
from penstock.runtime.protocol.frames import Envelope
from penstock.runtime.worker.execution.interface import Handlers, MachineUsage
from penstock.runtime.worker.input import Delivery
from penstock.runtime.worker.output import SampledTuple
from penstock.runtime.worker.routing import TaskDirectory
from penstock.runtime.worker.running_task import RunningTask
from penstock.runtime.worker.task import CHUNK, TURN_S, Task
from penstock.runtime.worker.tracing import Tracer

UNSENT = 64 * 1024  # bytes waiting for sockets, above which a sending policy releases nothing
SOON_S = 1e-3
QUEUE_S = 0.25  # s of processing time in flight on all channels of a task
FIRST_WINDOW = 32  # tuples, while their processing time is unknown
MIN_WINDOW = 2


class Direct:
    """The tasks of one worker process."""

    hands_over = True
    timed = True

    def __init__(
        self,
        clock: Callable[[], float],
        directory: TaskDirectory,
        tracer: Tracer,
        running: RunningTask,
        max_window: int,
        unsent: Callable[[], int],
    ) -> None:
        self.now = clock
        self._directory = directory
        self._tasks = directory.here
        self._tracer = tracer
        self._running = running
        self._max_window = max_window
        self._unsent = unsent  # bytes waiting to be sent to other workers
        self._handlers: Handlers
        self._lag = 0.0
        self._first = 0  # the first task of the next turn
        self._scheduled: list[tuple[float, int, Callable[[float], None]]] = []  # heap
        self._order = count()

    def connect(self, handlers: Handlers) -> None:
        """Set the callbacks."""
        self._handlers = handlers

    def close(self) -> None:
        """Stop: there is nothing to close."""

    # Time

    def sync(self) -> None:
        """Note an external input: the clock needs no update."""

    def call_at(self, when: float, step: Callable[[float], None]) -> None:
        """Call a function at a time."""
        heapq.heappush(self._scheduled, (when, next(self._order), step))

    def _call_due(self) -> bool:
        """Make the calls that are due, but not those that they schedule; return whether there were any."""
        now, called = self.now(), False
        for _ in range(len(self._scheduled)):
            if self._scheduled[0][0] > now:
                break
            heapq.heappop(self._scheduled)[2](now)
            called = True
        return called

    def turn(self, now: float) -> bool:
        """Run tasks, upstream before downstream; make scheduled calls before and after.

        Every task runs once. When the time is over, the remaining tasks come first in the next turn.
        """
        busy = bool(self._scheduled) and self._call_due()
        tasks, clock = list(self._tasks.values()), self.now
        first, self._first = min(self._first, len(tasks)), 0
        deadline = now + TURN_S
        for place, task in enumerate(tasks[first:] + tasks[:first], first + 1):
            if task.context.timers:  # before tuples, which would fill the out-queues
                self._running.set(task)
                task.fire_timers(clock())
            if task.is_source:
                busy |= self._poll(task)
            elif task.inbox.waiting and not task.suspended:
                busy |= self._work(task, deadline)
            if clock() >= deadline:
                self._first = place % len(tasks)
                busy = True
                break
        if self._scheduled:
            busy |= self._call_due()
        return busy

    def wakeup(self) -> float:
        """Return when the next source, timer or retry is due."""
        due = self._scheduled[0][0] if self._scheduled else math.inf
        for task in self._tasks.values():
            if task.is_source and not task.ended and not task.suspended:
                polled = task.next_poll_allowed()
                if polled > 0.0 and not task.full() and task.room() > 0:
                    due = min(due, polled)
                due = min(due, task.next_progress())
            due = min(due, task.next_timer)
            guard = task.guard
            if guard is not None and guard.retry_at > 0.0 and task.inbox.waiting and not task.suspended:
                due = min(due, math.inf if task.full() else guard.retry_at)
        return due

    # Tasks

    def _poll(self, task: Task) -> bool:
        """Poll a source and emit its tuples; return whether to poll it again at once."""
        if task.ended or task.suspended:
            return False
        self._running.set(task)
        clock = self.now
        now = clock()
        if task.finishing:
            task.mark_progress(math.inf)
            self._handlers.finish(task)
            return False
        task.mark_progress(now)
        polled = task.poll(now, CHUNK, timed=True)
        if polled is None:
            return task.finishing
        started, size = clock(), len(polled.values)
        task.batch_size.add(size, started - now)
        self._lag = max(self._lag, started - polled.ready[0])
        sampled = self._tracer.sample(task, polled.dues, started)
        task.count_emitted(size)
        task.put(polled.values, sampled)
        task.add_busy(clock() - started)
        return True

    def _work(self, task: Task, deadline: float) -> bool:
        """Process the waiting tuples of a task; return whether more are waiting."""
        clock, inbox, left = self.now, task.inbox, CHUNK
        self._running.set(task)
        while inbox.waiting and left > 0:
            started, full = clock(), task.full()
            task.note_blocked(started, full)
            if full or (task.guard is not None and task.guard.retry_at > started):
                return False
            item = inbox.waiting[0]
            if not isinstance(item, Delivery):
                inbox.waiting.popleft()
                self._handlers.take_marker(task, *item)
                if task.saving:
                    return False
                continue
            before = item.taken
            self._process(task, item, started, deadline)
            size, now = item.taken - before, clock()
            inbox.drop_taken(size)
            task.add_busy(now - started)
            self._handlers.processed(task, item.channel, size, item.arrived)
            left -= size
            if now >= deadline:
                break
        return bool(inbox.waiting)

    def _process(self, task: Task, item: Delivery, started: float, deadline: float) -> None:
        """Process tuples of a batch, each sampled one alone, until the time is over or the next needs a later retry."""
        clock, guard, size = self.now, task.guard, task.batch_size
        if task.keyed is not None:
            task.keyed.select(item.channel.stream)
        emitted: list[Any] = []
        sampled: list[SampledTuple] = []
        left = min(task.portion(), len(item.values) - item.taken)
        while left > 0:
            values, mark = item.peek(left if left < size.count else size.count)
            count, before = len(values), len(emitted)
            if guard is None:
                emitted += task.run(values)
                item.advance(count, mark is not None)
            else:
                attempt = guard.run(values, started)
                emitted += attempt.emitted
                retries = attempt.retry_at is not None
                item.advance(attempt.done, mark is not None and not retries)
                if retries:
                    break
            left -= count
            finished = clock()
            if mark is None:
                size.add(count, finished - started)
            else:
                sampled += self._tracer.processed(task, item, mark, started, finished, range(before, len(emitted)))
            if finished >= deadline:
                break
            started = finished
        if emitted:
            task.put(emitted, sampled)

    def add(self, task: Task) -> None:
        """Add a task: the next turn runs it."""

    def remove(self, task: Task) -> None:
        """Remove a task: the next turn does not run it."""

    def change_slot(self, task: Task, slot: str) -> None:
        """Change the slot of a task within this worker."""
        task.change_slot(slot)

    def wake(self, task: Task) -> None:
        """Note that a task may run: the next turn checks it."""

    def is_idle(self, task: Task) -> bool:
        """Return whether a task is between two tuples: always, outside of turns."""
        return True

    def window(self, seconds: float | None, channels: int) -> int:
        """Return the window of a channel: the tuples that its share of the task processes within `QUEUE_S`."""
        if seconds is None:
            return min(FIRST_WINDOW, self._max_window)
        served = int(QUEUE_S / max(seconds, 1e-9)) // channels
        return min(max(MIN_WINDOW, served), self._max_window)

    # The network

    def carry(self, frame: Envelope, source_slot: str, target_slot: str, worker: int) -> None:
        """Post a frame, or deliver it if its task is here."""
        if worker == self._directory.me:
            self._handlers.deliver(frame, 0, self.now())
        else:
            self._handlers.post(worker, frame)

    def receive(self, frame: Envelope, size: int) -> None:
        """Deliver a frame."""
        self._handlers.deliver(frame, size, self.now())

    def send_budget(self, seconds: float) -> tuple[float, float]:
        """Return how many more bytes the sockets accept; their speed is unknown, so the next request is due soon."""
        return UNSENT - self._unsent(), self.now() + SOON_S

    def reroute(self, routes: tuple[Route, ...]) -> None:
        """Change the links: without effect, as a real network chooses its own routes."""

    # Reports

    def usage(self, now: float, interval: float, cpu: float) -> MachineUsage:
        """Return the cores that the process used, and the maximum delay of polls."""
        lag, self._lag = self._lag, 0.0
        return MachineUsage(cpu, lag)

    def capacity(self) -> None:
        """Return nothing: the machine is real."""
        return
