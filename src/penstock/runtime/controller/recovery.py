"""How an epoch starts: at first, and again whenever a worker or a connection was lost, or the protocol was violated.

    gathering   until every lost worker is fenced, and is replaced or was waited for long enough
    noting      the last checkpoint is published, and the new epoch is written to the journal
    opening     every worker opens its tasks, with the states of the checkpoint
    (empty)     tuples flow
    ending      the restart limit is reached

A recovery takes precedence over everything else. A loss during a recovery starts it again, with a further epoch. The
run fails if more epochs than the restart limit started within a window; recoveries in a row without progress wait
longer and longer.
"""

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock.model.errors import FileProblem
from penstock.runtime.controller.checkpoint import CheckpointCoordinator
from penstock.runtime.controller.membership import Membership
from penstock.runtime.controller.outbox import ControllerOutbox
from penstock.runtime.controller.run_spec import RunSpec, RunState
from penstock.runtime.storage.disk import Disk, StorageJob
from penstock.runtime.worker.running_task import last_running

RETRY_S = 1.0  # before a journal that could not be written is tried again
MAX_PAUSE = 60  # times the first one
MAX_START_FAILURES = 3  # of a site's workers before the first tuple
HEALTHY_S = 60.0  # after which earlier recoveries do not delay the next one, with or without a checkpoint


class _Owner(Protocol):
    """What a recovery has the controller do."""

    def interrupt_operation(self) -> None: ...
    def write_epoch(self) -> Callable[[Disk], None]: ...
    def open_epoch(self, usable: list[str]) -> None: ...
    def start_epoch(self, phase: str, now: float) -> None: ...
    def drop(self, worker: int, reason: str, now: float) -> None: ...
    def fail(self, problem: str, now: float) -> None: ...


class RecoveryCoordinator:
    """Starts epochs, and counts them."""

    def __init__(
        self,
        spec: RunSpec,
        state: RunState,
        members: Membership,
        outbox: ControllerOutbox,
        event: Callable[[str, str, float], None],
        checkpointing: CheckpointCoordinator,
        owner: _Owner,
        now: float,
    ) -> None:
        self._settings = spec.config.recovery
        self._folder = spec.folders.run
        self._state = state
        self._members = members
        self._outbox = outbox
        self._event = event
        self._checkpointing = checkpointing
        self._owner = owner
        self.stage = "gathering"
        self.count = 0  # recoveries so far
        self.last = ""  # duration and reason of the last one, for people
        self.times: list[float] = []  # their durations
        self.reason = ""
        self.problem = ""  # why the journal could not be written
        self._since = now
        self._patience = now + self._settings.start_s  # until when missing workers are waited for
        self._attempt = 0
        self._pause = now  # until when no epoch starts
        self._fruitless = 0  # epochs in a row without a checkpoint between them, nor `HEALTHY_S`
        self._restarts: deque[float] = deque()  # when epochs after the first started, within the window
        self._suspects: deque[str] = deque(maxlen=64)  # tasks that ran when their worker was lost
        self._healthy_since = now
        self._phase_after = "running"

    def begin(self, reason: str, now: float) -> None:
        """Give up the epoch."""
        state = self._state
        if state.ended or self.stage == "ending":  # workers that stop report each other as lost
            return
        if state.phase == "starting":
            if any(len(member.failures) >= MAX_START_FAILURES for member in self._members):
                self._owner.fail(reason, now)
                return
        elif state.phase != "recovering":
            if now - self._healthy_since > HEALTHY_S:
                self._fruitless = 0
            self._since, self._phase_after, state.phase = now, state.phase, "recovering"
            self.count += 1
            self._owner.interrupt_operation()
            latest = self._checkpointing.latest
            back = f"checkpoint {latest.number}" if latest else "the beginning, as there is no checkpoint yet"
            self._outbox.warn(f"{reason}; going back to {back}")
        self._event("lost", reason, now)
        if state.phase == "recovering":
            if self._exhausted(now):
                self._give_up(reason)
                return
            self._patience = now + self._settings.replacement_s
            if self._fruitless > 1:  # the cause may be temporary
                self._pause = now + self._settings.restart_pause_s * min(2 ** (self._fruitless - 2), MAX_PAUSE)
                self._outbox.schedule(self._pause, self.proceed)
        self.reason, self.stage = reason, "gathering"
        self._checkpointing.interrupt()
        self.proceed(now)

    def investigate(self, worker: int) -> None:
        """Find out which task a lost worker was running, if it left that in its file."""
        member, names = self._members[worker], self._state.names
        site = member.site.name

        def then(task: int | None, problem: str, _: float) -> None:
            if not problem and task is not None and 0 <= task < len(names) and not self._state.ended:
                self._suspects.append(names[task])
                self._outbox.warn(f"task {names[task]} was running when worker {site!r} was lost")

        look = partial(last_running, folder=self._folder, site=site, incarnation=member.incarnation)
        self._outbox.store(StorageJob(f"what worker {site} did", look, then))

    def _exhausted(self, now: float) -> bool:
        """Return whether the restart limit is reached."""
        while self._restarts and self._restarts[0] < now - self._settings.restart_window_s:
            self._restarts.popleft()
        return len(self._restarts) >= self._settings.max_restarts

    def _give_up(self, reason: str) -> None:
        """End the run, after the investigation of the worker that was lost last."""
        self.stage = "ending"
        lost = {slot for slot, number in self._members.slots.items() if not self._members[number].alive}
        names, placement, settings = self._state.names, self._state.placement, self._settings
        tasks = [name for name, slot in zip(names, placement, strict=True) if slot in lost] or names

        def end(_: object, __: str, now: float) -> None:
            first = Counter(self._suspects).most_common(1)
            who = f"task {first[0][0]} was running" if first else f"one of these tasks was running: {', '.join(tasks)}"
            limit = f"the restart limit of {settings.max_restarts} in {settings.restart_window_s:g} s is reached"
            self._owner.fail(f"{who} when {reason}; {limit}, --restarts changes it", now)

        self._outbox.store(StorageJob("the end", lambda _: None, end))

    def proceed(self, now: float) -> None:
        """Take the next step, if that is possible now."""
        state, members = self._state, self._members
        if self.stage == "opening":
            self._drop_late_workers(now)
        if self.stage != "gathering" or self._checkpointing.writing or members.unfenced(now) or now < self._pause:
            return
        if state.phase == "starting":
            if not all(member.alive for member in members.all):
                return
        elif (members.missing(now) and now < self._patience) or not members.usable(now):
            if now > self._patience + self._settings.start_s:
                self._owner.fail(f"{self.reason}; no worker registered in {self._settings.start_s:g} s", now)
            return
        self._issue_epoch()

    def _issue_epoch(self) -> None:
        self.stage = "noting"
        self._attempt += 1
        self._state.epoch += 1
        attempt, write, publish = self._attempt, self._owner.write_epoch(), self._checkpointing.restart()

        def do(disk: Disk) -> str:
            try:
                publish(disk)
            except FileProblem as problem:  # not the disk's: a second attempt would fail as well
                return str(problem)
            write(disk)
            return ""

        def then(rejected: str | None, problem: str, at: float) -> None:
            self._open_epoch(attempt, rejected or problem, bool(rejected), at)

        self._outbox.store(StorageJob(f"epoch {self._state.epoch}", do, then))

    def _open_epoch(self, attempt: int, problem: str, rejected: bool, now: float) -> None:
        """Have the workers open their tasks, or try the disk again; what is `rejected` ends a resume."""
        state = self._state
        if attempt != self._attempt or self.stage != "noting":
            return
        if rejected and state.phase == "starting":
            self._owner.fail(f"the run cannot be resumed, {problem}", now)
            return
        if problem:
            if problem != self.problem:
                self._outbox.warn(f"a new epoch cannot start, {problem}; trying again")
            self.problem = problem
            self.stage, self._pause = "gathering", now + RETRY_S
            self._outbox.schedule(self._pause, self.proceed)
            return
        usable = self._members.usable(now)
        if not usable:
            self.stage = "gathering"
            return
        self.problem = ""
        self._fruitless += 1
        if state.phase == "recovering":
            self._restarts.append(now)
        self._checkpointing.restarted()
        self.stage, self._patience = "opening", now + self._settings.start_s
        self._owner.open_epoch(usable)

    def take_ready(self, now: float) -> None:
        """Start the epoch if every worker that takes part has opened its tasks."""
        members, state = self._members, self._state
        if self.stage != "opening" or not all(members[n].ready for n in members.in_epoch(state.epoch)):
            return
        self.stage = ""
        self._healthy_since = now
        if state.phase == "recovering":
            took = now - self._since
            self.times.append(took)
            self.last = f"{took:.2f} s, {self.reason}"
            self._event("recovered", f"{took:.3f} s {self.reason}", now)
        self._owner.start_epoch(self._phase_after, now)

    def _drop_late_workers(self, now: float) -> None:
        """Give up workers that have not opened their tasks in time."""
        if now < self._patience:
            return
        for number in self._members.in_epoch(self._state.epoch):
            if not self._members[number].ready:
                self._owner.drop(number, f"it did not open its tasks in {self._settings.start_s:g} s", now)

    def drain_after(self) -> None:
        """Drain the run as soon as tuples flow again."""
        self._phase_after = "draining"

    def record_checkpoint(self) -> None:
        """Record that a checkpoint was completed."""
        self._fruitless = 0
