"""A worker without I/O: frames and commands in, frames and reports out.

A shell hands it what comes over the network (`frame`, `command`), gives it time (`turn`) and carries away what it
leaves in `out`, `told` and the tracker's records. Several of them, a controller and a clock in one process make a whole
cluster that a test can replay. Tasks are run to completion, in topological order, so that a tuple passes through all
tasks of a slot in one turn.
"""

import math
import traceback
from collections.abc import Callable

import msgspec

from penstock.api.contracts import Sink
from penstock.api.dataflow import Dataflow
from penstock.model.errors import FileProblem, PenstockError
from penstock.model.telemetry import RecordKind
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import controller_messages, worker_messages
from penstock.runtime.protocol.frames import Credit, Farewell, decode_frame
from penstock.runtime.storage.disk import Job
from penstock.runtime.worker import running_task as footprint
from penstock.runtime.worker import task_opening as opening
from penstock.runtime.worker.checkpoint import Saving
from penstock.runtime.worker.exchange import Exchange
from penstock.runtime.worker.execution.direct import Direct
from penstock.runtime.worker.execution.emulated import Emulated
from penstock.runtime.worker.logic import UserError, call
from penstock.runtime.worker.migration import Moves
from penstock.runtime.worker.task import Task
from penstock.runtime.worker.tracing import Sampler, Tracker
from penstock.runtime.worker.tuple_policies import ruling_of

REPORT_S = 0.25
FLUSH_S = 1.0


class Worker(Exchange):
    """One worker process.

    `phase` goes from `new` over `restoring` and `assigned` to `running`, and through these again in every epoch; it
    ends in `stopped`, or in `failed` until the next epoch.
    """

    def __init__(
        self,
        flow: Dataflow,
        run: str,
        clock: Callable[[], float],
        *,
        cpu_seconds: Callable[[], float] = lambda: 0.0,
        memory_mb: Callable[[], float | None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
        unsent: Callable[[], int] = lambda: 0,
        layout: Layout | None = None,
    ) -> None:
        self.layout = layout or Layout(flow)  # one that is there already saves making it again
        self.run = run
        self.clock = clock
        self.phase = "new"
        self.out = {}
        self.told = []
        self.storing: list[Job] = []  # for the shell to do, in order
        self.lease = math.inf  # when it stops, unless it is heard that the controller still counts on it
        self.epoch = 0
        self.limits: dict[str, float] = {}  # source component -> tuples a second of all its tasks
        self.tasks = {}
        self.footprint = footprint.nowhere()
        self.current = None
        self.turns = 0
        self._cpu_seconds = cpu_seconds
        self._process_mb = memory_mb  # that the process uses, where it is a real one
        self.wake = wake
        self._unsent = unsent  # bytes that the shell has not sent yet to the worker that it has most for
        self.ruling = None
        self._let_go: Callable[[], None] = lambda: None  # what the execution has beyond this process
        self._last_report = self._last_cpu = 0.0
        self._next_report = self._next_flush = math.inf

    @property
    def current(self) -> Task | None:
        """The task whose code runs."""
        return self._current

    @current.setter
    def current(self, task: Task | None) -> None:
        self._current = task
        self.footprint[0] = footprint.NOTHING if task is None else task.number

    def command(self, message: controller_messages.Command) -> None:
        """Do what the controller says."""
        match message:
            case controller_messages.RenewLease():
                self.lease = message.at + self.assigned.lease_s
            case controller_messages.Ping():
                self.told.append(worker_messages.Pong(message.number, self.clock()))
            case controller_messages.Assign():
                self.guarded(lambda: self._assign(message))
            case controller_messages.LimitRates():  # also while states are being read
                if message.epoch == self.epoch:
                    self.limits = message.limits
            case controller_messages.Stop():
                self._close("stopped")
            case _ if self.phase not in ("assigned", "running") or message.epoch != self.epoch:
                return
            case controller_messages.Start():
                self._go()
            case controller_messages.Peers() | controller_messages.Drain() | controller_messages.SourceProgress():
                self._note(message)
            case _:
                self.execution.begin()
                self.guarded(lambda: self._operate(message))

    def _note(
        self, message: controller_messages.Peers | controller_messages.Drain | controller_messages.SourceProgress
    ) -> None:
        """Take note of something that the next turn goes by."""
        match message:
            case controller_messages.Peers():
                self.assigned = msgspec.structs.replace(self.assigned, peers=message.peers, slots=message.slots)
            case controller_messages.Drain():
                self.draining = True
                for task in self.tasks.values():
                    task.finishing = task.is_source
            case controller_messages.SourceProgress():
                if message.task in self.tasks:
                    task = self.tasks[message.task]
                    task.progressed = max(task.progressed, message.value)

    def frame(self, data: bytes) -> None:
        """Take a frame from another worker."""
        frame = decode_frame(data)
        if self.phase not in ("assigned", "running") or frame.epoch != self.epoch:
            return
        self.execution.begin()
        if isinstance(frame, Farewell):
            self._part_from(frame)
        elif isinstance(frame, Credit):
            self.guarded(lambda: self.credit(frame))
        else:
            self.guarded(lambda: self.execution.receive(frame, len(data)))

    def turn(self) -> bool:
        """Work for a bounded while; return whether there is more to do at once."""
        self.turns += 1
        if self.clock() > self.lease:
            self._close("stopped")
        if self.phase != "running":
            return False
        try:
            busy = self.execution.turn(self.clock())
            if self.saving.busy:
                self.saving.turn()
                busy = True
        except Exception as error:
            self._fail(error)
            return False
        now = self.clock()
        self.footprint[0] = footprint.NOTHING
        if now >= self._next_report:
            self._report(now)
        if now >= self._next_flush:
            self._next_flush = now + FLUSH_S
            self.guarded(lambda: self._flush(now))
        return busy and self.phase == "running"

    def unsent(self) -> int:
        """Return how many bytes wait to be sent to other workers, by the shell or for it."""
        return self._unsent() + sum(len(frame) for frames in self.out.values() for frame in frames)

    def wakeup(self) -> float:
        """Return when the next turn is due at the latest."""
        if self.phase != "running":
            return math.inf
        return min(self._next_report, self.execution.wakeup())

    # Beginning and end

    def _assign(self, assign: controller_messages.Assign) -> None:
        self._discard()
        self.out, self.phase = {}, "restoring"
        self.epoch, self.me = assign.epoch, assign.worker
        self.assigned, self.limits = assign, assign.limits
        self.placement = list(assign.placement)
        self.where = [assign.slots[slot] for slot in self.placement]
        self.tracker = Tracker(
            self.run,
            assign.peers[assign.worker].name,
            assign.incarnation,
            seed=assign.seed,
            epoch=assign.epoch,
            keep=bool(assign.telemetry),
            emulated=assign.emulated is not None,
        )
        self.draining = False
        self._farewells: set[int] = set()  # workers that send nothing more to this one
        self._parting: controller_messages.Detach | None = None  # this one leaves
        self.moves = Moves(self)
        self.saving = Saving(self)
        self.departed: list[worker_messages.TaskReport] = []  # of tasks that have left since the last report
        self.samplers: dict[int, Sampler] = {}
        self.execution = Direct(self) if assign.emulated is None else Emulated(self)
        self._let_go = self.execution.close
        self.ruling = ruling_of(self, assign.rules)
        opening.begin(self, assign)

    def add_task(self, task: Task) -> None:
        """Begin to run a task that is open."""
        self.tasks[task.number] = task
        self.tasks = dict(sorted(self.tasks.items()))
        self.samplers.setdefault(task.number, Sampler(self.assigned.sample_tps))
        self.execution.added(task)
        if self.ruling is not None:
            self.ruling.added(task)

    def _go(self) -> None:
        self.phase = "running"
        now = self.clock()
        self._last_report, self._last_cpu = now, self._cpu_seconds()
        self._next_report, self._next_flush = now + REPORT_S, now + FLUSH_S

    def _operate(self, message: controller_messages.Command) -> None:
        """Do this worker's part of an operation."""
        match message:
            case controller_messages.BeginCheckpoint():
                self.saving.begin(message.number)
            case controller_messages.AbortCheckpoint():
                self.saving.abort(message.number)
            case controller_messages.CheckpointCompleted():
                self.saving.complete(message.number)
            case controller_messages.Routes():
                self.execution.reroute(message.routes)
            case controller_messages.Detach():
                self._part(message)
            case controller_messages.SwitchPolicies():
                self._switch(message.rules)
            case controller_messages.Move():
                self.moves.begin(message)
            case controller_messages.PrepareMove():
                task = self.current = self.tasks.get(message.task)
                problem = "it is not here" if task is None else task.prepare(message.move, self.execution.now())
                self.told.append(worker_messages.MovePrepared(self.epoch, message.move, problem))
            case controller_messages.ReleaseTask():
                task = self.tasks.get(message.task)
                if task is not None and task.preparing == message.move:
                    task.release()
                    self.execution.relieved(task)

    def _part(self, message: controller_messages.Detach) -> None:
        """Say farewell to a worker that leaves: every frame for it has gone before. This one may leave itself."""
        if message.worker != self.me:
            self.post(message.worker, Farewell(self.epoch, self.me))
            return
        self._parting = message
        self._leave_if_heard()

    def _part_from(self, farewell: Farewell) -> None:
        """Take a farewell: of one that stays, where this one leaves, or the answer of one that leaves."""
        if farewell.leaves:
            self.told.append(worker_messages.Detached(self.epoch, farewell.sender))
        else:
            self._farewells.add(farewell.sender)
            self._leave_if_heard()

    def _leave_if_heard(self) -> None:
        """Answer the others once all of them have said farewell, behind all that was passed on for them."""
        if self._parting is not None and self._farewells.issuperset(self._parting.others):
            for other in self._parting.others:
                self.post(other, Farewell(self.epoch, self.me, leaves=True))

    def _switch(self, rules: controller_messages.PolicyRules) -> None:
        """Route and send by other policies: what waits unbound, or for the gate, is decided by these."""
        self.assigned = msgspec.structs.replace(self.assigned, rules=rules)
        if self.ruling is not None and self.ruling.weighed(rules):
            return
        self.ruling = ruling_of(self, rules)
        for task in self.tasks.values():
            for queue in task.queues:
                queue.chooser = queue.gate = None
                queue.resize()
            if self.ruling is not None:
                self.ruling.added(task)
        for task in list(self.tasks.values()):
            if self.tasks.get(task.number) is task:  # what is sent may let one leave, or end
                self.pump(task)

    def _flush(self, now: float) -> None:
        for task in self.tasks.values():
            if isinstance(task.logic, Sink) and not task.ended and not task.stands:
                self.current = task
                call(task.logic.flush, now)
            if task.guard is not None and not task.stands:
                self.current = task
                task.guard.flush(now)

    def _close(self, phase: str) -> None:
        if self.phase == "stopped":
            return
        if self.phase == "running":
            self._report(self.clock())
        self._discard()
        self.phase = phase

    def _discard(self) -> None:
        """Close what is open; an author's `close` may fail in its own way, which is no reason to stay."""
        for task in self.tasks.values():
            try:
                task.let_go()
            except UserError as error:
                self.told.append(self._failure(task, error))
        self.tasks = {}
        self._let_go()

    def guarded(self, step: Callable[[], None]) -> None:
        """Do something; whatever it raises is told, and ends the epoch or the run."""
        try:
            step()
        except Exception as error:
            self._fail(error)
        self.footprint[0] = footprint.NOTHING

    def _fail(self, error: Exception) -> None:
        self.told.append(self._failure(self.current, error))
        self._discard()
        self.phase = "failed"

    def _failure(self, task: Task | None, error: Exception) -> worker_messages.Failure:
        cause = error.__cause__ if isinstance(error, UserError) and error.__cause__ is not None else error
        text = str(cause) if isinstance(cause, PenstockError) else f"{type(cause).__name__}: {cause}"
        context = task.context if task else None
        if isinstance(error, UserError):
            text = f"{text} in {error.where}" if error.where else text
            context = error.context or context
        return worker_messages.Failure(
            self.epoch,
            context.component if context else "",
            context.task if context else -1,
            error.value if isinstance(error, UserError) else "",
            text,
            "".join(traceback.format_exception(cause)),
            self._is_users(error, cause),
        )

    def _is_users(self, error: Exception, cause: BaseException) -> bool:
        """Say whether an error would come again: not one of a disk that keeps tasks from being opened once more."""
        if self.phase == "restoring" and self.epoch > 1 and isinstance(cause, FileProblem | OSError):
            return False
        return isinstance(error, UserError | PenstockError)

    # Reporting

    def _report(self, now: float) -> None:
        interval = max(now - self._last_report, 1e-9)
        aligning = self.saving.aligning
        tasks = [*self.departed, *(self.task_report(task, now) for task in self.tasks.values())]
        self.departed = []
        roots, acks = self.tracker.take()
        cpu_now = self._cpu_seconds()
        cpu, lag, warning = self.execution.load(now, interval, (cpu_now - self._last_cpu) / interval)
        self.tracker.record(
            RecordKind.MACHINE,
            now,
            interval=interval,
            busy=self._share(cpu),
            lag=lag,
            memory_mb=self._memory_mb(),
            **self._capacity(),
        )
        figures = (now, interval, tuple(tasks), roots, acks, cpu, lag, warning, aligning)
        self.told.append(worker_messages.Report(self.epoch, *figures))
        self._last_report, self._last_cpu = now, cpu_now
        self._next_report = now + REPORT_S

    def _memory_mb(self) -> float | None:
        """Return the memory in use: the process's, or what the tasks of an emulated machine declare."""
        if self.assigned.emulated is None:
            return self._process_mb()
        return sum(task.component.memory_mb for task in self.tasks.values())

    def _capacity(self) -> dict[str, float]:
        """Return what the machine has: as described, or as emulated now; nothing where neither is known."""
        found = self.execution.capacity() or self.assigned.capacity
        return {} if found is None else {"capacity_cpu": found[0], "capacity_mb": found[1]}

    def _share(self, cpu: float) -> float:
        """Return the share of its machine's cpu that a worker uses: of a process `cpu` says how many cores it does."""
        told = self.assigned.capacity
        return cpu if told is None else cpu / told[0]

    def task_report(self, task: Task, now: float) -> worker_messages.TaskReport:
        """Return what a task did since the last report, and begin to count anew."""
        report = task.report(now)
        self.tracker.record(
            RecordKind.TASK,
            now,
            task=task.name,
            interval=max(now - max(self._last_report, task.since), 1e-9),
            processed=report.processed,
            given=report.emitted,
            queue=report.queue,
            waiting_out=report.waiting_out,
            busy=report.busy,
            blocked=report.blocked,
        )
        return report
