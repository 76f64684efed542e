"""A whole cluster in one process, in virtual time: what starts, crashes and recovers, and what must hold meanwhile.

The controller and the workers are the real ones. Connections have individual delays; clocks differ; a process that ends
is replaced, as Spark does, and a driver that has died is followed by another, which resumes the run. At the end, the
published output must equal that of a run without faults.
"""

import heapq
import random
from collections.abc import Callable

from penstock.model.tuples import TuplePolicies
from penstock.runtime.config import Checkpointing, FlowControl, Recovery, RunConfig, Telemetry
from penstock.runtime.controller.checkpoint import RESUME_AGAIN
from penstock.runtime.controller.recovery import MAX_START_FAILURES
from penstock.runtime.controller.run_spec import RunSpec, Site, run_folders
from penstock.runtime.controller.state_machine import NOTHING, Controller
from penstock.runtime.layout import Layout
from penstock.runtime.protocol import worker_messages
from penstock.runtime.storage import checkpoints
from penstock.runtime.storage.checkpoints import CheckpointManifest
from penstock.runtime.storage.disk import StorageJob
from penstock.runtime.worker import keyed_state
from penstock.startup.rescaling import changed_counts, rescale
from penstock.testing.applications import known_application
from penstock.testing.fault_schedule import CHECKPOINTS, FaultSchedule
from penstock.testing.processes import DriverProcess, WorkerProcess
from penstock.testing.promises import Promises, Violation
from penstock.testing.simulation import START, SimulatedProcess, Simulation

FOLDER = "/run"
QUIET_S = 6.0  # after which there are no more faults
CHECKPOINT_S = 5.0  # sufficient for a checkpoint
RESTART_S = 0.005  # short, because everything is fast
MANY = 10_000  # recoveries: faults are intentional
RESIZED = 0.4  # share of the components that may be resized when a run is resumed
PATIENCE_S = 60.0  # within which the run must end after that


class SimulatedCluster(Simulation):
    """One run on a cluster without faults; `FaultyCluster` adds those of a schedule."""

    def __init__(self, schedule: FaultSchedule, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(schedule.seed, schedule.delay_s, schedule.disk_s, trace)
        self.schedule = schedule
        self.known = known_application(schedule.application, schedule.tuples)
        place = self.known.place
        place.disk, place.may_end = self.disk, False
        self.layout = self.known.layout
        self.drivers = 0
        self.by_port: dict[int, WorkerProcess] = {}
        self.over = False
        self.drained = False
        self.stopping = False  # to be resumed
        self.last_fault = 0.0
        self.quiet_after = START + QUIET_S
        self.promises = Promises(self.known, self.disk, FOLDER, CHECKPOINTS)
        self._ports = 0
        self._sites = tuple(Site(f"w{n}", tuple(f"w{n}/{k}" for k in range(slots))) for n, slots in schedule.sites)
        self.processes: dict[str, WorkerProcess] = {}  # the latest at each site
        self.driver: DriverProcess
        self.start_driver(None)

    def run(self) -> None:
        """Run to the end; raise `Violation` if it does not end, or its output is wrong.

        Keyed states are small here; nevertheless a checkpoint has only their changes.
        """
        before, keyed_state.SMALL = keyed_state.SMALL, 0
        try:
            self._run()
        finally:
            keyed_state.SMALL = before
        self.promises.check_end(self.drained)

    def _run(self) -> None:
        heap, pop = self._heap, heapq.heappop
        limit = self.quiet_after + PATIENCE_S
        while not self.over:
            when, _, step, argument = pop(heap)
            if when > limit:
                raise Violation(f"not ended {PATIENCE_S:g} s after the last fault, {self.describe()}")
            if when > self.now:
                self.now = when
            step(argument)
            self.stepped()

    def stepped(self) -> None:
        """Note that an event has been handled."""

    def describe(self) -> str:
        """Describe the state of a schedule that does not end."""
        controller = self.driver.controller
        parts = [f"controller {controller.phase} {controller.recovery.stage} in epoch {controller.epoch}"]
        parts += [f"operation {controller.operations.current}"] if controller.operations.current else []
        for process in self.processes.values():
            worker = process.worker
            going = [task.name for task in worker.tasks.values() if not task.ended]
            state = worker.phase if process.alive else "dead"
            parts.append(f"{process.name} {state} in {worker.epoch} with {' '.join(going) or 'nothing to do'}")
        return "; ".join(parts)

    def find_worker(self, port: int) -> WorkerProcess | None:
        """Return the latest worker process with a port."""
        return self.by_port.get(port)

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
        schedule = self.schedule
        manifest = self._resized(manifest)
        placement = schedule.placement
        if journal is not None:
            slots = [slot for site in self._sites for slot in site.slots]
            placement = tuple(journal.placement.get(name) or self.rng.choice(slots) for name in self.layout.names)
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
        self.driver = DriverProcess(self, self, self.drivers, Controller(self.layout, spec, self.now))
        self.note(f"{self.driver.name} starts from {None if manifest is None else manifest.number}")
        self.driver.serve()
        for site in self._sites:
            self.after(5 * self.delay(), self.start_worker, (self.driver, site))

    def _resized(self, manifest: CheckpointManifest | None) -> CheckpointManifest | None:
        """Set the number of tasks to that of a checkpoint, and sometimes write one for another number."""
        flow, rng = self.known.layout.flow, random.Random(f"{self.schedule.seed} {self.drivers}")  # noqa: S311
        if manifest is not None:
            flow = flow.resized({name: count for name, (_, count) in manifest.shape.components.items()})
            counts = {name: rng.choice((1, 2, 3, 5)) for name in self.known.resizable if rng.random() < RESIZED}
            flow = flow.resized(counts)
            if changed_counts(manifest, flow):
                manifest = rescale(self.disk, CHECKPOINTS, manifest, flow).write(self.disk, CHECKPOINTS)
                self.counts["resized"] += 1
        self.layout = self.known.layout if flow is self.known.layout.flow else Layout(flow)
        return manifest

    def start_worker(self, what: tuple[DriverProcess, Site]) -> None:
        """Start a process at a site, for the driver that requested it."""
        driver, site = what
        if driver is not self.driver or not driver.alive or driver.controller.ended:
            return
        self._ports += 1
        process = WorkerProcess(self, self, self.driver, self.layout, site, self._ports)
        self.by_port[self._ports] = self.processes[site.name] = process
        self.count(f"{process.name} starts")

    def crash(self, process: WorkerProcess, back: str, noisy: bool) -> None:
        """Crash a worker; if it is not noisy, nobody is notified."""
        process.alive = False
        process.tear()
        self._end_lines(process, noisy, whole=self.rng.random() < 0.5)
        self._schedule_replacement(process, back)

    def ended(self, process: WorkerProcess) -> None:
        """Replace a worker that has ended by itself."""
        process.alive = False
        if process.jobs and self.rng.random() < 0.5:
            process.jobs[0].run(self.disk)
        process.jobs.clear()
        self.count(f"{process.name} ends")
        self._end_lines(process, noisy=True, whole=True)
        self._schedule_replacement(process, "soon")

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

    def _schedule_replacement(self, process: WorkerProcess, back: str) -> None:
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
        self._schedule_replacement(process, "soon")

    def fill_disk(self, seconds: float) -> None:
        """Make the disk full for a while."""
        self.disk.full, self.disk.torn_share = FOLDER, self.rng.random()
        self.after(seconds, self._empty_disk, None)

    def _empty_disk(self, _: object) -> None:
        self.disk.full = ""

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
            self.promises.check_turn(process.name, process.worker.epoch)

    def done(self, process: SimulatedProcess, job: StorageJob, problem: str) -> None:
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
        if "saved in" in problem and self.now - self.last_fault > CHECKPOINT_S + 3.0:
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
        if controller.phase == "failed" and controller.error.endswith(RESUME_AGAIN):
            self.stopping = True
        if self.stopping or (controller.phase == "failed" and never_began):
            self.stopping = False
            driver.alive = False
            self.after(0.1, self.start_driver, None)
        elif controller.phase == "failed" and not (self.drained and controller.error.startswith(NOTHING)):
            raise Violation(f"the run failed: {controller.error}\n{controller.traceback}")
        else:
            self.counts["recoveries"] += controller.recovery.count
            self.over = True

    def reached(self, label: str, process: SimulatedProcess) -> None:
        """Note that a message or an action occurs."""

    def heard(self, process: WorkerProcess, message: worker_messages.WorkerMessage) -> None:
        """Check a message that a worker sends to the driver."""
        self.promises.check_message(process.name, message)


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
