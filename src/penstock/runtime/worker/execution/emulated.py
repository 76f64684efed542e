"""Runs tasks as a described machine would: one tuple at a time per slot, on virtual processors, over virtual links.

A tuple's logic runs when its service starts; its results leave when its declared service time is over on the virtual
processor. Every event has a time of the emulated cluster, and events are handled in the order of these times, so time
stamps are exact whatever the delay of the host. This delay is measured, and reported when it is too large.
"""

import math
import os
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.model.cluster import Machine
from penstock.runtime.emulation import Fidelity, ServiceTimes, SharedCpu, VirtualCpu
from penstock.runtime.emulation.shared_memory import OwnershipLost, SharedValues
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.frames import Mark
from penstock.runtime.worker.execution.emulated_network import EmulatedNetwork, Emulation, EventQueue
from penstock.runtime.worker.execution.interface import Handlers, MachineUsage
from penstock.runtime.worker.input import Delivery
from penstock.runtime.worker.output import SampledTuple
from penstock.runtime.worker.routing import TaskDirectory
from penstock.runtime.worker.running_task import RunningTask
from penstock.runtime.worker.task import TURN_S, Task
from penstock.runtime.worker.tracing import Tracer

MAX_POLLED = 64  # tuples of a source that wait for its slot; they prevent it from moving
EVENTS = 5_000  # maximum handled per turn


class TupleInService(NamedTuple):
    """A tuple in service."""

    task: Task
    delivery: Delivery | None  # None: a tuple of a source
    mark: Mark | None
    emitted: list[Any]
    started: float
    due: float  # of a source's tuple


class Emulated:
    """The slots of one emulated machine."""

    hands_over = False
    timed = False

    def __init__(
        self,
        emulation: Emulation,
        clock: Callable[[], float],
        layout: Layout,
        directory: TaskDirectory,
        tracer: Tracer,
        running: RunningTask,
        window: int,
    ) -> None:
        self._emulation = emulation
        self._clock = clock
        self._tasks = directory.here
        self._tracer = tracer
        self._running = running
        self._window = window
        self._handlers: Handlers
        self._events = EventQueue(clock())
        self._machine = emulation.cluster.machines[emulation.cluster.machine_index[emulation.machine]]
        self._slots = {f"{self._machine.name}/{number}": number for number in range(self._machine.slots)}
        self._shared: SharedValues | None = None  # None: the processor is not shared with other runs
        self._cpu = self._processor(self._machine)
        self._network = network = EmulatedNetwork(emulation, layout, directory, self._events)
        self.carry, self.receive = network.carry, network.receive
        self.send_budget, self.reroute = network.send_budget, network.reroute
        self._services: dict[int, ServiceTimes] = {}  # by task
        self._serving: dict[int, Task] = {}  # by slot
        # Tuples of sources that wait for their slot, with their due times and the earliest times to emit them.
        self._polled: dict[int, deque[tuple[Any, float, float]]] = {}
        self._earliest: dict[int, float] = {}  # of a source: the time before which the last turn could not poll more
        self._used = self._cpu.used(self._events.time)  # other runs may have used some
        self._fidelity = Fidelity(self._machine.name, os.cpu_count() or 1, 0.0)

    def _processor(self, machine: Machine) -> VirtualCpu[TupleInService]:
        figures = (machine.cores, machine.speed, machine.slots)
        if not self._emulation.share:
            return VirtualCpu(*figures)
        shared: SharedCpu[TupleInService] = SharedCpu(
            Path(self._emulation.share), machine.name, self._emulation.role, *figures
        )
        self._shared = shared.shared
        return shared

    def connect(self, handlers: Handlers) -> None:
        """Set the callbacks."""
        self._handlers = handlers
        self._network.connect(handlers)

    def close(self) -> None:
        """Leave the shared processor and links to the other runs."""
        if self._shared is not None:
            self._shared.close()
        self._network.close()

    # Time

    def sync(self) -> None:
        """Note an external input, now."""
        self._events.set_time(self._clock())

    def now(self) -> float:
        """Return the time of the event that is being handled."""
        return self._events.time

    def call_at(self, when: float, step: Callable[[float], None]) -> None:
        """Call a function at a time of the emulated cluster."""
        self._events.at(max(when, self._events.time), step)

    def turn(self, now: float) -> bool:
        """Handle all events that are due, in the order of their times."""
        last = self._events.time
        for task in list(self._tasks.values()):
            if task.is_source:
                self._poll(task, now, last)
            if task.context.timers:
                self._events.set_time(now)
                self._running.set(task)
                task.fire_timers(now)
        more = self._handle_events(now)
        for task in self._tasks.values():
            if task.is_source:
                self._earliest[task.number] = max(now, self._poll_due(task))
        return more

    def _handle_events(self, now: float) -> bool:
        """Handle events that are due, for a bounded time; return whether there are more."""
        events = self._events
        deadline = self._clock() + TURN_S  # authors' code takes real time, too
        for _ in range(EVENTS):
            scheduled = events.next
            complete = self._cpu.next_completion()
            at = min(scheduled, complete)
            if at > now:
                return False
            if (clock := self._clock()) >= deadline:
                break
            self._fidelity.record_lag(max(0.0, clock - at))
            if scheduled <= complete:
                events.handle_next()
            elif (done := self._cpu.complete_by(now)) is not None:  # otherwise other runs have delayed it
                self._complete(*done)
        return True

    def wakeup(self) -> float:
        """Return when the next event is due."""
        due = min(self._events.next, self._cpu.next_completion())
        for task in self._tasks.values():
            if task.is_source and not task.ended:
                due = min(due, self._poll_due(task), task.next_progress())
            due = min(due, task.next_timer)
        return due

    # Sources

    def _poll_due(self, task: Task) -> float:
        """Return when to poll a source: not while enough of its tuples wait, or the source itself must wait."""
        if not self._pollable(task) or task.full() or task.suspended or task.room(self._pending(task)) <= 0:
            return math.inf
        return task.next_poll_allowed()

    def _pollable(self, task: Task) -> bool:
        waiting = self._polled[task.number]
        return len(waiting) < MAX_POLLED and not (task.finishing and (waiting or not self.is_idle(task)))

    def _pending(self, task: Task) -> int:
        """Return the number of tuples of a source that wait for its slot or are in service."""
        return len(self._polled[task.number]) + self._in_service(task)

    def _poll(self, task: Task, now: float, last: float) -> None:
        """Poll a source; `last` is the time of the last event or input, which may have ended its wait."""
        if task.ended:
            return
        self._events.set_time(now)
        task.mark_progress(now)
        if task.suspended or not self._pollable(task):
            return
        self._running.set(task)
        if task.finishing:
            task.mark_progress(math.inf)
            self._handlers.finish(task)
            return
        released = max(last, task.next_poll)
        polled = task.poll(now, MAX_POLLED, polled=self._pending(task))
        if polled is not None:
            self._polled[task.number].extend(zip(*polled, strict=True))
            ready = polled.ready[0]
            start = ready if ready >= self._earliest[task.number] else max(ready, released)  # its wait is no lag
            self._events.at(start, lambda at: self._start(task.slot, at))

    # Slots

    def _start(self, slot_name: str, at: float) -> None:
        """Let an idle slot serve the tuple that has waited longest, among all of its tasks."""
        slot = self._slots[slot_name]
        while slot not in self._serving:
            task, arrived = self._next(slot_name)
            if task is None:
                return
            if arrived > at:
                self._events.at(arrived, lambda when: self._start(slot_name, when))
                return
            self._running.set(task)
            waiting = task.inbox.waiting
            if waiting and not isinstance(waiting[0], Delivery):
                self._handlers.take_marker(task, *waiting.popleft())  # type: ignore[misc]
                continue
            self._serve(slot, task, at)

    def _next(self, slot_name: str) -> tuple[Task | None, float]:
        best: tuple[Task | None, float] = (None, math.inf)
        for task in self._tasks.values():
            if task.slot != slot_name or (task.suspended and not task.is_source) or self._in_service(task):
                continue
            arrived = self._first_arrival(task)
            if arrived == math.inf:
                continue
            task.note_blocked(self._events.time, full := task.full())
            if arrived < best[1] and not full:
                best = (task, arrived)
        return best

    def _first_arrival(self, task: Task) -> float:
        if task.is_source:
            polled = self._polled[task.number]
            return polled[0][2] if polled else math.inf
        if not task.inbox.waiting:
            return math.inf
        head = task.inbox.waiting[0]
        arrived = head.arrived if isinstance(head, Delivery) else -math.inf
        return arrived if task.guard is None else max(arrived, task.guard.retry_at)

    def _serve(self, slot: int, task: Task, at: float) -> None:
        at = max(at, self._cpu.now)  # on a delayed host the virtual processor may be ahead already
        if task.is_source:
            value, due, _ = self._polled[task.number].popleft()
            job = TupleInService(task, None, None, [value], at, due)
        else:
            delivery = task.inbox.waiting[0]
            assert isinstance(delivery, Delivery)
            values, mark = delivery.peek(1)
            if task.keyed is not None:
                task.keyed.select(delivery.channel.stream)
            emitted = self._run(task, values, at)
            if emitted is None:
                return
            delivery.advance(1, mark is not None)
            task.inbox.drop_taken(1)
            job = TupleInService(task, delivery, mark, emitted, at, 0.0)
        self._serving[slot] = task
        self._cpu.submit(slot, self._services[task.number].draw(), at, job)

    def _run(self, task: Task, values: list[Any], at: float) -> list[Any] | None:
        """Return the results of a tuple; None if it will be retried, which itself costs no service time."""
        if task.guard is None:
            return task.run(values)
        attempt = task.guard.run(values, at)
        return attempt.emitted if attempt.retry_at is None else None

    def _complete(self, at: float, slot: int, job: TupleInService) -> None:
        """Emit the results of a tuple whose service is over."""
        self._events.set_time(at)
        task, delivery = job.task, job.delivery
        del self._serving[slot]
        self._running.set(task)
        task.add_busy(at - job.started)
        if delivery is None:
            sampled = self._tracer.sample(task, [job.due], at)
            task.count_emitted(1)
            task.put(job.emitted, sampled)
        else:
            self._emit(job, delivery, at)
            self._handlers.processed(task, delivery.channel, 1, delivery.arrived)
        if task.suspended and self.is_idle(task):
            self._handlers.idle(task)
        for slot_name in {f"{self._machine.name}/{slot}": None, task.slot: None}:  # the task may have another by now
            self._start(slot_name, at)

    def _emit(self, job: TupleInService, delivery: Delivery, at: float) -> None:
        sampled: Sequence[SampledTuple] = ()
        if job.mark is not None:
            results = range(len(job.emitted))
            sampled = self._tracer.processed(job.task, delivery, job.mark, job.started, at, results)
        if job.emitted:
            job.task.put(job.emitted, sampled)

    # Tasks

    def add(self, task: Task) -> None:
        """Add a task."""
        seed = (self._emulation.seed, task.number, task.counted)
        self._services[task.number] = ServiceTimes(task.component.cpu, task.component.service, seed)
        self._polled.setdefault(task.number, deque())
        self._earliest[task.number] = self._events.time
        self._note_service()
        self._events.at(self._events.time, lambda at: self._start(task.slot, at))

    def remove(self, task: Task) -> None:
        """Remove a task; tuples of other tasks may wait for its slot."""
        self._services.pop(task.number, None)
        self._events.at(self._events.time, lambda at: self._start(task.slot, at))

    def change_slot(self, task: Task, slot: str) -> None:
        """Change the slot of a task within this machine."""
        task.change_slot(slot)
        self._events.at(self._events.time, lambda at: self._start(slot, at))

    def wake(self, task: Task) -> None:
        """Let the task's slot continue; a busy slot does so by itself after its tuple."""
        if self._slots[task.slot] not in self._serving:
            self._events.at(self._events.time, lambda at: self._start(task.slot, at))

    def is_idle(self, task: Task) -> bool:
        """Return whether a task is between two tuples."""
        return not self._in_service(task) and not self._polled.get(task.number)

    def _in_service(self, task: Task) -> bool:
        return task in self._serving.values()

    def window(self, seconds: float | None, channels: int) -> int:
        """Return the window of a channel: the configured one."""
        return self._window

    def _note_service(self) -> None:
        """Set the tolerable delay from the service time of the busiest task at the machine's current speed."""
        busiest = max((task.component.cpu for task in self._tasks.values()), default=0.0)
        self._fidelity.mean_service = busiest / self._cpu.speed

    # Reports

    def usage(self, now: float, interval: float, cpu: float) -> MachineUsage:
        """Return the used fraction of the emulated cores, the maximum event delay, and a warning if it matters."""
        try:
            used = self._cpu.used(now)
        except OwnershipLost:  # the next event detects this, too, and ends the epoch for this worker
            used = self._used
        share, self._used = (used - self._used) / (interval * self._machine.cores), used
        self._note_service()
        warning = self._fidelity.verdict(cpu)
        return MachineUsage(share, self._fidelity.worst, warning or "")

    def capacity(self) -> tuple[float, float]:
        """Return the cpu and memory of the machine: as described, with later changes of its speed."""
        return self._machine.cores * self._cpu.speed, self._machine.memory_mb
