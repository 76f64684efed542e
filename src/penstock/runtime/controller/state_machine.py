"""The controller without I/O: directs the workers of one run through its phases.

    starting    workers register; once all have, each is assigned its tasks
    running     tuples flow; one operation at a time (a checkpoint, a move, or the moves of a plan)
    recovering  something was lost: a new epoch starts from the last checkpoint
    draining    sources have ended; each task ends when all before it have; a last checkpoint ends the run
    stopped, failed

The controller alone issues epochs and incarnations, and it alone publishes. It assembles its parts, passes messages to
them, and implements what they need of each other. What is for workers, the disk and the log is in `outbox`, which a
shell drains.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.model.cluster import machine_of
from penstock.model.errors import PenstockError, UnknownName, nearest
from penstock.model.limits import Limits, update_limits
from penstock.model.status import Status
from penstock.model.telemetry import Record
from penstock.model.tuples import TuplePolicies
from penstock.runtime.controller.checkpoint import CheckpointCoordinator
from penstock.runtime.controller.desired_placement import DesiredPlacement
from penstock.runtime.controller.membership import Membership
from penstock.runtime.controller.metrics import Metrics
from penstock.runtime.controller.operations import Operation, Operations, Then
from penstock.runtime.controller.outbox import ControllerOutbox
from penstock.runtime.controller.progress import Progress
from penstock.runtime.controller.recovery import RecoveryCoordinator
from penstock.runtime.controller.relocation import Relocation
from penstock.runtime.controller.run_spec import RunSpec, RunState
from penstock.runtime.controller.telemetry import ClockSync, TelemetryBuffer
from penstock.runtime.controller.tuple_policies import PoliciesInForce
from penstock.runtime.handle import LogLine
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.storage.checkpoints import CheckpointManifest, Journal, write_journal
from penstock.runtime.storage.disk import Disk

NOTHING = "the run processed nothing"


class RunFailed(PenstockError):
    """A run that ended with an error: an operator's, or a worker's."""

    exit_code = 1


class Controller:
    """Directs one run."""

    def __init__(self, layout: Layout, spec: RunSpec, now: float) -> None:
        self.layout = layout
        self.spec = spec
        config = spec.config
        self.error = ""
        self.traceback = ""
        self.policy = spec.policy
        self.routes = spec.routes
        self.limits = dict(config.limits)  # source component -> tuples per second
        self.flowing_since: float | None = None  # the first time
        self.ended_at: float | None = None
        self._created = now
        state = self.state = RunState(layout.names, spec.placement, spec.epoch)
        members = self.members = Membership(spec.sites, config.recovery.lease_s, config.recovery.silence_s, now)
        outbox = self.outbox = ControllerOutbox(members)
        self.telemetry = TelemetryBuffer(
            spec.run, state, members, emulated=spec.emulated is not None, keep=bool(spec.folders.telemetry)
        )
        self.event = self.telemetry.event
        self.metrics = Metrics(layout)
        self.progress = Progress(layout, limited=bool(config.flow_control.in_flight))
        self.clock_sync = ClockSync(members, outbox.send, self.telemetry.clocks, now)
        self.tuple_policies = PoliciesInForce(layout.application, spec.emulated, config.tuple_policies)
        self.desired = DesiredPlacement(state, members, outbox, spec.complete, spec.folders.checkpoints, self._journal)
        self.operations = Operations(state, members, outbox, self.event, self, config.checkpointing.timeout_s)
        self.checkpointing = CheckpointCoordinator(
            layout, spec, state, outbox, self.event, self.desired.slots, self.progress.all_ended, self.metrics, self
        )
        self.recovery = RecoveryCoordinator(spec, state, members, outbox, self.event, self.checkpointing, self, now)
        self.relocation = Relocation(state, members, outbox, self.event)
        self._handlers = self._message_handlers()

    def _message_handlers(self) -> dict[type, Callable[[int, Any, float], None]]:
        """Return which method takes which message of a worker."""
        return {
            worker_messages.Heartbeat: self._take_heartbeat,
            worker_messages.Pong: self.clock_sync.take_pong,
            worker_messages.LogMessage: self._take_log,
            worker_messages.Ready: self._take_ready,
            worker_messages.ActivityReport: self._take_report,
            worker_messages.Failure: self._take_failure,
            worker_messages.MovePrepared: self.operations.take_prepared,
            worker_messages.Moved: self.operations.take_moved,
            worker_messages.SinkProgress: self._take_sink_progress,
            worker_messages.Ended: self._take_ended,
            worker_messages.PeerLost: self._take_peer_lost,
            worker_messages.Detached: self.relocation.take_detached,
            worker_messages.CheckpointSaved: self._take_saved,
            worker_messages.CheckpointFailed: self.checkpointing.take_failed,
            worker_messages.CheckpointUnreadable: self.checkpointing.take_unreadable,
        }

    @property
    def phase(self) -> str:
        """The phase of the run."""
        return self.state.phase

    @property
    def epoch(self) -> int:
        """The current epoch."""
        return self.state.epoch

    @property
    def placement(self) -> list[str]:
        """The slot that each task has."""
        return self.state.placement

    @property
    def ended(self) -> bool:
        """Whether the run has stopped or failed."""
        return self.state.ended

    # What the shell calls

    def register(self, message: worker_messages.Register, now: float) -> int | None:
        """Register a worker and return its number; None: it is not needed."""
        if self.ended:
            return None
        number = self.members.register(message, now)
        if number is None:
            return None
        self.event("registered", f"{message.worker} pid {message.pid} on {message.host}", now)
        if self.recovery.stage:
            self.recovery.proceed(now)
        else:
            self._assign([number])
        return number

    def receive(self, worker: int, message: worker_messages.WorkerMessage, now: float) -> None:
        """Take a message from a worker; drop it if it is of another epoch."""
        if not self.members[worker].alive:
            return
        self.members.record_beat(worker, now)
        if not isinstance(message, worker_messages.Heartbeat):
            self.members[worker].last_message = now
        if getattr(message, "epoch", 0) in (0, self.epoch):  # 0: it is of no epoch
            self._handlers[type(message)](worker, message, now)

    def lose(self, worker: int, reason: str, now: float) -> None:
        """Take the end of a worker's connection; its process may still act."""
        member = self.members[worker]
        if self.ended or not member.alive:
            return
        self.members.lose(worker, now)
        if not member.detached:
            self.recovery.investigate(worker)
        if self._is_needed(worker):
            self.recover(f"worker {member.site.name!r} ({member.where}) was lost: {reason}", now)
        else:
            self.event("lost", f"{member.site.name} {reason}", now)

    def end_process(self, worker: int, now: float) -> None:
        """Take the end of a lost worker's process: it can no longer act."""
        if not self.members[worker].alive:
            self.members.end_process(worker)
            self.proceed(now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        if self.phase == "starting" and now - self._created > self.spec.config.recovery.start_s:
            self._fail_start(now)
        if self.ended:
            return
        self.outbox.run_steps(now)
        for number in self.members.silent(now):
            self.drop(number, f"it sent no heartbeat for {self.spec.config.recovery.silence_s:g} s", now)
        if self.recovery.stage:
            self.proceed(now)
        self.progress.trees.expire(now)
        self.clock_sync.tick(now)
        correction = self.desired.correct(now, idle=not self.operations.current)
        if correction is not None:
            self.operations.request(correction, now)
        self.relocation.tick(self.desired.is_movable, idle=not self.operations.current)
        self.operations.tick(now)
        self.checkpointing.warn_late(now)
        if self.checkpointing.take_due(now):
            self.operations.request_checkpoint(now)

    def wakeup(self) -> float:
        """Return when `tick` is due."""
        return float("inf") if self.ended else min(self.clock_sync.due, self.outbox.next_step, self.checkpointing.due)

    def take_records(self) -> list[Record]:
        """Return the telemetry records since the last call."""
        return self.telemetry.take()

    # What the user calls

    def operate(
        self,
        moves: Sequence[tuple[str, str]],
        label: str,
        then: Callable[[Operation], None],
        now: float,
        *,
        routes: tuple[controller_messages.Route, ...] | None = None,
        tuples: TuplePolicies | None = None,
    ) -> None:
        """Begin an operation: moves of tasks to slots, by name, after a switch to other routes and tuple policies."""
        found = [(self._find_task(task), slot) for task, slot in moves]
        for _, slot in found:
            if slot not in self.members.slots:
                raise UnknownName("slot", f"this run has no slot {slot!r}; {nearest(slot, self.members.slots)}")
        if tuples is not None:
            self.tuple_policies.check(tuples)
        self.operations.request(Operation(deque(found), then, label, routes, tuples), now)

    def set_policy(self, policy: str, now: float) -> None:
        """Record which placement policy the placement follows."""
        self.policy = policy
        self.event("apply", policy, now)
        self.desired.write(lambda _: None)

    def limit(self, limits: Limits, now: float) -> dict[str, float]:
        """Limit the rates of sources, and return all limits in force."""
        if self.ended:
            raise PenstockError(f"limits: the application is {self.phase}; only a running one can be changed")
        self.limits = update_limits(self.limits, limits, self.layout.application)
        self.outbox.broadcast(controller_messages.LimitRates(self.epoch, self.limits))
        self.event("limit", ", ".join(f"{name} {rate:g}/s" for name, rate in self.limits.items()) or "none", now)
        self.desired.write(lambda _: None)
        return self.limits

    def relocate(self, site: str, now: float) -> str:
        """End the worker of a site once its tasks have moved, to launch it elsewhere; return why it cannot."""
        if self.spec.emulated is not None:
            return "an emulated machine may be anywhere"
        problem = self.relocation.request(site, now)
        if not problem:
            self.desired.next_check = now
        return problem

    def wants_worker(self, site: str, now: float) -> bool:
        """Return whether a site should have a worker."""
        return not self.ended and not self.members.is_excluded(self.members.by_name[site], now)

    def drain(self, now: float) -> None:
        """End the sources, and process everything in flight."""
        if self.phase == "running":
            self.state.phase = "draining"
            self.operations.abandon("the application is ending", now, everything=False)
            self.event("drain", "", now)
            self.outbox.broadcast(controller_messages.Drain(self.epoch))
        elif self.phase == "recovering":
            self.recovery.drain_after()
        elif self.phase == "starting":
            self.stop(now)

    def stop(self, now: float) -> None:
        """Stop at once."""
        if not self.ended:
            self._end("stopped", now)

    def fail(self, problem: str, now: float, traceback: str = "") -> None:
        """End the run with an error."""
        if self.ended:
            return
        self.error, self.traceback = problem, traceback
        self.event("failure", problem, now)
        self._end("failed", now)

    def status(self, now: float) -> Status:
        """Return the status of the run; after its end, the last one."""
        now = now if self.ended_at is None else self.ended_at
        tasks = [0] * len(self.members)
        for slot in self.placement:
            tasks[self.members.slots[slot]] += 1
        spec, recovery = self.spec, self.recovery
        return Status(
            run=spec.run,
            application=self.layout.application.name,
            phase=self.phase,
            seconds=now - (self.flowing_since if self.flowing_since is not None else now),
            emulated=None if spec.emulated is None else spec.emulated.name,
            master=spec.master,
            policy=self.policy,
            tuples=self.tuple_policies.tuples,
            limits=dict(self.limits),
            components=self.metrics.components([machine_of(slot) for slot in self.placement], now),
            machines=[self.metrics.machine(n, member, tasks[n], now) for n, member in enumerate(self.members)],
            latency=self.metrics.end_to_end(now),
            placement=dict(zip(self.layout.names, self.placement, strict=True)),
            emitted=self.metrics.emitted,
            written=self.metrics.written,
            in_flight=self.progress.in_flight(self.metrics.emitted),
            timed_out=self.progress.trees.timed_out,
            operation=self.operations.current,
            epoch=self.epoch,
            resumed=spec.resumed.number if spec.resumed is not None else 0,
            recoveries=recovery.count,
            last_recovery=recovery.last,
            last_recovery_s=recovery.times[-1] if recovery.times else 0.0,
            checkpoint=self.checkpointing.status(now),
            saving=self.checkpointing.progress(now),
            warnings=self._warnings(now),
            error=self.error,
        )

    def _warnings(self, now: float) -> list[str]:
        if not self.ended:
            late = [*self.checkpointing.warnings(), *self.operations.warnings(now)]
            return [*self.metrics.warnings(), *self.members.warnings(now), *late]
        silent = self.phase == "stopped" and not self.metrics.emitted
        return [*self.metrics.warnings(), *(["no source emitted a tuple"] if silent else [])]

    # What operations need

    def switch_routes(self, routes: tuple[controller_messages.Route, ...]) -> None:
        """Send tuples over other links."""
        self.routes = routes
        self.outbox.broadcast(controller_messages.Routes(self.epoch, routes))

    def switch_policies(self, tuples: TuplePolicies, now: float, then: Then) -> None:
        """Switch to other tuple policies; `then` is called when the journal has them."""
        self.tuple_policies.switch(tuples)
        self._send_rules()
        text = ", ".join(f"{name} {value}" for name, value in tuples.texts.items())
        self.event("switch", text or "none", now)
        self.desired.write(then)

    def commit_move(self, task: int, slot: str, temporary: bool, then: Then) -> None:
        """Change the placement; `then` is called when the journal has it."""
        self.placement[task] = slot
        if not temporary:
            self.desired.slots[task] = slot
        self._send_progress(task)  # what was sent to its old worker may have come too late to move with it
        if self.tuple_policies.depends_on_placement:
            self._send_rules()
        self.desired.write(then)

    def begin_checkpoint(self, now: float) -> None:
        """Begin a checkpoint."""
        self.checkpointing.begin(now)

    def abort_overdue_checkpoint(self, now: float) -> None:
        """Abort the checkpoint in progress, which makes no progress."""
        self.checkpointing.abort_overdue(now)

    # What checkpoints need

    def end_checkpoint(self, completed: bool, current: bool, now: float) -> None:
        """Continue after a checkpoint: `completed` or aborted, of the `current` epoch or an earlier one."""
        if completed:
            self.recovery.record_checkpoint()
        if current:
            self.operations.end_checkpoint(now)
        else:
            self.proceed(now)

    def end_if_last(self, now: float) -> None:
        """End the run if the last checkpoint is published."""
        latest, recovery = self.checkpointing.latest, self.recovery
        if not self.state.flowing or latest is None or not latest.last:
            return
        if self.phase == "draining" and recovery.count and not self._has_advanced(latest):
            times = f"{recovery.count} {'recoveries' if recovery.count > 1 else 'recovery'}"
            problem = f"{NOTHING}: {times} went back to where it had started"
            self.fail(f"{problem}; the last was because {recovery.reason}", now)
        else:
            self._end("stopped", now)

    def recover(self, reason: str, now: float) -> None:
        """Give up the epoch."""
        self.recovery.begin(reason, now)

    def proceed(self, now: float) -> None:
        """Start the next epoch if that is possible."""
        self.recovery.proceed(now)

    def drop(self, worker: int, reason: str, now: float) -> None:
        """Give up a worker: send it nothing more, and take nothing more from it."""
        self.outbox.close(worker)
        self.lose(worker, reason, now)

    # What recovery needs

    def interrupt_operation(self) -> None:
        """Interrupt the operation in progress."""
        self.operations.interrupt()

    def write_epoch(self) -> Callable[[Disk], None]:
        """Return what writes the current epoch to the journal."""
        journal, folder = self._journal(), self.checkpointing.folder
        return lambda disk: write_journal(disk, folder, journal)

    def open_epoch(self, usable: list[str]) -> None:
        """Place the tasks on usable slots, and have every worker open its tasks."""
        latest = self.checkpointing.latest
        counted = {} if latest is None else {saved.task: saved.counted for saved in latest.tasks}
        self.progress.restart(self.metrics.emitted, counted)
        self.state.placement = self.desired.complete(usable)
        self._assign(self.members.alive)

    def start_epoch(self, phase: str, now: float) -> None:
        """Let tuples flow."""
        self.state.phase = phase
        if self.flowing_since is None:
            self.flowing_since = now
            self.event("start", self.policy, now)
        for number in self.members.alive:
            if self.members[number].epoch == self.epoch:
                self._start(number)
            else:  # it registered while the others were opening their tasks
                self._assign([number])
        self.checkpointing.start(now)
        self.operations.proceed(now)
        self._request_last_checkpoint(now)

    def _journal(self) -> Journal:
        """Return what the next driver must know."""
        placement = dict(zip(self.layout.names, self.desired.slots, strict=True))
        return Journal(self.epoch, placement, self.policy, self.tuple_policies.tuples, self.limits)

    # Messages of workers

    def _take_heartbeat(self, worker: int, message: worker_messages.Heartbeat, now: float) -> None:
        """Do nothing: `receive` has recorded when it came."""

    def _take_log(self, worker: int, message: worker_messages.LogMessage, _: float) -> None:
        task, site = message.task if message.task >= 0 else None, self.members[worker].site.name
        self.outbox.lines.append(LogLine(message.at, message.level, message.component, task, site, message.text))

    def _take_ready(self, worker: int, _: worker_messages.Ready, now: float) -> None:
        self.members[worker].ready = True
        if not self.recovery.stage and self.state.flowing:
            self._join(worker, now)
        else:
            self.recovery.take_ready(now)

    def _take_report(self, worker: int, message: worker_messages.ActivityReport, now: float) -> None:
        self.metrics.report(worker, message, now)
        for done in self.progress.take_report(message, self.members[worker].clock.estimate, now):
            self.metrics.latency(done.finished, done.finished - done.due)
            self.telemetry.trace(done)
        self.checkpointing.take_report(message)
        if message.aligning:
            self.operations.extend_checkpoint(now)

    def _take_failure(self, worker: int, message: worker_messages.Failure, now: float) -> None:
        if message.user:
            self.fail(_description(message), now, message.traceback)
        else:
            where = f" in {message.component}[{message.task}]" if message.component else ""
            self.recover(f"worker {self.members[worker].site.name!r} failed{where}: {message.error}", now)

    def _take_sink_progress(self, _: int, message: worker_messages.SinkProgress, now: float) -> None:
        if self.progress.take_sink(message):
            self._send_progress(message.source)

    def _take_ended(self, _: int, message: worker_messages.Ended, now: float) -> None:
        self.progress.ended.add(message.task)
        self._request_last_checkpoint(now)

    def _take_peer_lost(self, worker: int, message: worker_messages.PeerLost, now: float) -> None:
        """Start a new epoch: something was in flight on that connection, even if the peer has no task any more."""
        peer, name = self.members[message.peer], self.members[worker].site.name
        if peer.detached:  # nothing was in flight: it left on purpose
            return
        if peer.alive or not self.recovery.stage:  # else the loss is known already
            peer.failures.append(now)
            self.recover(
                f"worker {name!r} has lost its connection to {peer.site.name!r} ({peer.where}): {message.reason}", now
            )

    def _take_saved(self, worker: int, message: worker_messages.CheckpointSaved, now: float) -> None:
        if self.checkpointing.take_saved(worker, message, now):
            self.operations.extend_checkpoint(now)

    # Commands to workers

    def _assign(self, numbers: Sequence[int]) -> None:
        """Send workers all that they need for the current epoch."""
        spec, latest, slots = self.spec, self.checkpointing.latest, self.members.slots
        for number in numbers:
            member = self.members[number]
            member.ready, member.epoch = False, self.epoch
            here = [task for task, slot in enumerate(self.placement) if slots[slot] == number]
            assign = controller_messages.Assign(
                epoch=self.epoch,
                worker=number,
                incarnation=member.incarnation,
                peers=self.members.peers,
                slots=slots,
                placement=tuple(self.placement),
                config=spec.config,
                folders=spec.folders,
                emulated=spec.emulated,
                routes=self.routes,
                rules=self._rules(number),
                limits=self.limits,
                checkpoint=0 if latest is None else latest.number,
                kept=self.checkpointing.states(here),
                given_up=self.checkpointing.aborted,
                capacity=member.site.capacity,
            )
            self.outbox.send(number, assign)

    def _start(self, worker: int) -> None:
        self.outbox.send(worker, controller_messages.Start(self.epoch))
        if self.phase == "draining":
            self.outbox.send(worker, controller_messages.Drain(self.epoch))

    def _join(self, worker: int, now: float) -> None:
        """Let a worker take part that has registered during the epoch."""
        for number in self.members.in_epoch(self.epoch):
            if number != worker:
                self.outbox.send(number, controller_messages.Peers(self.epoch, self.members.peers, self.members.slots))
        self._start(worker)
        self.event("joined", self.members[worker].site.name, now)

    def _rules(self, worker: int) -> controller_messages.PolicyRules:
        return self.tuple_policies.rules(machine_of(self.members[worker].site.slots[0]), self.placement)

    def _send_rules(self) -> None:
        """Send every worker the tuple policies in force."""
        for number in self.members.assigned:
            self.outbox.send(number, controller_messages.SwitchPolicies(self.epoch, self._rules(number)))

    def _send_progress(self, source: int) -> None:
        """Send a source task the number of its tuples that every sink has processed, if it is known."""
        if source in self.progress.processed:
            worker, value = self.members.slots[self.placement[source]], self.progress.processed[source]
            self.outbox.send(worker, controller_messages.SourceProgress(self.epoch, source, value))

    # Inside

    def _find_task(self, name: str) -> int:
        if name not in self.layout.by_name:
            raise UnknownName("task", f"no task is named {name!r}; {nearest(name, self.layout.by_name)}")
        return self.layout.by_name[name]

    def _is_needed(self, worker: int) -> bool:
        """Return whether the loss of a worker ends the epoch: it has tasks, or one is moving to it."""
        slots = self.members[worker].site.slots
        if self.recovery.stage or self.operations.moving_to in slots or self.spec.emulated is not None:
            return True  # an emulated machine may have links that others' tuples cross
        return not set(slots).isdisjoint(self.placement)

    def _request_last_checkpoint(self, now: float) -> None:
        if self.state.flowing and self.progress.all_ended():
            self.checkpointing.request(now)

    def _has_advanced(self, latest: CheckpointManifest) -> bool:
        """Return whether a source has emitted tuples, beyond those of a resumed run, that were not rolled back."""
        before = {saved.task: saved.counted for saved in self.spec.resumed.tasks} if self.spec.resumed else {}
        sources = {self.layout.names[task] for task in self.layout.reached}
        return any(saved.counted > before.get(saved.task, 0) for saved in latest.tasks if saved.task in sources)

    def _fail_start(self, now: float) -> None:
        missing = [m.site.name for m in self.members if not m.registered] or [
            m.site.name for m in self.members if not m.ready
        ]
        problem = f"workers {', '.join(missing)} did not start in {self.spec.config.recovery.start_s:g} s"
        self.fail(f"{problem}; {self.recovery.problem or 'has the cluster that many free cores?'}", now)

    def _end(self, phase: str, now: float) -> None:
        self.state.phase, self.ended_at = phase, now
        self.operations.abandon("the application has ended", now, everything=True)
        self.event("stop", phase, now)
        self.telemetry.clocks()
        self.outbox.broadcast(controller_messages.Stop())


def _description(failure: worker_messages.Failure) -> str:
    """Return in one line what an operator's code, or a worker, failed at."""
    where = f"{failure.component}[{failure.task}]" if failure.component else "worker"
    on = f" on tuple {failure.value}" if failure.value and failure.value not in failure.error else ""
    return " ".join(f"{where}: {failure.error}{on}".split())
