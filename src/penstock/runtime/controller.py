"""The controller without I/O: directs the workers of one application through its phases, moves tasks, keeps the books.

    starting   workers register; each is told its tasks once all are there
    running    tuples flow; one operation at a time (a move, or the moves of a plan)
    draining   sources have ended; each task ends when all before it have
    stopped, failed

It alone issues epochs and incarnations. What it wants said to workers it leaves in `out`; a shell carries it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from penstock.model.errors import PenstockError, UnknownName, choices
from penstock.model.status import Status
from penstock.model.telemetry import Record, RecordKind
from penstock.runtime import messages as wire
from penstock.runtime.acker import Acker, Done
from penstock.runtime.clocks import ClockEstimate, WorkerClock
from penstock.runtime.gauges import Gauges
from penstock.runtime.handle import LogLine
from penstock.runtime.layout import Layout
from penstock.runtime.operations import Operations
from penstock.runtime.terms import Site, Terms

PING_S = 0.5
CLOCK_S = 5.0  # between records of a worker's clock
SILENT_S = 5.0  # without a heartbeat, after which a worker is warned of
RESTING = ("stopped", "failed")


class RunFailed(PenstockError):
    """A run that ended by an error: an operator's, or a worker's."""


@dataclass
class _Member:
    """A worker as the controller knows it."""

    site: Site
    host: str = ""
    port: int = 0
    pid: int = 0
    incarnation: int = 0
    registered: bool = False
    ready: bool = False
    alive: bool = False
    clock: WorkerClock = field(default_factory=WorkerClock)
    last_beat: float = 0.0


class Controller:
    """Directs one run."""

    def __init__(self, layout: Layout, terms: Terms, now: float) -> None:
        self.layout = layout
        self.terms = terms
        self.phase = "starting"
        self.error = ""
        self.traceback = ""
        self.epoch = 0
        self.out: list[tuple[int, wire.Command]] = []
        self.records: list[Record] = []
        self.lines: list[LogLine] = []
        self.members = [_Member(site) for site in terms.sites]
        self.placement = list(terms.placement)
        self.policy = terms.policy
        self.gauges = Gauges(layout)
        self.acker = Acker()
        self._by_name = {site.name: number for number, site in enumerate(terms.sites)}
        self.slots = {slot: number for number, site in enumerate(terms.sites) for slot in site.slots}
        self._ended: set[int] = set()
        self._passed: dict[tuple[int, int], int] = {}
        self.progressed: dict[int, int] = {}
        self.operations = Operations(self)
        self._incarnations = 0
        self._started = now
        self._went: float | None = None
        self._ended_at: float | None = None
        self._asked: dict[int, tuple[int, float]] = {}
        self._pings = 0
        self._next_ping = now
        self._next_clock = now
        self.now = now
        self._takes: dict[type, Callable[[int, Any, float], None]] = {
            wire.Beat: self._beat,
            wire.Pong: self._pong,
            wire.Log: self._log,
            wire.Ready: self._ready,
            wire.Report: self._report,
            wire.Failure: self._failure,
            wire.Prepared: self.operations.prepared,
            wire.Moved: self.operations.moved,
            wire.Passed: self._pass,
            wire.Ended: self._end,
            wire.Lost: self._lost_peer,
        }

    # What workers say

    def register(self, message: wire.Register, now: float) -> int | None:
        """Take a worker in and return its number; None refuses one that is not wanted (any more)."""
        number = self._by_name.get(message.worker)
        if number is None or self.members[number].registered or self.phase != "starting":
            return None
        self._incarnations += 1
        member = self.members[number]
        member.host, member.port, member.pid = message.host, message.port, message.pid
        member.incarnation = self._incarnations
        member.registered = member.alive = True
        member.last_beat = now
        self.event("registered", f"{message.worker} pid {message.pid} on {message.host}", now)
        if all(each.registered for each in self.members):
            self._assign()
        return number

    def told(self, worker: int, message: wire.Telling, now: float) -> None:
        """Take in what a worker says; what it says of another epoch is no use any more."""
        self.now = self.members[worker].last_beat = now
        if getattr(message, "epoch", 0) in (0, self.epoch):  # 0: said outside any epoch
            self._takes[type(message)](worker, message, now)

    def lost(self, worker: int, reason: str, now: float) -> None:
        """Take note that the connection to a worker broke."""
        member = self.members[worker]
        member.alive = False
        if self.phase not in RESTING:
            where = f"pid {member.pid} on {member.host}"
            self._fail(f"worker {member.site.name!r} ({where}) was lost: {reason}", "", now)

    # What the user says

    def find_task(self, name: str) -> int:
        """Return the number of a task, by its name."""
        if name not in self.layout.by_name:
            raise UnknownName("task", f"no task is named {name!r}; there are {choices(self.layout.by_name)}")
        return self.layout.by_name[name]

    def check_slot(self, slot: str) -> None:
        """Refuse a slot that the run does not have."""
        if slot not in self.slots:
            raise UnknownName("slot", f"this run has no slot {slot!r}; it has {choices(self.slots)}")

    def set_policy(self, policy: str, now: float) -> None:
        """Note that the tasks are placed by another policy from now on."""
        self.policy = policy
        self.event("apply", policy, now)

    def drain(self, now: float) -> None:
        """Let the sources end and everything in flight be processed."""
        if self.phase == "running":
            self.phase = "draining"
            self.operations.abandon("the application is ending", all_of_them=False)
            self.event("drain", "", now)
            self.tell_all(wire.Drain(self.epoch))
        elif self.phase == "starting":
            self.stop(now)

    def stop(self, now: float) -> None:
        """End at once."""
        if self.phase not in RESTING:
            self._finish("stopped", now)

    def fail(self, problem: str, now: float) -> None:
        """End because of something that no worker can tell of."""
        self._fail(problem, "", now)

    # Time

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.now = now
        if self.phase == "starting" and now - self._started > self.terms.start_s:
            missing = [m.site.name for m in self.members if not m.registered] or [
                m.site.name for m in self.members if not m.ready
            ]
            problem = f"workers {', '.join(missing)} did not start in {self.terms.start_s:g} s"
            self._fail(f"{problem}; has the cluster that many free cores?", "", now)
        if self.phase in RESTING:
            return
        self.acker.expire(now)
        if now >= self._next_ping:
            self._next_ping = now + PING_S
            for number, member in enumerate(self.members):
                if member.alive:
                    self._pings += 1
                    self._asked[number] = (self._pings, now)
                    self.out.append((number, wire.Ping(self._pings)))
        if now >= self._next_clock:
            self._next_clock = now + CLOCK_S
            self._record_clocks()
        self.operations.tick(now)

    def wakeup(self) -> float:
        """Return when `tick` is due."""
        return math.inf if self.phase in RESTING else self._next_ping

    # Results

    def status(self, now: float) -> Status:
        """Return how it is going."""
        now = self._ended_at if self._ended_at is not None else now
        machines = [slot.rpartition("/")[0] for slot in self.placement]
        counts = [0] * len(self.members)
        for slot in self.placement:
            counts[self.slots[slot]] += 1
        return Status(
            run=self.terms.run,
            application=self.layout.application.name,
            phase=self.phase,
            seconds=now - (self._went if self._went is not None else now),
            emulated=self.terms.emulated_name,
            master=self.terms.master,
            policy=self.policy,
            components=self.gauges.components(machines, now),
            machines=[
                self.gauges.machine(number, m.site, m.host, counts[number], m.clock.estimate.offset, m.alive)
                for number, m in enumerate(self.members)
            ],
            latency=self.gauges.end_to_end(now),
            placement=dict(zip(self.layout.names, self.placement, strict=True)),
            emitted=self.gauges.emitted,
            written=self.gauges.written,
            in_flight=self._in_flight(),
            timed_out=self.acker.timed_out,
            operation=self.operations.current,
            warnings=[*self.gauges.warnings(), *self._silent(now)],
            error=self.error,
        )

    def _silent(self, now: float) -> list[str]:
        """Say which workers give no sign of life, though their connection stands: stopped, or cut off."""
        return [
            f"worker {m.site.name!r} (pid {m.pid} on {m.host}) has given no sign of life for {now - m.last_beat:.0f} s"
            for m in self.members
            if m.alive and self.phase not in RESTING and now - m.last_beat > SILENT_S
        ]

    def take_records(self) -> list[Record]:
        """Return the telemetry since the last call."""
        records, self.records = self.records, []
        return records

    # Inside

    def _assign(self) -> None:
        self.epoch += 1
        peers = tuple(wire.Peer(m.site.name, m.host, m.port, m.incarnation) for m in self.members)
        terms = self.terms
        for number, member in enumerate(self.members):
            assign = wire.Assign(
                self.epoch,
                number,
                member.incarnation,
                peers,
                self.slots,
                tuple(self.placement),
                terms.window,
                terms.sample_tps,
                terms.in_flight,
                terms.seed,
                terms.folder,
                terms.telemetry,
                None if terms.emulated is None else dict(terms.emulated),
                terms.routes,
            )
            self.out.append((number, assign))

    def _go(self, now: float) -> None:
        self.phase = "running"
        self._went = now
        self.event("start", self.policy, now)
        self.tell_all(wire.Go(self.epoch))

    def tell_all(self, command: wire.Command) -> None:
        """Say something to every worker."""
        self.out += [(number, command) for number, member in enumerate(self.members) if member.alive]

    def _beat(self, worker: int, _: wire.Beat, now: float) -> None:
        self.members[worker].last_beat = now

    def _pong(self, worker: int, message: wire.Pong, now: float) -> None:
        if worker in self._asked and self._asked[worker][0] == message.number:
            self.members[worker].clock.add(self._asked[worker][1], now, message.at)

    def _log(self, worker: int, message: wire.Log, _: float) -> None:
        task, site = message.task if message.task >= 0 else None, self.members[worker].site.name
        self.lines.append(LogLine(message.at, message.level, message.component, task, site, message.text))

    def _ready(self, worker: int, _: wire.Ready, now: float) -> None:
        self.members[worker].ready = True
        if self.phase == "starting" and all(each.ready for each in self.members):
            self._go(now)

    def _failure(self, _: int, message: wire.Failure, now: float) -> None:
        self._fail(_explained(message), message.traceback, now)

    def _end(self, _: int, message: wire.Ended, now: float) -> None:
        self._ended.add(message.task)
        if self.phase not in RESTING and len(self._ended) == len(self.layout.components):
            self._finish("stopped", now)

    def _lost_peer(self, worker: int, message: wire.Lost, now: float) -> None:
        name, peer = self.members[worker].site.name, self.members[message.peer]
        where = f"pid {peer.pid} on {peer.host}"
        self._fail(
            f"worker {peer.site.name!r} ({where}) was lost: {name!r} has no connection to it, {message.reason}", "", now
        )

    def _report(self, worker: int, report: wire.Report, now: float) -> None:
        self.gauges.report(worker, report, now)
        clock = self.members[worker].clock.estimate
        for root in report.roots:
            self._done(self.acker.root(root.root, root.task, clock.controller_time(root.due), now))
        for ack in report.acks:
            self._done(self.acker.ack(ack.root, ack.ids, clock.controller_time(ack.finished), now))

    def _done(self, done: Done | None) -> None:
        if done is None:
            return
        self.gauges.latency(done.finished, done.finished - done.due)
        if self.terms.telemetry:
            fields = {"root": done.root, "due": done.due, "finished": done.finished}
            self._record(RecordKind.DONE, done.finished, task=self.layout.names[done.task], **fields)

    def _pass(self, _: int, message: wire.Passed, now: float) -> None:
        """Learn how far a source's tuples have come: as far as at the sink that is furthest behind."""
        key = (message.sink, message.source)
        self._passed[key] = max(self._passed.get(key, 0), message.value)
        least = min(self._passed.get((sink, message.source), 0) for sink in self.layout.sinks[message.source])
        if least > self.progressed.get(message.source, 0):
            self.progressed[message.source] = least
            self.tell_progress(message.source)

    def tell_progress(self, source: int) -> None:
        """Let a source know how many of its tuples are processed to the end."""
        worker = self.slots[self.placement[source]]
        self.out.append((worker, wire.Progressed(self.epoch, source, self.progressed[source])))

    def _in_flight(self) -> int | None:
        if not self.terms.in_flight:
            return None
        return max(0, self.gauges.emitted - sum(self.progressed.values()))

    def clock(self, worker: int) -> ClockEstimate:
        """Return how far a worker's clock is from this one's."""
        return self.members[worker].clock.estimate

    def _fail(self, problem: str, traceback: str, now: float) -> None:
        if self.phase in RESTING:
            return
        self.error, self.traceback = problem, traceback
        self.event("failure", problem, now)
        self._finish("failed", now)

    def _finish(self, phase: str, now: float) -> None:
        self.phase, self._ended_at = phase, now
        self.operations.abandon("the application has ended", all_of_them=True)
        self.event("stop", phase, now)
        self._record_clocks()
        self.tell_all(wire.Stop())

    def event(self, event: str, detail: str, now: float) -> None:
        """Note something in the telemetry, such as a phase of an experiment."""
        self._record(RecordKind.EVENT, now, event=event, detail=detail)

    def _record_clocks(self) -> None:
        for member in self.members:
            if member.alive:
                clock = member.clock.estimate
                fields = {"offset": clock.offset, "drift": clock.drift, "error": clock.error}
                record = self._made(RecordKind.CLOCK, clock.at, **fields)
                worker = {"worker": member.site.name, "incarnation": member.incarnation}
                self._keep(msgspec.structs.replace(record, **worker))

    def _record(self, kind: RecordKind, at: float, **fields: Any) -> None:
        self._keep(self._made(kind, at, **fields))

    def _made(self, kind: RecordKind, at: float, **fields: Any) -> Record:
        emulated = self.terms.emulated is not None
        return Record(
            kind=kind.value,
            run=self.terms.run,
            worker="controller",
            at=at,
            epoch=self.epoch,
            emulated=emulated,
            **fields,
        )

    def _keep(self, record: Record) -> None:
        if self.terms.telemetry:
            self.records.append(record)


def _explained(failure: wire.Failure) -> str:
    """Say in one line what an operator's code, or a worker, failed at."""
    where = f"{failure.component}[{failure.task}]" if failure.component else "worker"
    on = f" on tuple {failure.value}" if failure.value else ""
    return " ".join(f"{where}: {failure.error}{on}".split())
