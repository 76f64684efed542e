"""What all ways of running tasks share: sources and their limits, progress, timers, what becomes of sampled tuples."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.runtime.protocol.frames import PROGRESS, Mark
from penstock.runtime.worker.input import Delivery
from penstock.runtime.worker.lane import MarkerOf, Sampled
from penstock.runtime.worker.task import CHUNK, Task
from penstock.runtime.worker.token_bucket import Bucket
from penstock.runtime.worker.tracing import children

if TYPE_CHECKING:
    from penstock.runtime.worker.state_machine import Worker

TURN_S = 0.01  # after which a worker turns to its connections; what runs then is finished first
PROGRESS_S = 0.05


class Polled(NamedTuple):
    """What a source gave."""

    values: list[Any]
    dues: list[float]
    ready: list[float]  # when each might be given at the earliest: when it was due, or a limit let it go


class Runner:
    """Runs the sources and timers of a worker's tasks, and keeps the books of sampled tuples."""

    chunk = CHUNK  # tuples that a source is asked for
    timed = False

    def __init__(self, worker: "Worker") -> None:
        self.worker = worker
        self._progress_due: dict[int, float] = {}
        self._buckets: dict[int, Bucket] = {}  # of sources with a limit

    def window(self, seconds: float | None, channels: int) -> int:
        """Return how many tuples a channel may have in flight: as many as is set."""
        return self.worker.assigned.window

    def poll(self, task: Task, now: float) -> Polled | None:
        """Ask a source for what is due; None when it is not to be asked, or has ended."""
        worker = self.worker
        if task.ended or task.stands:
            return None
        worker.current = task
        if task.finishing:
            self.tell_progress(task, math.inf)
            worker.end(task)
            return None
        self.tell_progress(task, now)
        bucket = self._bucket(task, now)
        room = self.room(task)
        if task.guard is not None and task.guard.until > 0.0:  # whoever wakes it, it is asked again then
            task.next_poll = max(task.next_poll, task.guard.until)
        if room <= 0 or task.full() or now < task.next_poll:
            note_blocked(task, now, room <= 0 or task.full())
            return None
        note_blocked(task, now, False)
        most = min(self.chunk, room)
        if self.timed:
            most = min(most, task.stride.count, task.portion())
        if bucket is not None:
            most = min(most, bucket.whole(now))
        if most <= 0:
            return None
        task.next_poll = 0.0
        started = self.worker.clock()
        found = task.poll(now, most)
        if found is None:
            task.finishing = True
            return None
        values, given = found
        if not values:
            return None
        task.stride.took(len(values), self.worker.clock() - started)
        dues = [now] * len(values) if given is None else list(given)
        if bucket is None:
            return Polled(values, dues, dues)
        return Polled(values, dues, [max(both) for both in zip(dues, bucket.take(len(values), now), strict=True)])

    def _bucket(self, task: Task, now: float) -> Bucket | None:
        """Return what keeps a source to its limit, as that is now; None where it has none."""
        limit = self.worker.limits.get(task.component.name)
        if limit is None:
            self._buckets.pop(task.number, None)
            return None
        rate, found = limit / task.component.parallelism, self._buckets.get(task.number)
        if found is None:
            found = self._buckets[task.number] = Bucket(rate, now)
        elif found.rate != rate:
            found.change(rate, now)
        return found

    def let_go(self, task: Task) -> float:
        """Return when the limit of a source lets it give a tuple; 0 where it has none."""
        bucket = self._bucket(task, self.worker.clock()) if self.worker.limits else None
        return 0.0 if bucket is None else bucket.ready

    def close(self) -> None:
        """Run no more: there is nothing to let go of."""

    def removed(self, task: Task) -> None:
        """Forget a task."""
        self._buckets.pop(task.number, None)

    def room(self, task: Task) -> int:
        """Return how many more tuples the in-flight limit lets a source give."""
        limit = self.worker.assigned.in_flight
        return limit - (task.counted - task.progressed) if limit else CHUNK

    def tell_progress(self, task: Task, now: float) -> None:
        """Send a source's count along with its tuples where that is due, so that it is known when they are through."""
        limit, ahead = self.worker.assigned.in_flight, task.counted - task.marked_progress
        due = now >= self._progress_due.get(task.number, 0.0) or ahead >= max(1, limit // 8)
        if limit and ahead and due:
            task.marked_progress = task.counted
            self._progress_due[task.number] = now + PROGRESS_S
            task.put_marker(MarkerOf(PROGRESS, task.counted, task.number))

    def progress_due(self, task: Task) -> float:
        """Return when a source's progress is to be told next."""
        behind = self.worker.assigned.in_flight and task.counted > task.marked_progress
        return self._progress_due.get(task.number, 0.0) if behind else math.inf

    def fire_timers(self, task: Task, now: float) -> None:
        """Run the timers of a task that are due, as long as there is room for what they give."""
        deadline = self.worker.clock() + TURN_S
        for _ in range(len(task.context.timers)):  # those that they ask for in turn wait for the next time
            if task.next_timer > now or self.worker.clock() >= deadline:
                return
            self.worker.current = task
            made = task.fire(task.take_timer(), now)
            if made:
                task.put(made)

    def give(self, task: Task, values: list[Any], dues: list[float], emitted: float) -> None:
        """Put what a source gave into its out-queues, sampling some."""
        worker, tracker = self.worker, self.worker.tracker
        picked = worker.samplers[task.number].pick(task.counted, len(values), emitted)
        task.counted += len(values)
        task.processed += len(values)
        sampled: list[Sampled] = []
        for place in picked:
            root = tracker.root(task, dues[place], emitted)
            tracker.ack(root, 0, emitted)
            sampled += children(range(place, place + 1), root, root, emitted)
        task.put(values, sampled)

    def hop(self, task: Task, delivery: Delivery, mark: Mark, started: float, finished: float) -> None:
        """Note what became of a sampled tuple."""
        worker, layout = self.worker, self.worker.layout
        sender = worker.assigned.peers[delivery.sender]
        names = (
            layout.streams[delivery.channel.stream].label,
            layout.names[delivery.channel.source],
            sender.name,
            sender.incarnation,
        )
        worker.tracker.hop(task, delivery, mark, started, finished, names)


def note_blocked(task: Task, now: float, blocked: bool) -> None:
    """Keep the time in which a task could not go on for lack of credit."""
    if blocked:
        if task.blocked_since is None:
            task.blocked_since = now
    elif task.blocked_since is not None:
        task.blocked += max(0.0, now - task.blocked_since)
        task.blocked_since = None
