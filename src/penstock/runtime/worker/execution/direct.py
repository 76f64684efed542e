"""Runs tasks as fast as the processor goes.

Batches are taken from inboxes and run, and what follows from them is put into out-queues.
"""

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.runtime.protocol.controller_messages import Route
from penstock.runtime.protocol.frames import Data, Marker, State
from penstock.runtime.worker.execution.runner import TURN_S, Runner, note_blocked
from penstock.runtime.worker.input import Delivery
from penstock.runtime.worker.lane import Sampled
from penstock.runtime.worker.task import CHUNK, Task
from penstock.runtime.worker.tracing import children

if TYPE_CHECKING:
    from penstock.runtime.worker.state_machine import Worker

UNSENT = 64 * 1024  # bytes that wait for sockets, above which a sending policy lets nothing more leave
SOON_S = 1e-3
QUEUE_S = 0.25  # of a task's time: what its channels may have in flight in all
FIRST = 32  # tuples that a channel may have in flight as long as it is not known how long they take
NARROWEST = 2  # tuples that it may have in any case


class Direct(Runner):
    """The tasks of one worker process."""

    hands_over = True
    timed = True

    def __init__(self, worker: "Worker") -> None:
        super().__init__(worker)
        self._lag = 0.0
        self._first = 0  # the task that is the first of the next turn
        self._later: list[tuple[float, int, Callable[[float], None]]] = []  # heap
        self._order = count()

    def begin(self) -> None:
        """Note that something has come: nothing to do."""

    def now(self) -> float:
        """Return the time."""
        return self.worker.clock()

    def window(self, seconds: float | None, channels: int) -> int:
        """Return how many tuples a channel may have in flight: those that its share of a task is done with soon."""
        most = self.worker.assigned.window
        if seconds is None:
            return min(FIRST, most)
        served = int(QUEUE_S / max(seconds, 1e-9)) // channels
        return min(max(NARROWEST, served), most)

    def turn(self, now: float) -> bool:
        """Let tasks work, upstream before downstream; what is due is done before and after.

        Every task has worked once, unless the time is up: then the others are the first of the next turn.
        """
        busy = bool(self._later) and self._do_due()
        tasks = list(self.worker.tasks.values())
        first, self._first = min(self._first, len(tasks)), 0
        deadline = now + TURN_S
        for place, task in enumerate(tasks[first:] + tasks[:first], first + 1):
            if task.context.timers:  # before tuples, which would take up all the room that comes free
                self.fire_timers(task, self.worker.clock())
            if task.is_source:
                busy |= self._source(task)
            elif task.inbox and not task.stands:
                busy |= self._work(task, deadline)
            if self.worker.clock() >= deadline:
                self._first = place % len(tasks)
                busy = True
                break
        if self._later:
            busy |= self._do_due()
        return busy

    def later(self, when: float, step: Callable[[float], None]) -> None:
        """Have something done at a time."""
        heapq.heappush(self._later, (when, next(self._order), step))

    def _do_due(self) -> bool:
        """Do what is due, but not what that asks for in turn; return whether there was any."""
        now, done = self.worker.clock(), False
        for _ in range(len(self._later)):
            if self._later[0][0] > now:
                break
            heapq.heappop(self._later)[2](now)
            done = True
        return done

    def leeway(self, seconds: float) -> tuple[float, float]:
        """Return how many bytes more the sockets may be given; how fast they are is not known, so ask again soon."""
        return UNSENT - self.worker.unsent(), self.worker.clock() + SOON_S

    def wakeup(self) -> float:
        """Return when the next source or timer is due."""
        due = self._later[0][0] if self._later else math.inf
        for task in self.worker.tasks.values():
            if task.is_source and not task.ended and not task.stands:
                asked = max(task.next_poll, self.let_go(task))
                if asked > 0.0 and not task.full() and self.room(task) > 0:
                    due = min(due, asked)
                due = min(due, self.progress_due(task))
            due = min(due, task.next_timer)
            if task.guard is not None and task.guard.until > 0.0 and task.inbox and not (task.stands or task.full()):
                due = min(due, task.guard.until)  # it stands still until a tuple is to be tried again
        return due

    def _source(self, task: Task) -> bool:
        found = self.poll(task, self.worker.clock())
        if found is None:
            return task.finishing and not task.ended and not task.stands
        started = self.worker.clock()
        self._lag = max(self._lag, started - found.ready[0])
        self.give(task, found.values, found.dues, started)
        task.busy += self.worker.clock() - started
        return True

    def _work(self, task: Task, deadline: float) -> bool:
        worker, clock, left = self.worker, self.worker.clock, CHUNK
        worker.current = task
        while task.inbox and left > 0:
            if task.full():
                note_blocked(task, clock(), True)
                return False
            note_blocked(task, clock(), False)
            if task.guard is not None and task.guard.until > clock():
                return False
            item = task.inbox[0]
            if not isinstance(item, Delivery):
                task.inbox.popleft()
                worker.take_marker(task, *item)
                if task.saving:
                    return False
                continue
            started, before = clock(), item.taken
            self._run(task, item, deadline)
            if not len(item):
                task.inbox.popleft()
            size, now = item.taken - before, clock()
            task.busy += now - started
            task.queued -= size
            worker.processed(task, item.channel, size, item.arrived)
            left -= size
            if now >= deadline:
                break
        return bool(task.inbox)

    def _run(self, task: Task, item: Delivery, deadline: float) -> None:
        """Run tuples of a batch, sampled ones alone, until the time is up or the next is to be tried again later."""
        clock, tracker, guard = self.worker.clock, self.worker.tracker, task.guard
        made: list[Any] = []
        sampled: list[Sampled] = []
        most = item.taken + task.portion()
        while len(item) and item.taken < most:
            values, mark = item.next(min(task.stride.count, most - item.taken))
            started, before = clock(), len(made)
            if guard is None:
                made += task.run(values)
                item.taken += len(values)
            else:
                done = guard.run(values, started)
                made += done.made
                item.taken += done.taken
                if done.until is not None:
                    break
            finished = clock()
            if mark is None:
                task.stride.took(len(values), finished - started)
            else:
                item.passed += 1
                sampled += children(range(before, len(made)), mark.root, mark.id, finished)
                tracker.ack(mark.root, mark.id, finished)
                self.hop(task, item, mark, started, finished)
            if finished >= deadline:
                break
        if made:
            task.put(made, sampled)

    def carry(self, frame: Data | Marker | State, source_slot: str, target_slot: str, worker: int) -> None:
        """Post a frame, or deliver it where its task is here."""
        if worker == self.worker.me:
            self.worker.deliver(frame, 0, self.worker.clock())
        else:
            self.worker.post(worker, frame)

    def receive(self, frame: Data | Marker | State, size: int) -> None:
        """Deliver a frame."""
        self.worker.deliver(frame, size, self.worker.clock())

    def added(self, task: Task) -> None:
        """Begin with a task."""

    def reslot(self, task: Task, slot: str) -> None:
        """Let a task go on in another slot of this worker."""
        task.slot = slot

    def idle(self, task: Task) -> bool:
        """Say whether a task can leave: always, between turns."""
        return True

    def arrived(self, task: Task) -> None:
        """Note that something has come: the next turn sees it."""

    def relieved(self, task: Task) -> None:
        """Note that there may be room: the next turn sees it."""

    def reroute(self, routes: tuple[Route, ...]) -> None:
        """Send over other links: a real network finds its own."""

    def load(self, now: float, interval: float, cpu: float) -> tuple[float, float, str]:
        """Return how many cores' time the process takes, and how late sources were polled."""
        lag, self._lag = self._lag, 0.0
        return cpu, lag, ""

    def capacity(self) -> None:
        """Return nothing: the machine is as the worker was told."""
        return
