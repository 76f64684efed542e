"""A whole cluster in one process, in virtual time, in which anything may fail, by a random schedule.

The controller and the workers are the real ones. Connections have individual delays, and are cut at both ends or at
one; disks are slow, full, and have incomplete files after a crash; clocks differ; processes are suspended, crash and
recover, soon, late or never; the driver crashes and another resumes its run. When the schedule has no more faults, the
application must end, and its published output must equal that of a run without faults.
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from penstock.model.tuples import TuplePolicies
from penstock.runtime.config import Checkpointing, FlowControl, Recovery, RunConfig, Telemetry
from penstock.runtime.controller.recovery import MAX_START_FAILURES
from penstock.runtime.controller.run_spec import RunSpec, Site, run_folders
from penstock.runtime.controller.state_machine import NOTHING, Controller
from penstock.runtime.protocol.frames import decode_frame
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.disk import Job
from penstock.testing.applications import known_application
from penstock.testing.disk import MemoryDisk
from penstock.testing.drawing import CHECKPOINTS, LEAST, Fault, FaultSchedule
from penstock.testing.drivers import DriverProcess
from penstock.testing.mishaps import happen
from penstock.testing.network import Line
from penstock.testing.processes import Process
from penstock.testing.promises import Promises, Violation, situation
from penstock.testing.workers import WorkerProcess

START = 100.0
FOLDER = "/run"
QUIET_S = 6.0  # after which there are no more faults
CHECKPOINT_S = 5.0  # sufficient for a checkpoint
RESTART_S = 0.005  # short, because everything is fast
MANY = 10_000  # recoveries: faults are intentional
PATIENCE_S = 60.0  # within which the run must end after that


class FaultyCluster:
    """One run of one schedule."""

    def __init__(self, schedule: FaultSchedule, trace: Callable[[str], None] | None = None) -> None:
        self.schedule = schedule
        self.known = known_application(schedule.application, schedule.tuples)
        self.rng = random.Random(schedule.seed)  # noqa: S311  not for secrets
        self.disk = MemoryDisk()
        place = self.known.place
        place.disk, place.may_end = self.disk, False
        self.now = START
        self.events = 0
        self.counts: Counter[str] = Counter()
        self.drivers = 0
        self.by_port: dict[int, WorkerProcess] = {}
        self.trace = trace
        self.over = False
        self.drained = False
        self.stopping = False  # to be resumed
        self.damaged = False  # a checkpoint was, possibly the only one
        self.quiet_after = self.now + QUIET_S
        self._ports = 0
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._sequence = 0
        self._slow_until = 0.0  # of the disk
        self._last_fault = 0.0
        self.promises = Promises(self.known, self.disk, FOLDER, CHECKPOINTS)
        self._sites = tuple(Site(f"w{n}", tuple(f"w{n}/{k}" for k in range(slots))) for n, slots in schedule.sites)
        self._at_event = [(fault.event, fault) for fault in schedule.faults if fault.event]
        self._at_label: dict[str, list[Fault]] = {}
        for fault in schedule.faults:
            if fault.label:
                self._at_label.setdefault(fault.label, []).append(fault)
        self._at_event.append((LEAST, Fault("may end")))
        self._at_event.sort(key=itemgetter(0))
        self._next_fault: float = self._at_event[0][0]
        self.processes: dict[str, WorkerProcess] = {}  # the latest at each site
        self.driver: DriverProcess
        self.start_driver(None)

    # Time

    def at(self, when: float, step: Callable[[Any], None], argument: Any) -> None:
        """Schedule a call at a time."""
        self._sequence += 1
        heapq.heappush(self._heap, (when, self._sequence, step, argument))

    def after(self, seconds: float, step: Callable[[Any], None], argument: Any) -> None:
        """Schedule a call after a delay."""
        self._sequence += 1
        heapq.heappush(self._heap, (self.now + seconds, self._sequence, step, argument))

    def run(self) -> None:
        """Run to the end; raise `Violation` if it does not end, or its output is wrong."""
        heap, pop = self._heap, heapq.heappop
        limit = self.quiet_after + PATIENCE_S
        while not self.over:
            when, _, step, argument = pop(heap)
            if when > limit:
                raise Violation(f"not ended {PATIENCE_S:g} s after the last fault, {situation(self)}")
            if when > self.now:
                self.now = when
            step(argument)
            if self.events >= self._next_fault:
                self._fault_due()
        self.promises.check_end(self.drained)

    def count(self, what: str) -> None:
        """Count an event."""
        self.events += 1
        self.note(what)

    def note(self, what: str) -> None:
        """Write a line of the trace."""
        if self.trace is not None:
            self.trace(f"{self.now - START:9.4f} {what}")

    # Network and disk

    def delay(self) -> float:
        """Return a random delay of a message on an ordinary line; a few are much longer."""
        share = self.rng.random()
        return self.schedule.delay_s * (0.2 + 0.35 * share / (1.02 - share))

    def slowness(self) -> float:
        """Return the slowness of a new line."""
        return self.rng.choice((0.3, 1.0, 1.0, 3.0, 10.0))

    def disk_delay(self) -> float:
        """Return the duration of a job."""
        slow = 60.0 if self.now < self._slow_until else 1.0
        return slow * self.schedule.disk_s * (0.2 + self.rng.expovariate(1.0))

    def send(self, line: Line, message: Any) -> None:
        """Send a message over a line."""
        if line.broken:
            if not line.lossy:
                line.lossy = True
                self.tell_sender(line)
            return
        when = self.now + line.slowness * self.delay()
        if when < line.clear_at:
            when = line.clear_at
        line.clear_at = when
        line.flight.append(message)
        self.at(when, self._arrive, line)

    def _arrive(self, line: Line) -> None:
        receiver = line.receiver
        if line.broken or not receiver.alive:
            return
        if receiver.paused:
            receiver.held.append((self._arrive, line))
            return
        message = line.flight.popleft()
        self.events += 1
        if self.trace is not None:
            self.note(f"{line.sender.name} -> {receiver.name}: {_shown(message)}")
        line.take(message)

    def tell_sender(self, line: Line) -> None:
        """Notify the sender, after a while, of a broken line on which something was lost."""
        sender, receiver = line.sender, line.receiver
        delay = 5 * self.delay()
        if isinstance(sender, DriverProcess):
            assert isinstance(receiver, WorkerProcess)
            if line is receiver.down:
                self.after(delay, sender.lose, receiver)
        elif isinstance(sender, WorkerProcess):
            if line is sender.up:
                self.after(delay, sender.lose_driver, None)
            elif line is not sender.beats:
                self._tell_caller(line, delay)

    def _tell_caller(self, line: Line, delay: float) -> None:
        sender = line.sender
        assert isinstance(sender, WorkerProcess)
        for number, called in sender.called.items():
            if called is line:
                self.after(delay, sender.lose_peer, (number, line))

    # Processes

    def start_driver(self, _: object) -> None:
        """Start a driver, which resumes from the disk, as soon as that is not full."""
        if self.disk.full:
            self.after(0.2, self.start_driver, None)
            return
        manifest, problems = checkpoints.find_latest(self.disk, CHECKPOINTS)
        for problem in problems:
            self.note(problem)
        if manifest is not None and manifest.last:
            checkpoints.publish(self.disk, CHECKPOINTS, manifest)
            self.over = True
            return
        checkpoints.withdraw(self.disk, CHECKPOINTS, 0 if manifest is None else manifest.number, ("/",))
        journal = checkpoints.read_journal(self.disk, CHECKPOINTS)
        schedule, names = self.schedule, self.known.layout.names
        placement = schedule.placement if journal is None else tuple(journal.placement[name] for name in names)
        spec = RunSpec(
            run="simulated",
            sites=self._sites,
            placement=placement,
            config=_config(schedule, journal),
            folders=run_folders(FOLDER, "", CHECKPOINTS),
            resumed=manifest,
            epoch=0 if journal is None else journal.epoch,
        )
        self.drivers += 1
        if self.drivers > 1:
            self.counts["resumed"] += 1
            self.counts["recoveries"] += self.driver.controller.recovery.count
        self.promises.begin()
        self.driver = DriverProcess(self, Controller(self.known.layout, spec, self.now))
        self.note(f"{self.driver.name} starts from {None if manifest is None else manifest.number}")
        self.driver.serve()
        for site in self._sites:
            self.after(5 * self.delay(), self.start_worker, (self.driver, site))

    def start_worker(self, what: tuple[DriverProcess, Site]) -> None:
        """Start a process at a site, for the driver that requested it."""
        driver, site = what
        if driver is not self.driver or not driver.alive or driver.controller.ended:
            return
        self._ports += 1
        rng = self.rng
        process = WorkerProcess(self, site, self._ports, rng.uniform(0.0, 1000.0), 1.0 + rng.uniform(-1e-4, 1e-4))
        self.by_port[self._ports] = self.processes[site.name] = process
        self.count(f"{process.name} starts")

    def crash(self, process: WorkerProcess, back: str, noisy: bool) -> None:
        """Crash a worker; if it is not noisy, nobody is notified."""
        process.alive = False
        process.tear()
        self._end_lines(process, noisy, whole=self.rng.random() < 0.5)
        self._come_back(process, back)

    def ended(self, process: WorkerProcess) -> None:
        """Replace a worker that has ended by itself."""
        process.alive = False
        if process.jobs and self.rng.random() < 0.5:
            process.jobs[0].run(self.disk)
        process.jobs.clear()
        self.count(f"{process.name} ends")
        self._end_lines(process, noisy=True, whole=True)
        self._come_back(process, "soon")

    def _end_lines(self, process: WorkerProcess, noisy: bool, whole: bool) -> None:
        """Notify the other ends of a process's lines that it has ended."""
        for peer in self.by_port.values():
            if not peer.alive:
                continue
            line = peer.callers.get(process.port)
            if line is not None and not line.broken:
                if not whole:
                    line.cut()
                if noisy:
                    self.at(max(line.clear_at, self.now) + self.delay(), peer.lose_caller, line)
            for number, called in peer.called.items():
                if called.receiver is process:
                    called.cut()
                    wait = 5 * self.delay() if noisy else 0.5 + self.delay()
                    self.after(wait, peer.lose_peer, (number, called))
        if noisy:
            if not whole and self.rng.random() < 0.5:
                process.up.cut()
            driver = process.driver
            if not process.up.broken or process.up.lossy or not process.half_open:
                self.at(max(process.up.clear_at, self.now) + 3 * self.delay(), driver.lose, process)
            if process.lease_s and not process.beats.broken:
                self.at(max(process.beats.clear_at, self.now) + 3 * self.delay(), driver.lose_heart, process)
        else:
            self.after(self.rng.uniform(0.5, 2.0), process.driver.lose, process)

    def _come_back(self, process: WorkerProcess, back: str) -> None:
        if self.processes.get(process.site.name) is not process:
            return
        if back == "never" and self.driver.controller.phase != "starting":
            return
        wait = self.rng.uniform(0.005, 0.1) if back == "soon" else self.rng.uniform(0.3, 1.5)
        self.after(wait, self._replace, (self.driver, process))

    def _replace(self, what: tuple[DriverProcess, WorkerProcess]) -> None:
        """Start a replacement of a process, as Spark does: once, and while the run needs it."""
        driver, process = what
        if self.processes.get(process.site.name) is process:
            if driver.alive and not driver.controller.wants_worker(process.site.name, self.now):
                self.after(0.5, self._replace, what)
                return
            self.start_worker((driver, process.site))

    def hang_up(self, process: WorkerProcess) -> None:
        """Close the connections to a worker that the controller has removed, possibly without notifying it."""
        self.count(f"driver hangs up on {process.name}")
        for line in (process.up, process.down, process.beats, process.pulses):
            line.cut()
        wait = 3 * self.delay() if self.rng.random() < 0.5 else self.rng.uniform(0.5, 2.0)
        self.after(wait, process.lose_driver, None)
        if self.rng.random() < 0.5:
            self.take_for_lost(process)

    def take_for_lost(self, process: WorkerProcess) -> None:
        """Replace a process that is still running, as Spark does when it has lost the executor."""
        self._come_back(process, "soon")

    def fill_disk(self, seconds: float) -> None:
        """Make the disk full for a while."""
        self.disk.full, self.disk.torn_share = FOLDER, self.rng.random()
        self.after(seconds, self._empty_disk, None)

    def _empty_disk(self, _: object) -> None:
        self.disk.full = ""

    def slow_disk(self, seconds: float) -> None:
        """Make the disk slow for a while."""
        self._slow_until = self.now + seconds

    def pause(self, process: Process, seconds: float) -> None:
        """Suspend a process."""
        if process.alive and not process.paused:
            process.paused = True
            self.note(f"{process.name} is suspended for {seconds:.3f} s")
            self.after(seconds, self._go_on, process)

    def _go_on(self, process: Process) -> None:
        if not process.alive:
            return
        process.paused = False
        self.count(f"{process.name} resumes")
        held, process.held = process.held, []
        for step, argument in held:
            self.at(self.now, step, argument)

    def crash_driver(self, noisy: bool) -> None:
        """Crash the driver, and let another one resume the run after a while."""
        driver = self.driver
        driver.alive = False
        driver.tear()
        for process in self.by_port.values():
            if process.alive and process.driver is driver:
                process.up.cut()
                self.after(5 * self.delay() if noisy else self.rng.uniform(0.5, 2.0), process.lose_driver, None)
        self.after(self.rng.uniform(0.02, 0.6), self.start_driver, None)

    # Effects

    def turned(self, process: WorkerProcess) -> None:
        """Count a turn."""
        self.events += 1
        if process.worker.phase == "running" and process.driver is self.driver:
            self.promises.turned(process)

    def done(self, process: Process, job: Job, problem: str) -> None:
        """Count a job, and check its effect."""
        self.count(f"{process.name}: {job.about} {problem or 'done'}")
        if process is self.driver:
            self.promises.check_output()
            self.counts["checkpoints"] += job.about.startswith("manifest") and not problem
        self.reached("end " + job.about.partition(" ")[0], process)

    def aborted(self) -> None:
        """Record that a checkpoint was aborted."""
        self.counts["aborts"] += 1
        problem = self.driver.controller.checkpointing.problem
        if "saved in" in problem and self.now - self._last_fault > CHECKPOINT_S + 3.0:
            raise Violation(f"a checkpoint was aborted without a fault: {problem}")

    def moved(self, count: int, error: object) -> None:
        """Record that moves have ended."""
        self.counts["moves"] += count
        self.note(f"{count} moves are done, {error}")

    def switched(self, tuples: TuplePolicies, error: object) -> None:
        """Record that other tuple policies are in force."""
        self.counts["switches"] += error is None
        self.note(f"switched to {tuples}, {error}")

    def rested(self, driver: DriverProcess) -> None:
        """Handle a controller at rest: at the end, or stopped for a resume."""
        controller = driver.controller
        if not driver.alive:
            return
        never_began = any(len(member.failures) >= MAX_START_FAILURES for member in controller.members)
        if self.stopping or (controller.phase == "failed" and never_began):
            self.stopping = False
            driver.alive = False
            self.after(0.1, self.start_driver, None)
        elif controller.phase == "failed" and not (self.drained and controller.error.startswith(NOTHING)):
            raise Violation(f"the run failed: {controller.error}\n{controller.traceback}")
        else:
            self.counts["recoveries"] += controller.recovery.count
            self.over = True

    # Faults

    def reached(self, label: str, process: Process) -> None:
        """Trigger the faults that wait for a message or an action."""
        waiting = self._at_label.get(label)
        if waiting:
            fault = waiting[0]
            fault.countdown -= 1
            if fault.countdown <= 0:
                waiting.pop(0)
                self._happen(fault, process)

    def _fault_due(self) -> None:
        while self._at_event and self.events >= self._at_event[0][0]:
            fault = self._at_event.pop(0)[1]
            if fault.kind == "may end":
                self.known.place.may_end = True
            else:
                self._happen(fault, None)
        self._next_fault = self._at_event[0][0] if self._at_event else math.inf

    def postpone(self, fault: Fault, event: int) -> None:
        """Schedule a fault for later."""
        self._at_event.append((event, fault))
        self._at_event.sort(key=itemgetter(0))
        self._next_fault = self._at_event[0][0]

    def _happen(self, fault: Fault, process: Process | None) -> None:
        if self.now > self.quiet_after or self.over:
            return
        self._last_fault = self.now
        happen(self, fault, process)


def _shown(message: Any) -> str:
    if isinstance(message, bytes):
        message = decode_frame(message)
    text = repr(message)
    return text if len(text) < 240 else text[:239] + "…"


def _config(schedule: FaultSchedule, journal: checkpoints.Journal | None) -> RunConfig:
    """Return the settings of a schedule's run, with the tuple policies and limits of the journal if there is one."""
    return RunConfig(
        checkpointing=Checkpointing(interval_s=schedule.checkpoint_s, timeout_s=CHECKPOINT_S),
        recovery=Recovery(
            max_restarts=MANY,
            restart_pause_s=RESTART_S,
            lease_s=schedule.lease_s,
            silence_s=schedule.lease_s * 1.3,
            replacement_s=schedule.replace_s,
        ),
        flow_control=FlowControl(window=schedule.window, in_flight=schedule.in_flight or None),
        telemetry=Telemetry(sample_tps=0.0),
        tuple_policies=schedule.policies if journal is None else journal.tuples,
        limits={} if journal is None else journal.limits,
    )
