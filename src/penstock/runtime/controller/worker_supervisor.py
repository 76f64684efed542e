"""Keeps a worker at every site of a run: launches its job again if it has ended or its worker is silent.

Spark itself starts another process if one has died or its executor is lost. The supervisor does the rest: jobs that end
before the run, workers that hang, executors that return under another name or are new.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.model.cluster import Machine
from penstock.runtime.controller.process import Driver
from penstock.runtime.controller.run_spec import Site, sites_of
from penstock.runtime.spark.executors import Executor
from penstock.runtime.spark.jobs import Job
from penstock.runtime.spark.slot import UNLOADABLE

REGISTER_S = 10.0  # for a job's worker to register, or for Spark to replace it; doubles with each failure in a row
MAX_REGISTER_S = 80.0  # an overloaded machine may take that long to start Java and Python
HEALTHY_S = 15.0  # after which the earlier failures of a worker are forgotten
MAX_DELAY_S = 10.0  # before a launch
FIRST_DELAY_S = 0.5
EXECUTORS_S = 1.0  # between two checks of the executors

Launch = Callable[[str, Executor | None], Job]


class SiteStatus(NamedTuple):
    """A site as the controller sees it."""

    alive: bool
    incarnation: int  # of its last worker; 0: none
    dropped: bool  # its worker was silent, and may still act
    wanted: bool


@dataclass
class SupervisedSite:
    """A site, the executor that its worker should run on, and its job."""

    site: Site
    home: Executor | None  # None: any
    job: Job | None = None  # None: launched when it is due
    due: float = 0.0
    before: int = 0  # incarnation of the last worker of the previous job
    seen: float = 0.0  # when its worker was last alive, or the job was launched
    since: float | None = None  # since when its worker is alive
    failures: int = 0  # in a row
    unverified: bool = False  # it is unknown whether it runs on its executor
    dismissed: int = 0  # incarnation of the last worker that was ended to run on its own executor

    @property
    def register_s(self) -> float:
        """The time its worker has to register."""
        return min(MAX_REGISTER_S, REGISTER_S * 2.0**self.failures)


class WorkerSupervisor:
    """The jobs of one run. One thread calls `tick` periodically."""

    def __init__(
        self,
        driver: Driver,
        launch: Launch,
        places: Sequence[tuple[Site, Executor | None]],
        registered: Callable[[], list[Executor]] | None = None,
        grown: Callable[[Machine], None] | None = None,
    ) -> None:
        """Take the sites and the executor of each; None: any.

        `registered` returns the current executors; None: they are not compared. `grown` is called with a machine that
        is new; None: new machines are not used.
        """
        self._driver = driver
        self._launch = launch
        self._registered = registered
        self._grown = grown
        self._assignments = [SupervisedSite(site, home) for site, home in places]
        self._alive = {home.id: home for _, home in places if home is not None}
        self._vacant: list[Executor] = []  # lost executors that have not been replaced
        self._next_check = 0.0

    def launch_all(self, now: float) -> None:
        """Launch all jobs."""
        for assignment in self._assignments:
            self._start(assignment, 0, now)

    def tick(self, now: float) -> None:
        """Do what is due."""
        controller = self._driver.controller
        if controller.ended:
            return
        if self._registered is not None and now >= self._next_check and controller.phase != "starting":
            self._next_check = now + EXECUTORS_S
            self._compare_executors(self._registered())
        status = self._driver.ask(self._site_status)
        for assignment in self._assignments:
            if assignment.site.name in status:
                self._check(assignment, status[assignment.site.name], now)

    def _site_status(self, now: float) -> dict[str, SiteStatus]:
        """Return the status of the sites; in the controller's thread."""
        controller, dropped = self._driver.controller, self._driver.dropped
        return {
            member.site.name: SiteStatus(
                member.alive,
                member.incarnation,
                not member.alive and dropped.get(number, 0) == member.incarnation,
                controller.wants_worker(member.site.name, now),
            )
            for number, member in enumerate(controller.members.all)
        }

    def _check(self, assignment: SupervisedSite, status: SiteStatus, now: float) -> None:
        if assignment.job is None:
            if now >= assignment.due and status.wanted:
                self._start(assignment, status.incarnation, now)
                assignment.unverified = assignment.job is not None and assignment.job.executor is not None
        elif assignment.job.done.is_set():
            self._handle_end(assignment, assignment.job, status, now)
        elif status.alive:
            assignment.seen, assignment.since = now, assignment.since if assignment.since is not None else now
            if now - assignment.since > HEALTHY_S:
                assignment.failures = 0
            if assignment.unverified:
                self._verify(assignment, assignment.job, status.incarnation)
        else:
            assignment.since = None
            if status.dropped and status.incarnation > assignment.before:
                self._relaunch(assignment, "sends no heartbeat", now)
            elif now - assignment.seen > assignment.register_s and self._driver.controller.phase != "starting":
                self._relaunch(assignment, f"has not registered in {assignment.register_s:g} s", now)

    def _handle_end(self, assignment: SupervisedSite, job: Job, status: SiteStatus, now: float) -> None:
        """Launch a job again that has ended; fail the run if that would not help."""
        name = assignment.site.name
        if job.error is not None and job.error.startswith(UNLOADABLE):
            self._fail(f"worker {name!r}: {job.error}")
        elif not status.incarnation and self._driver.controller.phase == "starting":
            host, port = self._driver.address
            remedy = "check that its machine can connect there; --listen chooses another address"
            unreached = f"ended before it reached the controller at {host}:{port}; {remedy}"
            self._fail(f"worker {name!r} {unreached}" if job.error is None else f"worker {name!r}: {job.error}")
        else:
            if job.error is not None:
                self._driver.warn(f"the job of worker {name} has ended, {job.error}")
            self._delay_launch(assignment, now)

    def _relaunch(self, assignment: SupervisedSite, problem: str, now: float) -> None:
        self._driver.warn(f"worker {assignment.site.name} {problem}; its job is launched again")
        if assignment.job is not None:
            assignment.job.cancel()
        self._delay_launch(assignment, now)

    def _delay_launch(self, assignment: SupervisedSite, now: float) -> None:
        """Delay a launch, longer after each failure."""
        delay = 0.0 if not assignment.failures else min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (assignment.failures - 1))
        assignment.job, assignment.due, assignment.since = None, now + delay, None
        assignment.failures += 1

    def _start(self, assignment: SupervisedSite, before: int, now: float) -> None:
        assignment.job = self._launch(assignment.site.name, self._room_for(assignment))
        assignment.seen, assignment.before = now, before

    def _verify(self, assignment: SupervisedSite, job: Job, incarnation: int) -> None:
        """End a worker that is not on its executor, to launch it there; warn if it was already requested there.

        Spark reports where a worker runs with a delay, and may have placed it before its executor registered.
        """
        home = assignment.home
        if home is None or home.id not in self._alive or incarnation == assignment.dismissed:
            return
        found = job.found_on()
        if found == home.id:
            assignment.unverified = False
        elif found in self._alive and job.executor == home:
            assignment.unverified = False
            planned = f"not on {home.id} as planned"
            self._driver.warn(
                f"worker {assignment.site.name} runs on executor {found}, {planned}; are its cores taken?"
            )
        elif found in self._alive:
            assignment.failures, assignment.dismissed = 0, incarnation
            site = assignment.site.name
            stays = self._driver.ask(lambda now: self._driver.controller.relocate(site, now))
            outcome = f"stays on executor {found}, {stays}" if stays else f"leaves executor {found} for {home.id}"
            self._driver.say(f"worker {site} {outcome}")

    def _fail(self, problem: str) -> None:
        self._driver.ask(lambda now: self._driver.controller.fail(problem, now))

    # Executors

    def _room_for(self, assignment: SupervisedSite) -> Executor | None:
        """Return the executor to request: its own, else one with a free core, on the same host if possible."""
        home = assignment.home
        if home is None or home.id in self._alive:
            return home
        held = [other.job.executor.id for other in self._assignments if other.job is not None and other.job.executor]
        free = [each for each in self._alive.values() if each.cores > held.count(each.id)]
        return max(free, key=lambda each: (each.host == home.host, each.cores - held.count(each.id)), default=None)

    def _compare_executors(self, found: list[Executor]) -> None:
        """Record executors that were lost, that replace lost ones, and that are new."""
        there = {executor.id: executor for executor in found}
        for lost in [executor for executor in self._alive.values() if executor.id not in there]:
            del self._alive[lost.id]
            self._vacant.append(lost)
            self._driver.warn(f"executor {lost.id} on {lost.host} was lost")
        for fresh in [executor for executor in found if executor.id not in self._alive]:
            self._alive[fresh.id] = fresh
            before = next((lost for lost in self._vacant if lost.host == fresh.host), None)
            before = before or next(iter(self._vacant), None)
            if before is not None:
                self._vacant.remove(before)
                self._replace(before, fresh)
            elif self._grown is not None:
                self._grow(fresh)

    def _replace(self, before: Executor, fresh: Executor) -> None:
        """Replace a lost executor by another, also for workers that Spark has placed elsewhere since."""
        self._driver.say(f"executor {fresh.id} on {fresh.host} replaces {before.id}")
        for assignment in self._assignments:
            if assignment.home is not None and assignment.home.id == before.id:
                assignment.home, assignment.unverified = fresh, True

    def _grow(self, fresh: Executor) -> None:
        """Use an additional executor; one of its cores stays free."""
        machine = fresh.machine
        sites = sites_of(machine)
        self._driver.say(f"executor {fresh.id} on {fresh.host} is new; slots {', '.join(site.name for site in sites)}")
        for site in sites:
            self._driver.ask(lambda _, site=site: self._driver.controller.members.add(site))  # type: ignore[misc]
            self._assignments.append(SupervisedSite(site, fresh))
        if self._grown is not None:
            self._grown(machine)
