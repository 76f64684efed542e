"""Beginning an epoch: at the start, and again whenever a worker, a connection or a rule of the protocol was lost.

    gathering   until every worker that was lost surely acts no more, and has been replaced or waited for long enough
    noting      what the last checkpoint has to publish gets its names, and the new epoch is written down
    opening     every worker opens its tasks, with the states of the checkpoint
    nothing     tuples flow
    ending      the restart limit is reached

Recovery pre-empts everything else. Whatever happens meanwhile makes it begin again, with a further epoch. The run fails
when it reaches the restart limit of its settings; consecutive recoveries without progress wait longer and longer.
"""

from collections import Counter, deque
from typing import TYPE_CHECKING

from penstock.model.errors import FileProblem
from penstock.runtime.storage.checkpoints import write_journal
from penstock.runtime.storage.disk import Disk, Job

if TYPE_CHECKING:
    from penstock.runtime.controller.state_machine import Controller

RETRY_S = 1.0  # before the disk is tried again
LONGEST_PAUSE = 60  # times the first one
STARTS = 3  # workers of a site that may be lost before the first tuple
HEALTHY_S = 60.0  # after which earlier recoveries do not delay the next, whether or not there was a checkpoint


class Recovery:
    """How an epoch begins, and how often one did."""

    def __init__(self, controller: "Controller", now: float) -> None:
        self.controller = controller
        self.stage = "gathering"
        self.count = 0  # recoveries that were begun
        self.last = ""  # how long the last one took, and why it was
        self.times: list[float] = []  # that each took
        self.reason = ""
        self._since = now
        self._patience = (
            now + controller.spec.config.recovery.start_s
        )  # until which workers that are not there are waited for
        self._attempt = 0
        self._pause = now  # before which the disk is not tried again
        self._fruitless = 0  # epochs in a row that have begun without a checkpoint between, nor a while of health
        self._restarts: deque[float] = deque()  # when epochs after the first began, within the limit's window
        self._blamed: deque[str] = deque(maxlen=64)  # tasks that ran when their worker was lost
        self._healthy_since = now
        self._then = "running"  # the phase to go on in
        self.problem = ""  # what the disk says against a new epoch

    def begin(self, reason: str, now: float) -> None:
        """Give up the epoch."""
        controller = self.controller
        if controller.at_rest or self.stage == "ending":  # those who hang up at the end say that they lost each other
            return
        if controller.phase == "starting":
            if any(len(member.failures) >= STARTS for member in controller.members):
                controller.fail(reason, now)
                return
        elif controller.phase != "recovering":
            if now - self._healthy_since > HEALTHY_S:
                self._fruitless = 0
            self._since, self._then, controller.phase = now, controller.phase, "recovering"
            self.count += 1
            controller.operations.interrupt(now)
            latest = controller.checkpointing.latest
            back = f"checkpoint {latest.number}" if latest else "the beginning, as there is no checkpoint yet"
            controller.warn(f"{reason}; going back to {back}")
        controller.event("lost", reason, now)
        if controller.phase == "recovering":
            if self._exhausted(now):
                self._give_up(reason)
                return
            self._patience = now + controller.spec.config.recovery.replacement_s
            if self._fruitless > 1:  # what breaks it may go away
                pause = controller.spec.config.recovery.restart_pause_s
                self._pause = now + pause * min(2 ** (self._fruitless - 2), LONGEST_PAUSE)
                controller.later(self._pause, self.proceed)
        self.reason, self.stage = reason, "gathering"
        controller.checkpointing.interrupt()
        self.proceed(now)

    def blame(self, task: str, site: str) -> None:
        """Take note of the task that was running when a worker was lost."""
        self._blamed.append(task)
        self.controller.warn(f"task {task} was running when worker {site!r} was lost")

    def _exhausted(self, now: float) -> bool:
        """Say whether the restart limit is reached."""
        limit = self.controller.spec.config.recovery
        while self._restarts and self._restarts[0] < now - limit.restart_window_s:
            self._restarts.popleft()
        return len(self._restarts) >= limit.max_restarts

    def _give_up(self, reason: str) -> None:
        """End the run, once it is known what the worker that was lost last has left behind."""
        self.stage = "ending"
        controller, allowed = self.controller, self.controller.spec.config.recovery
        tasks = ", ".join(name for name in controller.tasks_of_lost() or controller.layout.names)

        def end(_: object, __: str, now: float) -> None:
            ran = Counter(self._blamed).most_common(1)
            who = f"task {ran[0][0]} was running" if ran else f"one of these tasks was running: {tasks}"
            limit = f"the restart limit of {allowed.max_restarts} in {allowed.restart_window_s:g} s is reached"
            controller.fail(f"{who} when {reason}; {limit}, --restarts changes it", now)

        controller.storing.append(Job("the end", lambda _: None, end))

    def proceed(self, now: float) -> None:
        """Go on as far as is possible now."""
        controller, members = self.controller, self.controller.members
        if self.stage == "opening":
            self._open_again(now)
        if self.stage != "gathering" or controller.checkpointing.writing or members.unfenced(now) or now < self._pause:
            return
        if controller.phase == "starting":
            if not all(member.alive for member in members.all):
                return
        elif (members.missing(now) and now < self._patience) or not members.usable(now):
            if now > self._patience + controller.spec.config.recovery.start_s:
                controller.fail(f"{self.reason}; no worker came in {controller.spec.config.recovery.start_s:g} s", now)
            return
        self.stage = "noting"
        self._attempt += 1
        controller.epoch += 1
        attempt, journal, restart = self._attempt, controller.standing.journal, controller.checkpointing.restart()

        def do(disk: Disk) -> str:
            try:
                restart(disk)
            except FileProblem as refused:  # not by the disk: the next time would be no better
                return str(refused)
            write_journal(disk, controller.checkpointing.folder, journal)
            return ""

        def then(refused: str | None, problem: str, at: float) -> None:
            self._noted(attempt, refused or problem, bool(refused), at)

        controller.storing.append(Job(f"epoch {journal.epoch}", do, then))

    def _noted(self, attempt: int, problem: str, refused: bool, now: float) -> None:
        """Let the workers open their tasks, or try the disk again; what is refused ends a resume."""
        controller = self.controller
        if attempt != self._attempt or self.stage != "noting":
            return
        if refused and controller.phase == "starting":
            controller.fail(f"the run cannot be resumed, {problem}", now)
            return
        if problem:
            if problem != self.problem:
                controller.warn(f"a new epoch cannot be begun, {problem}; trying again")
            self.problem = problem
            self.stage, self._pause = "gathering", now + RETRY_S
            controller.later(self._pause, self.proceed)
            return
        usable = controller.members.usable(now)
        if not usable:
            self.stage = "gathering"
            return
        self.problem = ""
        self._fruitless += 1
        if controller.phase == "recovering":
            self._restarts.append(now)
        controller.checkpointing.restarted()
        controller.progress.forget()
        controller.placement = controller.standing.complete(usable)
        self.stage, self._patience = "opening", now + controller.spec.config.recovery.start_s
        controller.assign(controller.members.alive)

    def ready(self, worker: int, now: float) -> None:
        """Take note that a worker has opened its tasks; go when all have."""
        controller, members = self.controller, self.controller.members
        members[worker].ready = True
        if self.stage == "" and controller.phase in ("running", "draining"):
            controller.joined(worker, now)
        elif self.stage == "opening" and all(members[n].ready for n in self._taking_part()):
            self._go(now)

    def _taking_part(self) -> list[int]:
        return [n for n in self.controller.members.alive if self.controller.members[n].epoch == self.controller.epoch]

    def _open_again(self, now: float) -> None:
        """Give up on workers that cannot open their tasks in time."""
        if now < self._patience:
            return
        for number in self._taking_part():
            if not self.controller.members[number].ready:
                self.controller.drop(
                    number, f"it did not open its tasks in {self.controller.spec.config.recovery.start_s:g} s", now
                )

    def _go(self, now: float) -> None:
        controller = self.controller
        self.stage = ""
        self._healthy_since = now
        if controller.phase == "recovering":
            took = now - self._since
            self.times.append(took)
            self.last = f"{took:.2f} s, {self.reason}"
            controller.event("recovered", f"{took:.3f} s {self.reason}", now)
        controller.go(self._then, now)

    def then_drain(self) -> None:
        """Let the sources end as soon as tuples flow again."""
        self._then = "draining"

    def fruitful(self) -> None:
        """Note that a checkpoint was completed."""
        self._fruitless = 0
