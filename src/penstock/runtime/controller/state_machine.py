"""The controller without I/O: directs the workers of one application through its phases, moves tasks, keeps the books.

    starting    workers register; each is told its tasks once all are there
    running     tuples flow; one operation at a time (a checkpoint, a move, or the moves of a plan)
    recovering  something was lost: a new epoch is about to begin at the last checkpoint
    draining    sources have ended; each task ends when all before it have; a last checkpoint ends it
    stopped, failed

It alone issues epochs and incarnations, and it alone publishes. What it wants said to workers it leaves in `out`, what
is for the disk in `storing`, whose connection is to be closed in `hung_up`; a shell does all that.
"""

import heapq
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from penstock.model.errors import PenstockError, UnknownName, nearest
from penstock.model.limits import Limits, changed_limits
from penstock.model.status import Status
from penstock.model.telemetry import Record, RecordKind
from penstock.runtime.clocks import ClockEstimate
from penstock.runtime.controller.checkpoint import Checkpointing
from penstock.runtime.controller.clock_sync import Pings
from penstock.runtime.controller.desired_placement import Standing
from penstock.runtime.controller.membership import Members
from penstock.runtime.controller.metrics import Gauges
from penstock.runtime.controller.operations import Operations
from penstock.runtime.controller.progress import Progress
from penstock.runtime.controller.recovery import Recovery
from penstock.runtime.controller.relocation import Relocation
from penstock.runtime.controller.settings import RunSpec, Site
from penstock.runtime.controller.status import overview
from penstock.runtime.controller.telemetry import Diary
from penstock.runtime.controller.tuple_policies import Rulebook
from penstock.runtime.handle import LogLine
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.storage.checkpoints import Manifest
from penstock.runtime.storage.disk import Job
from penstock.runtime.worker.running_task import last_running

RESTING = ("stopped", "failed")
NOTHING = "the run processed nothing"


class RunFailed(PenstockError):
    """A run that ended by an error: an operator's, or a worker's."""

    exit_code = 1


class Controller:
    """Directs one run."""

    def __init__(self, layout: Layout, spec: RunSpec, now: float) -> None:
        self.layout = layout
        self.spec = spec
        self.phase = "starting"
        self.error = ""
        self.traceback = ""
        self.epoch = spec.epoch
        self.out: list[tuple[int, controller_messages.Command]] = []
        self.diary = Diary(spec.run, emulated=spec.emulated is not None, keep=bool(spec.folders.telemetry))
        self.lines: list[LogLine] = []
        self.storing: list[Job] = []
        self.hung_up: list[int] = []
        self.members = Members(spec.sites, spec.config.recovery.lease_s, spec.config.recovery.silence_s, now)
        self.rulebook = Rulebook(self)
        self.standing = Standing(self)
        self.placement = list(spec.placement)  # the slot that each task has
        self.policy = spec.policy
        self.routes = spec.routes
        self.limits = dict(spec.config.limits)  # source component -> tuples a second
        self.gauges = Gauges(layout)
        self.progress = Progress(self)
        self.pings = Pings(self, now)
        self.operations = Operations(self)
        self.checkpointing = Checkpointing(self)
        self.recovery = Recovery(self, now)
        self.relocation = Relocation(self)
        self._later: list[tuple[float, int, Callable[[float], None]]] = []  # heap
        self._laters = 0
        self._started = now
        self.went_at: float | None = None
        self.ended_at: float | None = None
        self.now = now
        self._takes = self._takers()

    def _takers(self) -> dict[type, Callable[[int, Any, float], None]]:
        """Return who takes what workers tell."""
        return {
            worker_messages.Heartbeat: self._beat,
            worker_messages.Pong: self.pings.answered,
            worker_messages.Log: self._log,
            worker_messages.Ready: self._ready,
            worker_messages.Report: self._reported,
            worker_messages.Failure: self._failure,
            worker_messages.MovePrepared: self.operations.prepared,
            worker_messages.Moved: self.operations.moved,
            worker_messages.SinkProgress: self.progress.passed,
            worker_messages.Ended: self._end,
            worker_messages.PeerLost: self._lost_peer,
            worker_messages.Detached: self.relocation.parted,
            worker_messages.CheckpointSaved: self.checkpointing.saved,
            worker_messages.CheckpointFailed: self.checkpointing.unsaved,
            worker_messages.CheckpointUnreadable: self.checkpointing.unusable,
        }

    # What workers say

    def register(self, message: worker_messages.Register, now: float) -> int | None:
        """Take a worker in and return its number; None refuses one that is not wanted (any more)."""
        if self.phase in RESTING:
            return None
        self.now = now
        number = self.members.register(message, now)
        if number is None:
            return None
        self.event("registered", f"{message.worker} pid {message.pid} on {message.host}", now)
        if self.recovery.stage:
            self.recovery.proceed(now)
        else:
            self.assign([number])
        return number

    def told(self, worker: int, message: worker_messages.WorkerMessage, now: float) -> None:
        """Take in what a worker says; what it says of another epoch is no use any more."""
        self.now = now
        if not self.members[worker].alive:
            return
        self.members.beat(worker, now)
        if not isinstance(message, worker_messages.Heartbeat):
            self.members[worker].last_word = now
        if getattr(message, "epoch", 0) in (0, self.epoch):  # 0: said outside any epoch
            self._takes[type(message)](worker, message, now)

    def lost(self, worker: int, reason: str, now: float) -> None:
        """Take note that the connection to a worker broke: nothing is known of its process yet."""
        member = self.members[worker]
        if self.phase in RESTING or not member.alive:
            return
        self.now = now
        self.members.lost(worker, now)
        if not member.parted:
            self._look_into(worker)
        if self._matters(worker):
            self.recovery.begin(f"worker {member.site.name!r} ({member.where}) was lost: {reason}", now)
        else:
            self.event("lost", f"{member.site.name} {reason}", now)

    def _look_into(self, worker: int) -> None:
        """Find out which task a worker that was lost was running, where it has left that behind."""
        member, names = self.members[worker], self.layout.names
        site, incarnation = member.site.name, member.incarnation

        def blame(task: int | None, problem: str, _: float) -> None:
            if not problem and task is not None and 0 <= task < len(names) and not self.at_rest:
                self.recovery.blame(names[task], site)

        look = partial(last_running, folder=self.spec.folders.run, site=site, incarnation=incarnation)
        self.storing.append(Job(f"what worker {site} did", look, blame))

    def tasks_of_lost(self) -> list[str]:
        """Return the tasks of workers that are not there."""
        lost = {slot for slot, number in self.slots.items() if not self.members[number].alive}
        return [name for name, slot in zip(self.layout.names, self.placement, strict=True) if slot in lost]

    def gone(self, worker: int, now: float) -> None:
        """Take note that the process of a worker has ended, so that nothing more can come of it."""
        if not self.members[worker].alive:
            self.members.gone(worker)
            self.recovery.proceed(now)

    def drop(self, worker: int, reason: str, now: float) -> None:
        """Have no more to do with a worker: it is told nothing, and nothing that it says is heard."""
        self.hung_up.append(worker)
        self.lost(worker, reason, now)

    def _matters(self, worker: int) -> bool:
        """Say whether a worker has tasks, or one on its way to it."""
        slots = self.members[worker].site.slots
        if self.recovery.stage or self.operations.moving_to in slots or self.spec.emulated is not None:
            return True  # an emulated machine may have links that others' tuples cross
        return not set(slots).isdisjoint(self.placement)

    def site_wanted(self, name: str) -> bool:
        """Say whether a site should have a worker."""
        number = self.members.by_name[name]
        return self.phase not in RESTING and not self.members.is_out(number, self.now)

    def add_site(self, site: Site) -> None:
        """Take in a site that was not there before; a worker may register for it."""
        self.members.add(site)

    # What the user says

    def find_task(self, name: str) -> int:
        """Return the number of a task, by its name."""
        if name not in self.layout.by_name:
            raise UnknownName("task", f"no task is named {name!r}; {nearest(name, self.layout.by_name)}")
        return self.layout.by_name[name]

    def check_slot(self, slot: str) -> None:
        """Refuse a slot that the run does not have."""
        if slot not in self.slots:
            raise UnknownName("slot", f"this run has no slot {slot!r}; {nearest(slot, self.slots)}")

    @property
    def slots(self) -> dict[str, int]:
        """The worker of each slot."""
        return self.members.slots

    def set_policy(self, policy: str, now: float) -> None:
        """Note that the tasks are placed by another policy from now on."""
        self.policy = policy
        self.event("apply", policy, now)

    def limit(self, limits: Limits, now: float) -> dict[str, float]:
        """Let sources give so many tuples a second from now on, and return all limits in force."""
        if self.phase in RESTING:
            raise PenstockError(f"limits: the application is {self.phase}; only a running one can be changed")
        self.limits = changed_limits(self.limits, limits, self.layout.application)
        self.tell_all(controller_messages.LimitRates(self.epoch, self.limits))
        self.event("limit", ", ".join(f"{name} {rate:g}/s" for name, rate in self.limits.items()) or "none", now)
        self.standing.note(lambda _: None)
        return self.limits

    def drain(self, now: float) -> None:
        """Let the sources end and everything in flight be processed."""
        if self.phase == "running":
            self.phase = "draining"
            self.operations.abandon("the application is ending", all_of_them=False)
            self.event("drain", "", now)
            self.tell_all(controller_messages.Drain(self.epoch))
        elif self.phase == "recovering":
            self.recovery.then_drain()
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
        if self.phase == "starting" and now - self._started > self.spec.config.recovery.start_s:
            missing = [m.site.name for m in self.members.all if not m.registered] or [
                m.site.name for m in self.members.all if not m.ready
            ]
            problem = f"workers {', '.join(missing)} did not start in {self.spec.config.recovery.start_s:g} s"
            reason = self.recovery.problem or "has the cluster that many free cores?"
            self._fail(f"{problem}; {reason}", "", now)
        if self.phase in RESTING:
            return
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2](now)
        for number in self.members.silent(now):
            self.drop(number, f"it gave no sign of life for {self.spec.config.recovery.silence_s:g} s", now)
        if self.recovery.stage:
            self.recovery.proceed(now)
        self.progress.tick(now)
        self.pings.tick(now)
        self.standing.tick(now)
        self.relocation.tick(now)
        self.operations.tick(now)
        self.checkpointing.tick(now)

    def wakeup(self) -> float:
        """Return when `tick` is due."""
        later = self._later[0][0] if self._later else math.inf
        return math.inf if self.phase in RESTING else min(self.pings.due, later, self.checkpointing.due)

    def later(self, when: float, step: Callable[[float], None]) -> None:
        """Have something called at a time."""
        self._laters += 1
        heapq.heappush(self._later, (when, self._laters, step))

    # Results

    def status(self, now: float) -> Status:
        """Return how it is going."""
        return overview(self, now)

    def take_records(self) -> list[Record]:
        """Return the telemetry since the last call."""
        return self.diary.take()

    @property
    def at_rest(self) -> bool:
        """Whether it has ended."""
        return self.phase in RESTING

    # Inside

    def assign(self, numbers: Sequence[int]) -> None:
        """Tell workers all that they need for the current epoch."""
        spec, latest = self.spec, self.checkpointing.latest
        peers = tuple(member.peer for member in self.members.all)
        for number in numbers:
            member = self.members[number]
            member.ready, member.epoch = False, self.epoch
            here = [task for task, slot in enumerate(self.placement) if self.slots[slot] == number]
            assign = controller_messages.Assign(
                epoch=self.epoch,
                worker=number,
                incarnation=member.incarnation,
                peers=peers,
                slots=self.slots,
                placement=tuple(self.placement),
                config=spec.config,
                folders=spec.folders,
                emulated=spec.emulated,
                routes=self.routes,
                rules=self.rulebook.rules(number),
                limits=self.limits,
                checkpoint=0 if latest is None else latest.number,
                kept=() if latest is None else tuple(latest.kept(self.layout.names[task], task) for task in here),
                given_up=self.checkpointing.given_up,
                capacity=member.site.capacity,
            )
            self.out.append((number, assign))

    def go(self, phase: str, now: float) -> None:
        """Let tuples flow in a new epoch."""
        self.phase = phase
        if self.went_at is None:
            self.went_at = now
            self.event("start", self.policy, now)
        for number in self.members.alive:
            if self.members[number].epoch == self.epoch:
                self.out += [(number, command) for command in self._going()]
            else:  # it came while the others were opening their tasks
                self.assign([number])
        self.checkpointing.start(now)
        self.operations.resume(now)
        self._end_if_all_have(now)

    def joined(self, worker: int, now: float) -> None:
        """Let a worker that has come late take part."""
        peers = tuple(member.peer for member in self.members.all)
        for number in self.members.alive:
            if number != worker and self.members[number].epoch == self.epoch:
                self.out.append((number, controller_messages.Peers(self.epoch, peers, self.slots)))
        self.out += [(worker, command) for command in self._going()]
        self.event("joined", self.members[worker].site.name, now)

    def _going(self) -> list[controller_messages.Command]:
        return [
            controller_messages.Start(self.epoch),
            *([controller_messages.Drain(self.epoch)] if self.phase == "draining" else []),
        ]

    def published(self, now: float) -> None:
        """End where the last checkpoint is published."""
        latest = self.checkpointing.latest
        if self.phase not in ("running", "draining") or latest is None or not latest.last:
            return
        if self.recovery.count and not self._advanced(latest):
            times = f"{self.recovery.count} {'recoveries' if self.recovery.count > 1 else 'recovery'}"
            problem = f"{NOTHING}: {times} went back to where it had started"
            self._fail(f"{problem}; the last was because {self.recovery.reason}", "", now)
        else:
            self._finish("stopped", now)

    def _advanced(self, latest: Manifest) -> bool:
        """Say whether a source has given tuples, beyond those that a resumed run had, which were not rolled back."""
        before = {saved.task: saved.counted for saved in self.spec.resumed.tasks} if self.spec.resumed else {}
        sources = {self.layout.names[task] for task in self.layout.reached}
        return any(saved.counted > before.get(saved.task, 0) for saved in latest.tasks if saved.task in sources)

    def warn(self, text: str) -> None:
        """Add a line to the log."""
        self.lines.append(LogLine(time.time(), "warning", "", None, "controller", text))

    def tell_all(self, command: controller_messages.Command) -> None:
        """Say something to every worker."""
        self.out += [(number, command) for number in self.members.alive if self.members[number].epoch]

    def _beat(self, worker: int, message: worker_messages.Heartbeat, now: float) -> None:
        """Take a sign of life: there is nothing in it but that it came."""

    def _reported(self, worker: int, message: worker_messages.Report, now: float) -> None:
        self.progress.reported(worker, message, now)
        if message.aligning:
            self.operations.progressed(now)

    def _log(self, worker: int, message: worker_messages.Log, _: float) -> None:
        task, site = message.task if message.task >= 0 else None, self.members[worker].site.name
        self.lines.append(LogLine(message.at, message.level, message.component, task, site, message.text))

    def _ready(self, worker: int, _: worker_messages.Ready, now: float) -> None:
        self.recovery.ready(worker, now)

    def _failure(self, worker: int, message: worker_messages.Failure, now: float) -> None:
        if message.user:
            self._fail(_explained(message), message.traceback, now)
        else:
            where = f" in {message.component}[{message.task}]" if message.component else ""
            self.recovery.begin(f"worker {self.members[worker].site.name!r} failed{where}: {message.error}", now)

    def _end(self, _: int, message: worker_messages.Ended, now: float) -> None:
        self.progress.ended.add(message.task)
        self._end_if_all_have(now)

    def _end_if_all_have(self, now: float) -> None:
        if self.phase in ("running", "draining") and self.progress.all_ended:
            self.checkpointing.request(now)

    def _lost_peer(self, worker: int, message: worker_messages.PeerLost, now: float) -> None:
        """Begin a new epoch: something was on that connection, also where the peer had no task any more."""
        peer, name = self.members[message.peer], self.members[worker].site.name
        if peer.parted:  # nothing was: it left on purpose
            return
        if peer.alive or not self.recovery.stage:  # else it is known already
            peer.failures.append(now)
            self.recovery.begin(
                f"worker {name!r} has lost its connection to {peer.site.name!r} ({peer.where}): {message.reason}", now
            )

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
        self.phase, self.ended_at = phase, now
        self.operations.abandon("the application has ended", all_of_them=True)
        self.event("stop", phase, now)
        self.diary.clocks(self.members)
        self.tell_all(controller_messages.Stop())

    def event(self, event: str, detail: str, now: float) -> None:
        """Note something in the telemetry, such as a phase of an experiment."""
        self.diary.epoch = self.epoch
        self.diary.record(RecordKind.EVENT, now, event=event, detail=detail)


def _explained(failure: worker_messages.Failure) -> str:
    """Say in one line what an operator's code, or a worker, failed at."""
    where = f"{failure.component}[{failure.task}]" if failure.component else "worker"
    on = f" on tuple {failure.value}" if failure.value and failure.value not in failure.error else ""
    return " ".join(f"{where}: {failure.error}{on}".split())
