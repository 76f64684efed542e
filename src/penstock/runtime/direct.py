"""Runs tasks as fast as the processor goes.

Batches are taken from inboxes and run, and what follows from them is put into out-queues.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

from penstock.runtime.guarding import Guard
from penstock.runtime.inbox import Delivery
from penstock.runtime.lanes import Sampled
from penstock.runtime.messages.commands import Route
from penstock.runtime.messages.frames import Data, Mark, Marker, State
from penstock.runtime.runner import CHUNK, Runner, note_blocked
from penstock.runtime.tasks import Task
from penstock.runtime.tracking import children

if TYPE_CHECKING:
    from penstock.runtime.machine import Worker

UNSENT = 64 * 1024  # bytes that wait for sockets, above which a sending policy lets nothing more leave
SOON_S = 1e-3


class Direct(Runner):
    """The tasks of one worker process."""

    hands_over = True

    def __init__(self, worker: "Worker") -> None:
        super().__init__(worker)
        self._lag = 0.0
        self._later: list[tuple[float, int, Callable[[float], None]]] = []  # heap
        self._order = count()

    def begin(self) -> None:
        """Note that something has come: nothing to do."""

    def now(self) -> float:
        """Return the time."""
        return self.worker.clock()

    def turn(self, now: float) -> bool:
        """Let every task work once, upstream before downstream; what is due is done before and after."""
        busy = bool(self._later) and self._do_due()
        for task in list(self.worker.tasks.values()):
            if task.context.timers:  # before tuples, which would take up all the room that comes free
                self.fire_timers(task, self.worker.clock())
            if task.is_source:
                busy |= self._source(task)
            elif task.inbox and not task.stands:
                busy |= self._work(task)
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

    def _work(self, task: Task) -> bool:
        worker, clock, left = self.worker, self.worker.clock, CHUNK
        worker.current = task
        while task.inbox and left > 0:
            if task.full():
                note_blocked(task, clock(), True)
                return False
            note_blocked(task, clock(), False)
            if task.guard is not None and task.guard.until > clock():
                return False
            item = task.inbox.popleft()
            if not isinstance(item, Delivery):
                worker.take_marker(task, *item)
                if task.saving:
                    return False
                continue
            size = len(item.values)
            started = clock()
            if task.guard is not None:
                size = self._run_guarded(task, task.guard, item)
            elif item.marks:
                self._run_marked(task, item)
            elif made := task.run(item.values):
                task.put(made)
            task.busy += clock() - started
            task.queued -= size
            worker.processed(task, item.channel, size, item.arrived)
            left -= size
        return bool(task.inbox)

    def _run_marked(self, task: Task, item: Delivery) -> None:
        """Run a batch with sampled tuples in it: each of those alone, the others together."""
        clock, tracker, start = self.worker.clock, self.worker.tracker, 0
        made: list[Any] = []
        sampled: list[Sampled] = []
        for mark in item.marks:
            if mark.place > start:
                made += task.run(item.values[start : mark.place])
            started, before = clock(), len(made)
            made += task.run([item.values[mark.place]])
            finished = clock()
            sampled += children(range(before, len(made)), mark.root, mark.id, finished)
            tracker.ack(mark.root, mark.id, finished)
            self.hop(task, item, mark, started, finished)
            start = mark.place + 1
        if start < len(item.values):
            made += task.run(item.values[start:])
        if made:
            task.put(made, sampled)

    def _run_guarded(self, task: Task, guard: Guard, item: Delivery) -> int:
        """Run a batch under an error policy; return how many tuples are done with. The others go back to the inbox."""
        clock, tracker = self.worker.clock, self.worker.tracker
        made: list[Any] = []
        sampled: list[Sampled] = []
        for begin, end, mark in _pieces(item):
            started, before = clock(), len(made)
            done = guard.run(item.values[begin:end], started)
            made += done.made
            item.taken += done.taken
            if done.until is not None:
                break
            if mark is not None:
                item.passed += 1
                finished = clock()
                sampled += children(range(before, len(made)), mark.root, mark.id, finished)
                tracker.ack(mark.root, mark.id, finished)
                self.hop(task, item, mark, started, finished)
        if made:
            task.put(made, sampled)
        taken = item.taken
        if len(item):
            item.cut()
            task.inbox.appendleft(item)
        return taken

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


def _pieces(item: Delivery) -> Iterator[tuple[int, int, Mark | None]]:
    """Cut a batch into the sampled tuples in it, each with its mark, and what is between them."""
    start = 0
    for mark in item.marks:
        if mark.place > start:
            yield start, mark.place, None
        yield mark.place, mark.place + 1, mark
        start = mark.place + 1
    if start < len(item.values):
        yield start, len(item.values), None
