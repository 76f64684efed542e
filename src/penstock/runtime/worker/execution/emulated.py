"""Runs tasks as a described machine would: one tuple at a time and slot, on virtual processors, over virtual links.

A tuple's logic runs when its service begins; what follows from it leaves when its declared service time is over on the
virtual processor. Everything happens at a time of the emulated cluster, in the order of those times, so that stamps are
exact however late the host was; how late it was is kept, and said when it is too much.
"""

import heapq
import math
import os
from collections import deque
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from penstock.model.cluster import Cluster, Machine
from penstock.runtime.emulation import (
    ServiceTimes,
    SharedCpu,
    SharedLink,
    Truth,
    VirtualCpu,
    VirtualLink,
    VirtualNetwork,
)
from penstock.runtime.emulation.shared_memory import Commons, Displaced
from penstock.runtime.protocol.controller_messages import Route
from penstock.runtime.protocol.frames import Data, Mark, Marker, State
from penstock.runtime.worker.execution.runner import TURN_S, Runner, note_blocked
from penstock.runtime.worker.input import Delivery
from penstock.runtime.worker.task import Task
from penstock.runtime.worker.tracing import children

if TYPE_CHECKING:
    from penstock.runtime.worker.state_machine import Worker

MARKER_BYTES = 32  # what a marker takes on a link
POLLED = 64  # tuples of a source that wait for its slot, at most; they keep it from moving
EVENTS = 5_000  # handled a turn, at most


class Job(NamedTuple):
    """A tuple in service."""

    task: Task
    delivery: Delivery | None  # None: a tuple of a source
    mark: Mark | None
    made: list[Any]
    started: float
    due: float  # of a source's tuple


class Emulated(Runner):
    """The slots of one emulated machine."""

    chunk = POLLED
    hands_over = False

    def __init__(self, worker: "Worker") -> None:
        super().__init__(worker)
        assigned = worker.assigned
        cluster = msgspec.convert(assigned.emulated, Cluster)
        self._name = assigned.peers[worker.me].name
        machine = cluster.machines[cluster.machine_index[self._name]]
        self._cores = machine.cores
        self._memory_mb = machine.memory_mb
        self._workers = {peer.name: number for number, peer in enumerate(assigned.peers)}
        self._slots = {f"{self._name}/{number}": number for number in range(machine.slots)}
        self._commons: list[Commons] = []  # what it has a part in with other runs
        self._cpu = self._processor(machine)
        self._network = VirtualNetwork(cluster, self._name, {}, self._link if assigned.share else None)
        self.reroute(assigned.routes)
        self._services: dict[int, ServiceTimes] = {}
        self._pending: list[tuple[float, int, Callable[[float], None]]] = []  # heap
        self._order = count()
        self._time = worker.clock()
        self._serving: dict[int, Task] = {}  # by slot
        # tuples of sources that wait for their slot: each with its due and when it might be given at the earliest
        self._polled: dict[int, deque[tuple[Any, float, float]]] = {}
        self._used = self._cpu.used(self._time)  # others may have used some
        self._truth = Truth(self._name, os.cpu_count() or 1, 0.0)

    def _processor(self, machine: Machine) -> VirtualCpu[Job]:
        if not self.worker.assigned.share:
            return VirtualCpu(machine.cores, machine.speed, machine.slots)
        folder, figures = Path(self.worker.assigned.share), (machine.cores, machine.speed, machine.slots)
        made: SharedCpu[Job] = SharedCpu(folder, machine.name, self._role, *figures)
        self._commons.append(made.commons)
        return made

    def _link(self, label: str, bandwidth_mbps: float | None, latency_ms: float) -> VirtualLink:
        """Make a link that other runs have too."""
        made = SharedLink(Path(self.worker.assigned.share), label, self._role, bandwidth_mbps, latency_ms)
        self._commons.append(made.commons)
        return made

    @property
    def _role(self) -> str:
        """What a later worker of the same run and machine is known by, to take the place of this one."""
        return f"{self.worker.assigned.folder} {self.worker.run} {self._name}"

    def close(self) -> None:
        """Leave what other runs have too to them."""
        for commons in self._commons:
            commons.close()

    def begin(self) -> None:
        """Note that something has come from outside, now."""
        self._time = self.worker.clock()

    def now(self) -> float:
        """Return the time of the event that is being handled."""
        return self._time

    def turn(self, now: float) -> bool:
        """Handle all that was due, in the order of when it was."""
        for task in list(self.worker.tasks.values()):
            if task.is_source:
                self._poll(task, now)
            if task.context.timers:
                self._time = now
                self.fire_timers(task, now)
        deadline = self.worker.clock() + TURN_S  # authors' code takes its real time, too
        for _ in range(EVENTS):
            pending = self._pending[0][0] if self._pending else math.inf
            complete = self._cpu.next_completion()
            at = min(pending, complete)
            if at > now:
                return False
            if (clock := self.worker.clock()) >= deadline:
                break
            self._truth.late(max(0.0, clock - at))
            if pending <= complete:
                self._time = at
                heapq.heappop(self._pending)[2](at)
            elif (done := self._cpu.complete_by(now)) is not None:  # else others have made it later
                self._complete(*done)
        return True

    def wakeup(self) -> float:
        """Return when the next event is due."""
        due = min(self._pending[0][0] if self._pending else math.inf, self._cpu.next_completion())
        for task in self.worker.tasks.values():
            if task.is_source and not task.ended:
                due = min(due, self._poll_due(task), self.progress_due(task))
            due = min(due, task.next_timer)
        return due

    def later(self, when: float, step: Callable[[float], None]) -> None:
        """Have something done at a time of the emulated cluster."""
        self._at(max(when, self._time), step)

    def leeway(self, seconds: float) -> tuple[float, float]:
        """Return how many bytes more the virtual card may be given, and when it will have sent half of what it has."""
        return self._network.leeway(self._time, seconds)

    def room(self, task: Task) -> int:
        """Return how many more tuples a source may give, counting those that wait for its slot or are in it."""
        return super().room(task) - len(self._polled[task.number]) - self._in_service(task)

    def _poll_due(self, task: Task) -> float:
        """Return when a source is to be polled: not while enough waits, or it must wait itself."""
        if not self._pollable(task) or task.full() or task.stands or self.room(task) <= 0:
            return math.inf
        return max(task.next_poll, self.let_go(task))

    def _pollable(self, task: Task) -> bool:
        waiting = self._polled[task.number]
        return len(waiting) < POLLED and not (task.finishing and (waiting or not self.idle(task)))

    def _poll(self, task: Task, now: float) -> None:
        if task.ended:
            return
        self._time = now
        self.tell_progress(task, now)
        if not self._pollable(task):
            return
        waiting = self._polled[task.number]
        found = self.poll(task, now)
        if found is not None:
            waiting.extend(zip(*found, strict=True))
            self._at(max(found.ready[0], 0.0), lambda at: self._start(task.slot, at))

    def _at(self, when: float, step: Callable[[float], None]) -> None:
        heapq.heappush(self._pending, (when, next(self._order), step))

    def _start(self, slot_name: str, at: float) -> None:
        """Let an idle slot take up the tuple that has waited longest of all its tasks'."""
        slot = self._slots[slot_name]
        while slot not in self._serving:
            task, arrived = self._next(slot_name)
            if task is None:
                return
            if arrived > at:
                self._at(arrived, lambda when: self._start(slot_name, when))
                return
            self.worker.current = task
            if task.inbox and not isinstance(task.inbox[0], Delivery):
                self.worker.take_marker(task, *task.inbox.popleft())  # type: ignore[misc]
                continue
            self._serve(slot, task, at)

    def _next(self, slot_name: str) -> tuple[Task | None, float]:
        best: tuple[Task | None, float] = (None, math.inf)
        for task in self.worker.tasks.values():
            if task.slot != slot_name or (task.stands and not task.is_source) or self._in_service(task):
                continue
            arrived = self._first_arrival(task)
            if arrived == math.inf:
                continue
            note_blocked(task, self._time, full := task.full())
            if arrived < best[1] and not full:
                best = (task, arrived)
        return best

    def _first_arrival(self, task: Task) -> float:
        if task.is_source:
            waiting = self._polled[task.number]
            return waiting[0][2] if waiting else math.inf
        if not task.inbox:
            return math.inf
        head = task.inbox[0]
        arrived = head.arrived if isinstance(head, Delivery) else -math.inf
        return arrived if task.guard is None else max(arrived, task.guard.until)

    def _serve(self, slot: int, task: Task, at: float) -> None:
        at = max(at, self._cpu.now)  # on a late host the processor may have got further already
        if task.is_source:
            value, due, _ = self._polled[task.number].popleft()
            job = Job(task, None, None, [value], at, due)
        else:
            delivery = task.inbox[0]
            assert isinstance(delivery, Delivery)
            made = self._made(task, delivery.values[delivery.taken], at)
            if made is None:
                return
            _, mark = delivery.take()
            if not len(delivery):
                task.inbox.popleft()
            task.queued -= 1
            job = Job(task, delivery, mark, made, at, 0.0)
        self._serving[slot] = task
        self._cpu.submit(slot, self._services[task.number].draw(), at, job)

    def _made(self, task: Task, value: Any, at: float) -> list[Any] | None:
        """Return what follows from a tuple; None where it is to be tried again, which costs no service by itself."""
        if task.guard is None:
            return task.run([value])
        done = task.guard.run([value], at)
        return done.made if done.until is None else None

    def _complete(self, at: float, slot: int, job: Job) -> None:
        self._time = at
        task, tracker = job.task, self.worker.tracker
        del self._serving[slot]
        self.worker.current = task
        task.busy += at - job.started
        if job.delivery is None:
            self.give(task, job.made, [job.due], at)
        else:
            mark, sampled = job.mark, []
            if mark is not None:
                sampled = children(range(len(job.made)), mark.root, mark.id, at)
                tracker.ack(mark.root, mark.id, at)
                self.hop(task, job.delivery, mark, job.started, at)
            if job.made:
                task.put(job.made, sampled)
            self.worker.processed(task, job.delivery.channel, 1, job.delivery.arrived)
        if task.leaving >= 0 and self.idle(task):
            self.worker.moves.depart(task)
        elif task.saving and self.idle(task):
            self.worker.saving.idle(task)
        for slot_name in {f"{self._name}/{slot}": None, task.slot: None}:  # it may have been given another meanwhile
            self._start(slot_name, at)

    def carry(self, frame: Data | Marker | State, source_slot: str, target_slot: str, worker: int) -> None:
        """Send a frame over the virtual links to a task's slot."""
        stream = "" if isinstance(frame, State) else self.worker.layout.streams[frame.stream].label
        way = self._network.way(stream, source_slot, target_slot)
        self._cross(frame, way.links, self._time, worker, way.latency)

    def _cross(
        self, frame: Data | Marker | State, links: tuple[int, ...], at: float, worker: int, latency: float = 0.0
    ) -> None:
        """Cross the links that are this machine's, then wait here or go on to whose turn it is.

        A fixed latency comes after the sender's own links, so that these are charged in the order of time.
        """
        at, rest = self._network.cross(links, _size(frame), at)
        frame.at, frame.links = at + latency, rest
        here = self._workers[self._network.owner(rest[0])] if rest else worker
        if rest and not self.worker.assigned.peers[here].port:  # nobody is there to charge it to: cross it from here
            here = self.worker.me
        if here == self.worker.me:
            self._at(frame.at, lambda when: self._land(frame, when))
        else:
            self.worker.post(here, frame)

    def receive(self, frame: Data | Marker | State, size: int) -> None:
        """Let a frame wait until it would have come."""
        self._at(frame.at, lambda when: self._land(frame, when))

    def _land(self, frame: Data | Marker | State, at: float) -> None:
        task = frame.task if isinstance(frame, State) else frame.target
        if frame.links:
            self._cross(frame, frame.links, at, self.worker.where[task])
        else:
            self.worker.deliver(frame, _size(frame), at)

    def added(self, task: Task) -> None:
        """Begin with a task."""
        seed = (self.worker.assigned.seed, task.number, task.counted)
        self._services[task.number] = ServiceTimes(task.component.cpu, task.component.service, seed)
        self._polled.setdefault(task.number, deque())
        self._note_service()
        self._at(self._time, lambda at: self._start(task.slot, at))

    def _note_service(self) -> None:
        """Have lateness judged by how long the busiest task's tuples take, at the machine's speed of now."""
        busiest = max((one.component.cpu for one in self.worker.tasks.values()), default=0.0)
        self._truth.mean_service = busiest / self._cpu.speed

    def _start_soon(self, task: Task) -> None:
        """Let the task's slot go on; one that serves does so by itself when it is done."""
        if self._slots[task.slot] not in self._serving:
            self._at(self._time, lambda at: self._start(task.slot, at))

    def removed(self, task: Task) -> None:
        """Forget a task; its slot may have others waiting."""
        super().removed(task)
        self._services.pop(task.number, None)
        self._at(self._time, lambda at: self._start(task.slot, at))

    def reslot(self, task: Task, slot: str) -> None:
        """Let a task go on in another slot of this machine."""
        task.slot = slot
        self._at(self._time, lambda at: self._start(slot, at))

    def idle(self, task: Task) -> bool:
        """Say whether a task is between two tuples."""
        return not self._in_service(task) and not self._polled.get(task.number)

    def _in_service(self, task: Task) -> bool:
        return task in self._serving.values()

    def arrived(self, task: Task) -> None:
        """Let the task's slot take up what has come."""
        self._start_soon(task)

    def relieved(self, task: Task) -> None:
        """Let the task's slot go on where it had to wait."""
        self._start_soon(task)

    def reroute(self, routes: tuple[Route, ...]) -> None:
        """Send over the links of another plan."""
        self._network.reroute({(stream, source, target): links for stream, source, target, links in routes})

    def load(self, now: float, interval: float, cpu: float) -> tuple[float, float, str]:
        """Return the share of the emulated cores used, how late events were, and what that means."""
        try:
            used = self._cpu.used(now)
        except Displaced:  # the next event finds that out, too, and ends the epoch for this worker
            used = self._used
        share, self._used = (used - self._used) / (interval * self._cores), used
        self._note_service()
        verdict = self._truth.verdict(cpu)
        return share, self._truth.worst, verdict or ""

    def capacity(self) -> tuple[float, float]:
        """Return what the machine has: as described, times what its speed was changed by since."""
        return self._cores * self._cpu.speed, self._memory_mb


def _size(frame: Data | Marker | State) -> int:
    if isinstance(frame, Data):
        return len(frame.values)
    if isinstance(frame, Marker):
        return MARKER_BYTES
    return len(frame.logic) + sum(len(w.values) for q in frame.outputs for lane in q.lanes for w in lane.waiting)
