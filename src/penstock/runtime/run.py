"""A run: a dataflow on Spark, from its folder to its last record, and the handle to observe and change it."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
from py4j.protocol import Py4JError

from penstock.model.cluster import Cluster, Machine
from penstock.model.errors import PenstockError
from penstock.model.limits import Limits
from penstock.model.plan import Plan, PlannedRoute, to_placement
from penstock.model.status import Latency, PilotStatus, Status
from penstock.model.topology import Application
from penstock.model.tuples import TuplePolicies, over
from penstock.policies.streams import changed
from penstock.runtime.control_socket import ControlServer
from penstock.runtime.controller.operations import Operation
from penstock.runtime.controller.process import Driver
from penstock.runtime.controller.run_spec import routes_of
from penstock.runtime.controller.state_machine import RunFailed
from penstock.runtime.controller.worker_supervisor import WorkerSupervisor
from penstock.runtime.handle import AutopilotHandle, LogLine, MovedTask
from penstock.runtime.layout import Layout
from penstock.runtime.protocol.controller_messages import Route
from penstock.runtime.spark.jobs import Job, SlotJobs
from penstock.runtime.storage import run_folder as folders
from penstock.runtime.worker.tuple_policies import compile_policies

TICK_S = 0.2  # between two checks of the workers
STOP_S = 15.0  # for Spark to end the workers' jobs
VERIFY_S = 10.0  # for Spark to report where a job runs

Progress = Callable[[str], None]

# Returns the moves, task and slot, that use new machines, from the cluster with them and the slot of each task.
Extend = Callable[[Cluster, Sequence[str]], Sequence[tuple[str, str]]]


class Run:
    """A running application. It may be used from any thread, and as a context manager, which drains it at the end."""

    def __init__(
        self, layout: Layout, info: folders.RunInfo, driver: Driver, jobs: SlotJobs, cluster: Cluster, stack: ExitStack
    ) -> None:
        self.info = info
        self.cluster = cluster  # real or emulated; machines are added as Spark gets executors
        self.supervisor: WorkerSupervisor | None = None  # None: not started yet
        self.pilot: AutopilotHandle | None = None  # its autopilot
        self._layout = layout
        self._driver = driver
        self._jobs = jobs
        self._stack = stack
        self.extend: Extend | None = None
        self._unused: list[str] = []  # slots of new machines
        self._server: ControlServer | None = None
        self._lock = threading.Lock()  # of the server
        self._over = threading.Event()  # the jobs and the session have ended
        self._ended = threading.Event()  # and whoever requested that has the answer
        self._requested = ""  # drain or stop
        self._log = folders.LogFile(info)
        driver.on_log(self._log)

    @property
    def application(self) -> Application:
        """The topology that runs."""
        return self._layout.application

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.info.path

    def status(self) -> Status:
        """Return the status; after the end, the last one."""
        status = self._driver.ask(self._driver.controller.status)
        piloted = "" if self.pilot is None else self.pilot.status().text
        return msgspec.structs.replace(status, autopilot=piloted) if piloted else status

    @property
    def routes(self) -> tuple[PlannedRoute, ...]:
        """The links that streams take between machines, if the network is routed."""
        found = self._driver.controller.routes
        return tuple(PlannedRoute(stream=s, source=a, target=b, links=links) for s, a, b, links in found)

    def latency(self, seconds: float) -> Latency | None:
        """Return the latency of sampled source tuples that ended in the last seconds; None: none ended."""
        return self._driver.ask(lambda now: self._driver.controller.metrics.end_to_end(now, seconds))

    def move(self, task: str, slot: str) -> MovedTask:
        """Move a task, and return when it runs there."""
        done = self._operate([(task, slot)], f"move {task} to {slot}")
        return done[0] if done else MovedTask(task, slot, slot, 0.0)

    def apply(self, plan: Plan) -> list[MovedTask]:
        """Move the tasks whose slots differ in a plan, switch to its tuple policies, and return when all is done.

        Tuple policies that the plan does not name stay in force.
        """
        placement = to_placement(plan, self._layout.application, self.cluster)
        wanted = [self.cluster.slot_names[slot] for slot in placement.slots]
        moves = list(zip(self._layout.names, wanted, strict=True))
        before = self.status().tuples
        after = over(before, plan.tuples)
        self.mark("applying", plan.policy)
        try:
            done = self._operate(moves, f"apply {plan.policy}", routes_of(plan), None if after == before else after)
        except PenstockError:
            self.mark("apply failed", plan.policy)
            raise
        self._driver.ask(lambda now: self._driver.controller.set_policy(plan.policy, now))
        return done

    def switch(
        self,
        tuples: TuplePolicies | None = None,
        *,
        routing: str | Sequence[str] | None = None,
        sending: str | None = None,
        slot_ms: float | None = None,
    ) -> TuplePolicies:
        """Change tuple policies and return those in force.

        tuples: all of them; None: those in force. routing, sending, slot_ms: some of these, over them. A routing is
        `POLICY` for the application or `STREAM=POLICY` for a stream, or several of these; `none`: no policy.
        """
        before = self.status().tuples
        after = changed(before if tuples is None else tuples, routing, sending, slot_ms)
        if after != before:
            self._operate([], "switch tuple policies", tuples=after)
        return after

    def limit(self, limits: Limits) -> dict[str, float]:
        """Limit the rates of sources in tuples per second, and return all limits in force.

        By source component, all its tasks together; None removes a limit, 0 pauses the source, sources that are not
        named keep theirs. A single number is for all sources together, a single None removes all limits.
        """
        return self._driver.ask(lambda now: dict(self._driver.controller.limit(limits, now)))

    def steer(self, policy: str | None = None, shadow: bool | None = None, model: str | None = None) -> PilotStatus:
        """Change the policy of the autopilot, `off` disables it, and return its status; None: no change.

        `model` is a file of latency models for its predictions.
        """
        if self.pilot is None:
            raise PenstockError(f"run {self.info.run} has no autopilot: the program that started it gave it none")
        return self.pilot.steer(policy, shadow, model)

    def say(self, text: str, level: str = "info") -> None:
        """Log a line of the autopilot."""
        self._driver.say(text, level, "autopilot")

    def drain(self, timeout: float | None = None) -> None:
        """End the sources, process everything in flight, and stop; return at the end, or after `timeout` s."""
        self._end(self._driver.controller.drain, self._ended, timeout)

    def stop(self) -> None:
        """Stop at once."""
        self._end(self._driver.controller.stop, self._ended)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; return whether the run has ended."""
        return self._ended.wait(timeout)

    def mark(self, event: str, detail: str = "") -> None:
        """Record an event in the telemetry, such as the start of a phase of an experiment."""
        self._driver.ask(lambda now: self._driver.controller.event(event, detail, now))

    def on_log(self, listener: Callable[[LogLine], None]) -> None:
        """Call a function for every log line, in its own thread.

        It may use the run; only `drain` and `stop` return at once there, since the end of the run waits for listeners.
        """
        self._driver.on_log(listener)

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *raised: object) -> None:
        if raised[0] is None:
            self.drain()
            if error := self.status().error:
                raise RunFailed(error)
        else:
            self.stop()

    def begin(self, progress: Progress) -> None:
        """Wait until tuples flow, calling `progress` periodically; raise `RunFailed` if the run fails before."""
        controller = self._driver.controller
        while (phase := controller.phase) == "starting":
            there = sum(member.registered for member in controller.members.all)
            progress(f"starting workers: {there} of {len(controller.members.all)}")
            time.sleep(0.05)
        if phase == "failed":
            self.wait()
            raise RunFailed(controller.error)
        self._verify()
        with self._lock:
            if not self._over.is_set():  # the sources may have ended by now
                self._server = ControlServer(_FromOutside(self))

    def start(self) -> None:
        """Start to serve workers; from now on, `stop` ends the run."""
        self._driver.start()
        threading.Thread(target=self._watch, name="penstock run", daemon=True).start()

    def _conclude(self) -> None:
        """Store the outcome of the run and why it ended."""
        status, latest = self.status(), self._driver.controller.checkpointing.latest
        if status.phase == "failed":
            outcome = ("failed", status.error or "no reason was given")
        elif latest is not None and latest.last:
            outcome = ("completed", "it was drained" if self._requested == "drain" else "its sources ended")
        else:
            outcome = ("stopped", "it was stopped at once")
        try:
            folders.write_outcome(self.info, *outcome, status)
        except (PenstockError, OSError) as problem:  # its folder was removed, or the disk is full
            self._driver.warn(f"the outcome of the run could not be stored: {problem}")

    def _end(self, how: Callable[[float], None], until: threading.Event, timeout: float | None = None) -> None:
        self._requested = how.__name__
        self._driver.ask(how)
        if not self._driver.is_listener():
            until.wait(timeout)

    def _operate(
        self,
        moves: Sequence[tuple[str, str]],
        label: str,
        routes: tuple[Route, ...] | None = None,
        tuples: TuplePolicies | None = None,
    ) -> list[MovedTask]:
        compile_policies(tuples)
        ended: threading.Event = threading.Event()
        result: list[Operation] = []

        def then(operation: Operation) -> None:
            result.append(operation)
            ended.set()

        def request(now: float) -> None:
            self._driver.controller.operate(moves, label, then, now, routes=routes, tuples=tuples)

        self._driver.ask(request)
        ended.wait()
        if (error := result[0].error) is not None:
            raise error
        return result[0].done

    def _verify(self) -> None:
        """Fail the run if workers are not on the executors of the plan."""
        deadline = time.monotonic() + VERIFY_S
        for job in self._jobs.jobs:
            if job.executor is None:
                continue
            while (found := job.found_on()) is None and time.monotonic() < deadline and not job.done.is_set():
                time.sleep(0.1)
            if found is None and not job.done.is_set():
                problem = f"could not verify that worker {job.name} runs on executor {job.executor.id} as planned"
                self._driver.warn(f"{problem}: Spark has not reported in {VERIFY_S:g} s where it runs")
            elif found is not None and found != job.executor.id:
                problem = f"worker {job.name} runs on executor {found}, not on {job.executor.id} as planned"
                self._fail(f"{problem}; are its cores taken?")
                self.wait()
                raise RunFailed(problem)

    def grow(self, machine: Machine) -> None:
        """Add a new machine, which is used once its workers have registered."""
        self.cluster = msgspec.structs.replace(self.cluster, machines=(*self.cluster.machines, machine))
        self._unused += [f"{machine.name}/{number}" for number in range(machine.slots)]

    def _use_new(self) -> None:
        """Move tasks to new machines, if that improves the placement, in a thread: it may take long."""
        status = self.status()
        ready = {slot for machine in status.machines if machine.alive for slot in machine.slots}
        if status.phase != "running" or not ready.issuperset(self._unused):
            return
        self._unused = []
        placement = [status.placement[task] for task in self._layout.names]

        def move() -> None:
            try:
                moves = self.extend(self.cluster, placement) if self.extend is not None else []
                if moves:
                    self._operate(moves, f"use a new machine for {len(moves)} tasks")
            except PenstockError as problem:
                self._driver.warn(f"a new machine is not used: {problem}")

        threading.Thread(target=move, name="penstock new machine", daemon=True).start()

    def _watch(self) -> None:
        """Supervise the workers until the run has ended, then clean up."""
        while not self._driver.ended.wait(TICK_S):
            self._check_workers()
        try:
            controller = self._driver.controller
            self._conclude()
            if controller.traceback:
                with suppress(OSError):  # the jobs are ended even if the disk is full
                    self._log.write(f"failed: {controller.error}\n{controller.traceback}")
            self._finish_jobs(self._jobs.jobs)
            if not self._jobs.stop(STOP_S):
                names = ", ".join(job.name for job in self._jobs.jobs if not job.done.is_set())
                self._driver.warn(f"Spark has not ended the jobs of workers {names} in {STOP_S:g} s; see its web page")
            self._release()
        finally:
            try:
                self._close()
            finally:
                self._ended.set()

    def _check_workers(self) -> None:
        """Check the session, and have the supervisor keep a worker at every site."""
        if self.supervisor is None or self._driver.controller.ended:
            return
        problem = self._jobs.why_ended()
        try:
            if not problem:
                self.supervisor.tick(time.monotonic())
                if self._unused:
                    self._use_new()
                return
        except (Py4JError, OSError, AttributeError) as error:  # the last: the session was stopped meanwhile
            if not (problem := self._jobs.why_ended()):
                self._driver.warn(f"a Spark call for the workers failed: {str(error).splitlines()[0]}")
                return
        remedy = f"continue from its last checkpoint with penstock runs resume {self.info.called}"
        self._fail(f"the Spark session has ended, {problem}; {remedy}")

    def _release(self) -> None:
        """Release the session and the run's other resources; a session that has ended may raise."""
        try:
            self._stack.close()
        except (Py4JError, OSError) as error:
            self._driver.warn(f"the Spark session could not be stopped: {str(error).splitlines()[0]}")

    def _close(self) -> None:
        """Answer pending requests of the control socket, store that the run has ended, and end its log."""
        with self._lock:
            self._over.set()
        try:
            if self._server is not None:
                self._server.close()
            else:
                folders.mark_ended(self.info)
        except (PenstockError, OSError) as problem:  # its folder was removed, or the disk is full
            self._driver.warn(f"the end of the run could not be stored: {problem}")
        self._driver.end_log()
        self._log.close()

    def _fail(self, problem: str) -> None:
        self._driver.ask(lambda now: self._driver.controller.fail(problem, now))

    @staticmethod
    def _finish_jobs(jobs: Iterable[Job]) -> None:
        """Wait until the workers have stopped by themselves."""
        deadline = time.monotonic() + 5.0
        for job in jobs:
            job.done.wait(max(0.0, deadline - time.monotonic()))


class _FromOutside:
    """The run for its control socket: its calls return when the jobs have ended, before the socket is closed."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.folder = run.folder
        self.status, self.move, self.apply, self.switch = run.status, run.move, run.apply, run.switch
        self.on_log, self.steer, self.limit = run.on_log, run.steer, run.limit

    def drain(self, timeout: float | None = None) -> None:
        """Drain the run, and return when its jobs have ended."""
        self._run._end(self._run._driver.controller.drain, self._run._over, timeout)

    def stop(self) -> None:
        """Stop the run, and return when its jobs have ended."""
        self._run._end(self._run._driver.controller.stop, self._run._over)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end of the jobs."""
        return self._run._over.wait(timeout)
