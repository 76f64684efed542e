"""How a worker runs its tasks: what it asks of any way to do so, and the plain one, as fast as the processor goes.

Batches are taken from inboxes and run, and what follows from them is put into out-queues. The other way is `emulated`.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.runtime.buckets import Bucket
from penstock.runtime.guarding import Guard
from penstock.runtime.lanes import MarkerOf, Sampled
from penstock.runtime.messages import commands
from penstock.runtime.messages.frames import PROGRESS, Data, Mark, Marker, State
from penstock.runtime.tasks import Delivery, Task
from penstock.runtime.tracking import children

if TYPE_CHECKING:
    from penstock.runtime.machine import Worker

CHUNK = 1024  # tuples of a task, or of a source, a turn
PROGRESS_S = 0.05
UNSENT = 64 * 1024  # bytes that wait for sockets, above which a sending policy lets nothing more leave
SOON_S = 1e-3


class Execution(Protocol):
    """What a worker asks of the way in which its tasks run."""

    hands_over: bool  # whether tuples for a task in the same process skip the network

    def begin(self) -> None:
        """Note that something has come from outside, now."""
        ...

    def now(self) -> float:
        """Return the time of what is being done."""
        ...

    def turn(self, now: float) -> bool:
        """Work for a bounded while; return whether there is more to do at once."""
        ...

    def wakeup(self) -> float:
        """Return when there is something to do again, if nothing comes before."""
        ...

    def later(self, when: float, step: Callable[[float], None]) -> None:
        """Have something done at a time, or as soon after it as there is a turn."""
        ...

    def leeway(self, seconds: float) -> tuple[float, float]:
        """Return how many bytes may leave the machine now, and when to ask again where there are none.

        They are as many as its network card is done with in so many seconds, those before them included.
        """
        ...

    def carry(self, frame: "Data | Marker | State", source_slot: str, target_slot: str, worker: int) -> None:
        """Send a frame on its way to a task."""
        ...

    def receive(self, frame: "Data | Marker | State", size: int) -> None:
        """Take a frame from the network."""
        ...

    def added(self, task: Task) -> None:
        """Begin with a task."""
        ...

    def removed(self, task: Task) -> None:
        """Forget a task."""
        ...

    def reslot(self, task: Task, slot: str) -> None:
        """Let a task go on in another slot of this worker."""
        ...

    def idle(self, task: Task) -> bool:
        """Say whether a task is between two tuples, so that it can leave."""
        ...

    def arrived(self, task: Task) -> None:
        """Note that something has come to a task's inbox."""
        ...

    def relieved(self, task: Task) -> None:
        """Note that a task's out-queues may have room again, or that it need not stand still any more."""
        ...

    def reroute(self, routes: "tuple[commands.Route, ...]") -> None:
        """Send over other links from now on, where links are emulated."""
        ...

    def load(self, now: float, interval: float, cpu: float) -> tuple[float, float, str]:
        """Return the share of cpu used, the worst lateness in seconds, and a warning, since the last call."""
        ...

    def capacity(self) -> tuple[float, float] | None:
        """Return the cpu and memory of the machine, where that is not the host."""
        ...

    def close(self) -> None:
        """Run no more, in this epoch or at all."""
        ...


class Polled(NamedTuple):
    """What a source gave."""

    values: list[Any]
    dues: list[float]
    ready: list[float]  # when each might be given at the earliest: when it was due, or a limit let it go


class Runner:
    """What both ways of running share: sources, markers, timers."""

    chunk = CHUNK  # tuples that a source is asked for

    def __init__(self, worker: "Worker") -> None:
        self.worker = worker
        self._progress_due: dict[int, float] = {}
        self._buckets: dict[int, Bucket] = {}  # of sources with a limit

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
        if room <= 0 or task.full() or now < task.next_poll:
            note_blocked(task, now, room <= 0 or task.full())
            return None
        note_blocked(task, now, False)
        most = min(self.chunk, room) if bucket is None else min(self.chunk, room, bucket.whole(now))
        if most <= 0:
            return None
        task.next_poll = 0.0
        found = task.poll(now, most)
        if found is None:
            task.finishing = True
            return None
        values, given = found
        if not values:
            return None
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
        for _ in range(len(task.context.timers)):  # those that they ask for in turn wait for the next time
            if task.next_timer > now:
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


class Direct(Runner):
    """Runs tasks as fast as the processor goes."""

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

    def reroute(self, routes: tuple[commands.Route, ...]) -> None:
        """Send over other links: a real network finds its own."""

    def load(self, now: float, interval: float, cpu: float) -> tuple[float, float, str]:
        """Return the process's own cpu, and how late sources were polled."""
        lag, self._lag = self._lag, 0.0
        return cpu, lag, ""

    def capacity(self) -> None:
        """Return nothing: the machine is the host."""
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


def note_blocked(task: Task, now: float, blocked: bool) -> None:
    """Keep the time in which a task could not go on for lack of credit."""
    if blocked:
        if task.blocked_since is None:
            task.blocked_since = now
    elif task.blocked_since is not None:
        task.blocked += max(0.0, now - task.blocked_since)
        task.blocked_since = None
