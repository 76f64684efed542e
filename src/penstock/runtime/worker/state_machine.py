"""A worker without I/O: frames and commands in, frames, messages and storage jobs out.

A shell passes it the input from the network (`frame`, `command`), runs its turns (`turn`) and drains its `outbox` and
records. Several workers, a controller and a clock in one process form a cluster that a test can replay. Tasks run to
completion, in topological order, so that a tuple passes through all tasks of a slot in one turn.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.api.dataflow import Dataflow
from penstock.model.telemetry import Record
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import controller_messages, encode, worker_messages
from penstock.runtime.protocol.controller_messages import Assign, PolicyRules
from penstock.runtime.protocol.frames import (
    BARRIER,
    END,
    PROGRESS,
    Credit,
    Envelope,
    Farewell,
    Frame,
    MarkerBody,
    MovingTask,
    decode_frame,
)
from penstock.runtime.storage.disk import StorageJob
from penstock.runtime.worker.checkpoint import Checkpointer, States, reading_job
from penstock.runtime.worker.execution.direct import Direct
from penstock.runtime.worker.execution.emulated import Emulated
from penstock.runtime.worker.execution.emulated_network import Emulation
from penstock.runtime.worker.execution.interface import Handlers, TaskExecution
from penstock.runtime.worker.flow_control import CreditControl
from penstock.runtime.worker.input import InChannel
from penstock.runtime.worker.logic import UserError
from penstock.runtime.worker.migration import ArrivingTasks, Migration
from penstock.runtime.worker.reporting import UNKNOWN, ProcessUsage, Reporter, describe_failure
from penstock.runtime.worker.routing import Early, Exchange, TaskDirectory
from penstock.runtime.worker.running_task import RunningTask
from penstock.runtime.worker.task import SourceLimits, Task
from penstock.runtime.worker.task_factory import RunFacts, TaskFactory
from penstock.runtime.worker.tracing import Identity, Tracer

if TYPE_CHECKING:
    from penstock.runtime.worker.tuple_policies.active import ActivePolicies

FLUSH_S = 1.0


class WorkerOutbox:
    """The output of a worker to its shell: frames for each worker, messages to the controller, storage jobs."""

    def __init__(self) -> None:
        self._frames: dict[int, list[bytes]] = {}
        self._messages: list[worker_messages.WorkerMessage] = []
        self._jobs: list[StorageJob] = []

    def post(self, worker: int, frame: Frame | Farewell) -> None:
        """Send a frame to another worker."""
        self._frames.setdefault(worker, []).append(encode(frame))

    def report(self, message: worker_messages.WorkerMessage) -> None:
        """Send a message to the controller."""
        self._messages.append(message)

    def store(self, job: StorageJob) -> None:
        """Run a storage job, after the earlier ones."""
        self._jobs.append(job)

    def unsent(self) -> int:
        """Return the number of bytes of the frames."""
        return sum(len(frame) for frames in self._frames.values() for frame in frames)

    def take_frames(self) -> dict[int, list[bytes]]:
        """Return the frames since the last call."""
        frames, self._frames = self._frames, {}
        return frames

    def take_messages(self) -> list[worker_messages.WorkerMessage]:
        """Return the messages since the last call."""
        messages, self._messages = self._messages, []
        return messages

    def take_jobs(self) -> list[StorageJob]:
        """Return the jobs since the last call."""
        jobs, self._jobs = self._jobs, []
        return jobs


class Worker:
    """One worker process.

    `phase` changes from `new` through `restoring` and `assigned` to `running`, and repeats the last three in every
    epoch. It ends in `stopped`, or stays `failed` until the next epoch. The parts that the worker assembles belong to
    one epoch, and their contents are discarded with them.
    """

    assigned: Assign
    rules: PolicyRules  # of the tuple policies in force
    execution: TaskExecution
    checkpointer: Checkpointer
    migration: Migration
    arrivals: ArrivingTasks
    _exchange: Exchange
    _flow: CreditControl
    _factory: TaskFactory
    _tracer: Tracer
    _reporter: Reporter

    def __init__(
        self,
        flow: Dataflow,
        run: str,
        clock: Callable[[], float],
        *,
        process: ProcessUsage = UNKNOWN,
        wake: Callable[[], None] = lambda: None,
        unsent: Callable[[], int] = lambda: 0,
        layout: Layout | None = None,
    ) -> None:
        self.layout = layout or Layout(flow)  # a given one avoids computing it again
        self.clock = clock
        self.outbox = WorkerOutbox()
        self.running_task = RunningTask()
        self.phase = "new"
        self.epoch = 0
        self.lease = math.inf  # time at which the worker stops, unless the controller renews the lease
        self.turns = 0
        self.draining = False
        self.directory = TaskDirectory(0, (), {}, ())
        self.policies: ActivePolicies | None = None
        self._run = run
        self._process = process
        self._wake = wake
        self._unsent = unsent  # bytes that the shell has not sent yet, for the worker with the longest queue
        self._rates: dict[str, float] = {}  # source component -> tuples per second of all its tasks
        self._next_flush = math.inf
        self._close_execution: Callable[[], None] = lambda: None

    @property
    def tasks(self) -> dict[int, Task]:
        """The tasks that run here, by number."""
        return self.directory.here

    # The interface to the shell

    def start_lease(self, until: float) -> None:
        """Stop at a time, unless the controller renews the lease."""
        self.lease = until

    def renew_lease(self, until: float) -> None:
        """Extend the lease, unless it lasts longer already."""
        self.lease = max(self.lease, until)

    def poll_sources(self) -> None:
        """Poll all sources in the next turn."""
        for task in self.tasks.values():
            task.poll_soon()

    def take_records(self) -> list[Record]:
        """Return the telemetry records since the last call."""
        return self._tracer.take_records() if self.epoch else []

    def command(self, message: controller_messages.Command) -> None:
        """Execute a command of the controller."""
        match message:
            case controller_messages.RenewLease():
                self.lease = message.at + self.assigned.config.recovery.lease_s
            case controller_messages.Ping():
                self.outbox.report(worker_messages.Pong(message.number, self.clock()))
            case controller_messages.Assign():
                self._attempt(self._assign, message)
            case controller_messages.LimitRates():  # also while states are being read
                if message.epoch == self.epoch:
                    self.execution.sync()
                    self._set_rates(message.limits)
            case controller_messages.Stop():
                self._stop()
            case _ if self.phase not in ("assigned", "running") or message.epoch != self.epoch:
                return
            case controller_messages.Start():
                self._start()
            case controller_messages.Peers() | controller_messages.Drain() | controller_messages.SourceProgress():
                self.execution.sync()
                self._update(message)
            case _:
                self.execution.sync()
                self._attempt(self._operate, message)

    def frame(self, data: bytes) -> None:
        """Process a frame from another worker."""
        frame = decode_frame(data)
        if self.phase not in ("assigned", "running") or frame.epoch != self.epoch:
            return
        self.execution.sync()
        if isinstance(frame, Farewell):
            self._take_farewell(frame)
        elif isinstance(frame, Credit):
            self._attempt(self._flow.receive, frame)
        else:
            self._attempt(self.execution.receive, frame, len(data))

    def turn(self) -> bool:
        """Run tasks for a bounded time; return whether more work is ready."""
        self.turns += 1
        if self.clock() > self.lease:
            self._stop()
        if self.phase != "running":
            return False
        try:
            busy = self.execution.turn(self.clock())
            if self.checkpointer.encoding:
                self.checkpointer.encode_more()
                busy = True
        except Exception as error:
            self._fail(error)
            return False
        now = self.clock()
        self.running_task.clear()
        if now >= self._reporter.due:
            self._report(now)
        if now >= self._next_flush:
            self._next_flush = now + FLUSH_S
            self._attempt(self._flush, now)
        return busy and self.phase == "running"

    def wakeup(self) -> float:
        """Return the latest time of the next turn."""
        if self.phase != "running":
            return math.inf
        return min(self._reporter.due, self.execution.wakeup())

    # Start and end of an epoch

    def _assign(self, assign: Assign) -> None:
        self._discard()
        self.outbox.take_frames()
        self.phase, self.epoch, self.assigned = "restoring", assign.epoch, assign
        self.draining = False
        self._set_rates(assign.limits)
        self._farewells: set[int] = set()  # workers that send no more to this one
        self._detach: controller_messages.Detach | None = None  # set if this worker leaves
        self.policies = None
        self._assemble(assign)
        self._switch_policies(assign.rules)
        if assign.kept:
            self._read_states(assign)
        else:
            self._open_all({})

    def _assemble(self, assign: Assign) -> None:
        """Create the parts of an epoch from the settings."""
        outbox, running = self.outbox, self.running_task
        name, emulated = assign.peers[assign.worker].name, assign.emulated is not None
        directory = self.directory = TaskDirectory(assign.worker, assign.peers, assign.slots, assign.placement)
        identity = Identity(self._run, name, assign.incarnation, assign.epoch, emulated)
        tracer = self._tracer = Tracer(
            identity,
            self.layout,
            assign.peers,
            sample_tps=assign.config.telemetry.sample_tps,
            seed=assign.config.execution.seed,
            keep=bool(assign.folders.telemetry),
        )
        execution = self.execution = self._execution(assign, name, tracer)
        self._close_execution = execution.close
        arrivals = self.arrivals = ArrivingTasks(assign.epoch, directory, execution.now, outbox.report)
        exchange = self._exchange = Exchange(assign.epoch, self.layout, directory, execution, arrivals, tracer, running)
        flow = self._flow = CreditControl(
            assign.epoch, assign.config.flow_control.window, directory, execution, arrivals, outbox.post, running
        )
        self.migration = Migration(directory, exchange, arrivals, execution, self, outbox.report)
        self.checkpointer = Checkpointer(
            assign.epoch,
            assign.folders.checkpoints,
            assign.given_up,
            directory,
            execution,
            running,
            outbox.report,
            outbox.store,
        )
        execution.connect(
            Handlers(self._deliver, outbox.post, flow.processed, self._take_marker, self._finish, self._idle)
        )
        execution.reroute(assign.routes)
        self._factory = TaskFactory(
            RunFacts(self._run, assign.folders.run, assign.epoch, assign.config.execution.seed, self.clock, self._wake),
            self.layout,
            exchange,
            running,
            SourceLimits(assign.config.flow_control.in_flight or 0, self._rates),
            window=execution.window(None, 1),
            timed=execution.timed,
        )
        self._reporter = Reporter(assign.epoch, self._process, execution, tracer, directory.here, assign.capacity)

    def _execution(self, assign: Assign, name: str, tracer: Tracer) -> TaskExecution:
        window = assign.config.flow_control.window
        if assign.emulated is None:
            return Direct(self.clock, self.directory, tracer, self.running_task, window, self._unsent_bytes)
        execution = assign.config.execution
        holder = f"{assign.folders.run} {self._run} {name}"
        emulation = Emulation(assign.emulated, name, holder, execution.share or "", execution.seed)
        return Emulated(emulation, self.clock, self.layout, self.directory, tracer, self.running_task, window)

    def _unsent_bytes(self) -> int:
        return self._unsent() + self.outbox.unsent()

    def _read_states(self, assign: Assign) -> None:
        """Open the tasks once their states are read."""

        def then(states: States, problem: str, _: float) -> None:
            if self.assigned is not assign or self.phase != "restoring":  # another epoch has started meanwhile
                return
            if problem:
                self.outbox.report(worker_messages.CheckpointUnreadable(assign.epoch, assign.checkpoint, problem))
            else:
                self.execution.sync()
                self._attempt(self._open_all, states)

        self.outbox.store(reading_job(assign.folders.checkpoints, assign.checkpoint, assign.kept, then))

    def _open_all(self, states: States) -> None:
        """Open the tasks of this worker, with their states if there are any."""
        directory = self.directory
        for number, slot in enumerate(directory.placement):
            if not directory.is_local(number):
                continue
            saved = states.get(number)
            task = self.open_task(number, slot, ended=saved is not None and saved.runtime.ended)
            if saved is not None:
                task.restore(*saved)
            self.add_task(task)
            if task.ended:
                self.outbox.report(worker_messages.Ended(self.epoch, task.number, task.counted))
        self.phase = "assigned"
        self.outbox.report(worker_messages.Ready(self.epoch))

    def _start(self) -> None:
        self.phase = "running"
        now = self.clock()
        self._reporter.start(now)
        self._next_flush = now + FLUSH_S

    def _stop(self) -> None:
        if self.phase == "stopped":
            return
        if self.phase == "running":
            self._report(self.clock())
        self._discard()
        self.phase = "stopped"

    def _discard(self) -> None:
        """Close everything that is open; if an author's `close` fails, the rest is closed nevertheless."""
        for task in self.tasks.values():
            try:
                task.close()
            except UserError as error:
                self.outbox.report(self._failure(task, error))
        self.directory.here.clear()
        self._close_execution()

    # Commands

    def _set_rates(self, rates: dict[str, float]) -> None:
        self._rates.clear()
        self._rates.update(rates)

    def _update(
        self, message: controller_messages.Peers | controller_messages.Drain | controller_messages.SourceProgress
    ) -> None:
        """Execute a command that only affects later turns."""
        match message:
            case controller_messages.Peers():
                self.directory.update_workers(message.peers, message.slots)
                self._tracer.update_peers(message.peers)
            case controller_messages.Drain():
                self.draining = True
                for task in self.tasks.values():
                    task.drain()
            case controller_messages.SourceProgress():
                if message.task in self.tasks:
                    self.tasks[message.task].set_progress(message.value)

    def _operate(self, message: controller_messages.Command) -> None:
        """Execute this worker's part of an operation."""
        match message:
            case controller_messages.BeginCheckpoint():
                self.checkpointer.begin(message.number)
            case controller_messages.AbortCheckpoint():
                self.checkpointer.abort(message.number)
            case controller_messages.CheckpointCompleted():
                self.checkpointer.complete(message.number)
            case controller_messages.Routes():
                self.execution.reroute(message.routes)
            case controller_messages.Detach():
                self._take_detach(message)
            case controller_messages.SwitchPolicies():
                self._switch_policies(message.rules)
            case controller_messages.PerformMove():
                self._move(message)
            case controller_messages.PrepareMove():
                task = self.tasks.get(message.task)
                self.running_task.set(task)
                problem = "it is not here" if task is None else task.prepare(message.move, self.execution.now())
                self.outbox.report(worker_messages.MovePrepared(self.epoch, message.move, problem))
            case controller_messages.ReleaseTask():
                task = self.tasks.get(message.task)
                if task is not None and task.preparing == message.move:
                    task.release()
                    self.execution.wake(task)

    def _move(self, message: controller_messages.PerformMove) -> None:
        task = self.tasks.get(message.task)
        if self.migration.redirect(message):
            if self.policies is not None:
                self.policies.relocated(message.task)
            self.running_task.set(task)
            self.migration.proceed(task)

    def _policies(self, rules: PolicyRules) -> "ActivePolicies | None":
        if not rules.routing and not rules.sending:
            return None
        # Loads a compiler and its kernels, which takes longer than the start-up of a worker without policies.
        from penstock.runtime.worker.tuple_policies.active import ActivePolicies
        from penstock.runtime.worker.tuple_policies.router import PolicyContext

        seed = (self.assigned.config.execution.seed, self.epoch)
        actions = (self._exchange.pump, self._flow.grant)
        return ActivePolicies(PolicyContext(self.layout, self.directory, self.execution, seed, *actions), rules)

    def _switch_policies(self, rules: PolicyRules) -> None:
        """Switch to other policies, which then decide on the tuples that wait unbound or for the gate."""
        self.rules = rules
        if self.policies is not None:
            if self.policies.update_costs(rules):
                return
            self.policies.close()
        self.policies = self._policies(rules)
        self._exchange.count_sent(None if self.policies is None else self.policies.count_sent)
        self._flow.use_feedback(self.policies)
        for task in self.tasks.values():
            for queue in task.queues:
                queue.set_policies(None, None)
            if self.policies is not None:
                self.policies.add(task)
        for task in list(self.tasks.values()):
            if self.tasks.get(task.number) is task:  # sending may cause a task to leave, or to end
                self._exchange.pump(task)

    # A worker that leaves

    def _take_detach(self, message: controller_messages.Detach) -> None:
        """Send a farewell to a departing worker, behind all frames for it; or start the departure of this worker."""
        if message.worker != self.directory.me:
            self.outbox.post(message.worker, Farewell(self.epoch, self.directory.me))
            return
        self._detach = message
        self._leave_if_detached()

    def _take_farewell(self, farewell: Farewell) -> None:
        """Process a farewell: one to this departing worker, or the answer of a departing worker."""
        if farewell.leaves:
            self.outbox.report(worker_messages.Detached(self.epoch, farewell.sender))
        else:
            self._farewells.add(farewell.sender)
            self._leave_if_detached()

    def _leave_if_detached(self) -> None:
        """Answer the other workers once all of their farewells have arrived, behind all frames forwarded to them."""
        if self._detach is not None and self._farewells.issuperset(self._detach.others):
            for other in self._detach.others:
                self.outbox.post(other, Farewell(self.epoch, self.directory.me, leaves=True))

    # Tasks

    def open_task(self, task: int, slot: str, ended: bool) -> Task:
        """Open a task."""
        return self._factory.open(task, slot, ended=ended)

    def add_task(self, task: Task) -> None:
        """Run an open task."""
        if self.draining:
            task.drain()
        self.directory.add(task)
        self.execution.add(task)
        if self.policies is not None:
            self.policies.add(task)

    def remove_task(self, task: Task) -> None:
        """Close a departing task, and report its last counters."""
        self.directory.remove(task)
        task.close()
        self.execution.remove(task)
        self._reporter.left(task, self.clock())

    def receive_early(self, task: Task, item: Early) -> None:
        """Process an item that arrived before its task."""
        if isinstance(item, Credit):
            self._flow.receive(item)
        else:
            self._exchange.deliver_early(task, item)

    def _deliver(self, frame: Envelope, size: int, at: float) -> None:
        """Process a frame that has reached this worker."""
        if isinstance(frame, MovingTask):
            self.migration.arrive(frame)
        else:
            self._exchange.deliver(frame, size, at)

    def _take_marker(self, task: Task, channel: InChannel, marker: MarkerBody) -> None:
        """Process a marker at the head of an inbox."""
        if marker.kind == END:
            if task.inbox.end(channel):
                self._finish(task)
        elif marker.kind == BARRIER:
            self.checkpointer.take_barrier(task, channel, marker.value)
        elif marker.kind == PROGRESS:
            paths = self.layout.progress_channels(task.number, marker.origin)
            value = task.inbox.advance_progress(channel, marker.origin, marker.value, paths)
            if value is None:
                return
            if task.queues:
                task.put_marker(MarkerBody(PROGRESS, value, marker.origin))
            else:
                self.outbox.report(worker_messages.SinkProgress(self.epoch, task.number, marker.origin, value))

    def _finish(self, task: Task) -> None:
        """Finish a task whose input has ended."""
        self.running_task.set(task)
        task.finish()
        self.outbox.report(worker_messages.Ended(self.epoch, task.number, task.counted))

    def _idle(self, task: Task) -> None:
        """Send off or save a suspended task, which is between two tuples now."""
        if task.leaving >= 0:
            self.migration.depart(task)
        elif task.saving:
            self.checkpointer.save_source(task)

    def _flush(self, now: float) -> None:
        for task in self.tasks.values():
            if not task.suspended:
                self.running_task.set(task)
                task.flush(now)

    def _report(self, now: float) -> None:
        saving = self.checkpointer
        self.outbox.report(self._reporter.report(now, saving.aligning, saving.number, saving.take_saved()))

    # Failures

    def _attempt(self, step: Callable[..., None], *arguments: Any) -> None:
        """Execute a step; an exception is reported, and ends the epoch or the run."""
        try:
            step(*arguments)
        except Exception as error:
            self._fail(error)
        self.running_task.clear()

    def _fail(self, error: Exception) -> None:
        self.outbox.report(self._failure(self.running_task.task, error))
        self._discard()
        self.phase = "failed"

    def _failure(self, task: Task | None, error: Exception) -> worker_messages.Failure:
        # A disk that prevents tasks from being reopened may recover.
        restoring = self.phase == "restoring" and self.epoch > 1
        return describe_failure(self.epoch, None if task is None else task.context, error, retries_disk=restoring)
