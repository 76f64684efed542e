"""Keeps a worker at every site of a run: launches its job again when it has ended, or when nothing is heard of it.

Spark starts another process by itself where one has died or its executor is lost. What is left to do is here: jobs that
have come to an end though the run has not, workers that hang, executors that come back under another name or are new.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from penstock.model.cluster import Machine
from penstock.runtime.controller.process import Driver
from penstock.runtime.controller.settings import Site, sites_of
from penstock.runtime.spark.executors import Executor
from penstock.runtime.spark.jobs import Job
from penstock.runtime.spark.slot import UNLOADABLE

REGISTER_S = 10.0  # for a job's worker to register, or for Spark to replace it; doubles with each failure in a row
LONGEST_REGISTER_S = 80.0  # an overloaded machine may take that long to start Java and Python
HEALTHY_S = 15.0  # for which a worker has to be there for its failures before to be forgotten
LONGEST_REST_S = 10.0  # between two launches
FIRST_REST_S = 0.5
FOLLOW_S = 1.0  # between two looks at the executors

Launch = Callable[[str, Executor | None], Job]


class Sighted(NamedTuple):
    """A site as the controller has it."""

    alive: bool
    incarnation: int  # of its last worker; 0: there was none
    hung_up: bool  # that was given up because it was silent, and may live on
    wanted: bool


@dataclass
class Post:
    """A site, where its worker should be, and its job."""

    site: Site
    home: Executor | None  # None: wherever
    job: Job | None = None  # None: to be launched when it is due
    due: float = 0.0
    before: int = 0  # incarnation of the last worker before the job
    seen: float = 0.0  # when its worker was there, or the job was launched
    since: float | None = None  # since when its worker is there
    failures: int = 0  # in a row
    unverified: bool = False  # whether it is on its executor
    dismissed: int = 0  # incarnation of the last worker that was sent away, to come to its own executor

    @property
    def register_s(self) -> float:
        """The time its worker has to register."""
        return min(LONGEST_REGISTER_S, REGISTER_S * 2.0**self.failures)


class Crew:
    """The jobs of one run. `tend` is to be called again and again, by one thread."""

    def __init__(
        self,
        driver: Driver,
        launch: Launch,
        places: Sequence[tuple[Site, Executor | None]],
        registered: Callable[[], list[Executor]] | None = None,
        grown: Callable[[Machine], None] | None = None,
    ) -> None:
        """Take the sites and the executor of each; None: any.

        `registered` says which executors there are now; None: they are not followed. `grown` is told of a machine that
        is new; None: no use is made of new ones.
        """
        self._driver = driver
        self._launch = launch
        self._registered = registered
        self._grown = grown
        self._posts = [Post(site, home) for site, home in places]
        self._alive = {home.id: home for _, home in places if home is not None}
        self._vacant: list[Executor] = []  # executors that have gone and left posts without one
        self._next_look = 0.0

    def begin(self, now: float) -> None:
        """Launch all jobs."""
        for post in self._posts:
            self._start(post, 0, now)

    def tend(self, now: float) -> None:
        """Do what is due."""
        controller = self._driver.controller
        if controller.ended:
            return
        if self._registered is not None and now >= self._next_look and controller.phase != "starting":
            self._next_look = now + FOLLOW_S
            self._follow(self._registered())
        sighted = self._driver.ask(self._look)
        for post in self._posts:
            if post.site.name in sighted:
                self._tend(post, sighted[post.site.name], now)

    def _look(self, now: float) -> dict[str, Sighted]:
        """Say how the sites are doing; in the controller's thread."""
        controller, hung_up = self._driver.controller, self._driver.hung_up
        return {
            member.site.name: Sighted(
                member.alive,
                member.incarnation,
                not member.alive and hung_up.get(number, 0) == member.incarnation,
                controller.wants_worker(member.site.name, now),
            )
            for number, member in enumerate(controller.members.all)
        }

    def _tend(self, post: Post, sighted: Sighted, now: float) -> None:
        if post.job is None:
            if now >= post.due and sighted.wanted:
                self._start(post, sighted.incarnation, now)
                post.unverified = post.job is not None and post.job.executor is not None
        elif post.job.done.is_set():
            self._ended(post, post.job, sighted, now)
        elif sighted.alive:
            post.seen, post.since = now, post.since if post.since is not None else now
            if now - post.since > HEALTHY_S:
                post.failures = 0
            if post.unverified:
                self._verify(post, post.job, sighted.incarnation)
        else:
            post.since = None
            if sighted.hung_up and sighted.incarnation > post.before:
                self._relaunch(post, "gives no sign of life", now)
            elif now - post.seen > post.register_s and self._driver.controller.phase != "starting":
                self._relaunch(post, f"has not registered in {post.register_s:g} s", now)

    def _ended(self, post: Post, job: Job, sighted: Sighted, now: float) -> None:
        """Have a job launched again that has come to an end, unless that would be no use."""
        name = post.site.name
        if job.error is not None and job.error.startswith(UNLOADABLE):
            self._fail(f"worker {name!r}: {job.error}")
        elif not sighted.incarnation and self._driver.controller.phase == "starting":
            host, port = self._driver.address
            remedy = "check that its machine can connect there; --listen chooses another address"
            unreached = f"ended before it reached the controller at {host}:{port}; {remedy}"
            self._fail(f"worker {name!r} {unreached}" if job.error is None else f"worker {name!r}: {job.error}")
        else:
            if job.error is not None:
                self._driver.warn(f"the job of worker {name} has ended, {job.error}")
            self._rest(post, now)

    def _relaunch(self, post: Post, problem: str, now: float) -> None:
        self._driver.warn(f"worker {post.site.name} {problem}; its job is launched anew")
        if post.job is not None:
            post.job.cancel()
        self._rest(post, now)

    def _rest(self, post: Post, now: float) -> None:
        """Put a launch off, the longer the more often it has come to nothing."""
        rest = 0.0 if not post.failures else min(LONGEST_REST_S, FIRST_REST_S * 2 ** (post.failures - 1))
        post.job, post.due, post.since = None, now + rest, None
        post.failures += 1

    def _start(self, post: Post, before: int, now: float) -> None:
        post.job = self._launch(post.site.name, self._room_for(post))
        post.seen, post.before = now, before

    def _verify(self, post: Post, job: Job, incarnation: int) -> None:
        """Have a worker that is not where it should be end and come there, or tell of it where it has asked in vain.

        Spark says a little late where it is, and may have put it elsewhere before its own executor was there.
        """
        home = post.home
        if home is None or home.id not in self._alive or incarnation == post.dismissed:
            return
        found = job.found_on()
        if found == home.id:
            post.unverified = False
        elif found in self._alive and job.executor == home:
            post.unverified = False
            planned = f"not on {home.id} as planned"
            self._driver.warn(f"worker {post.site.name} runs on executor {found}, {planned}; are its cores taken?")
        elif found in self._alive:
            post.failures, post.dismissed = 0, incarnation
            stays = self._driver.dismiss(post.site.name)
            way = f"stays on executor {found}, {stays}" if stays else f"leaves executor {found} for {home.id}"
            self._driver.say(f"worker {post.site.name} {way}")

    def _fail(self, problem: str) -> None:
        self._driver.ask(lambda now: self._driver.controller.fail(problem, now))

    # Executors

    def _room_for(self, post: Post) -> Executor | None:
        """Return the executor to ask for: its own, else one with a core to spare, on the same host if there is one."""
        home = post.home
        if home is None or home.id in self._alive:
            return home
        held = [other.job.executor.id for other in self._posts if other.job is not None and other.job.executor]
        free = [each for each in self._alive.values() if each.cores > held.count(each.id)]
        return max(free, key=lambda each: (each.host == home.host, each.cores - held.count(each.id)), default=None)

    def _follow(self, found: list[Executor]) -> None:
        """Take note of executors that have gone, that take the place of such, and that are new."""
        there = {executor.id: executor for executor in found}
        for lost in [executor for executor in self._alive.values() if executor.id not in there]:
            del self._alive[lost.id]
            self._vacant.append(lost)
            self._driver.warn(f"executor {lost.id} on {lost.host} has gone")
        for fresh in [executor for executor in found if executor.id not in self._alive]:
            self._alive[fresh.id] = fresh
            before = next((lost for lost in self._vacant if lost.host == fresh.host), None)
            before = before or next(iter(self._vacant), None)
            if before is not None:
                self._vacant.remove(before)
                self._settle(before, fresh)
            elif self._grown is not None:
                self._grow(fresh)

    def _settle(self, before: Executor, fresh: Executor) -> None:
        """Let an executor take the place of one that has gone: also of workers that Spark has put elsewhere since."""
        self._driver.say(f"executor {fresh.id} on {fresh.host} takes the place of {before.id}")
        for post in self._posts:
            if post.home is not None and post.home.id == before.id:
                post.home, post.unverified = fresh, True

    def _grow(self, fresh: Executor) -> None:
        """Make use of an executor beyond those that there were, one core of which is kept free."""
        machine = fresh.machine
        sites = sites_of(machine)
        self._driver.say(f"executor {fresh.id} on {fresh.host} is new; slots {', '.join(site.name for site in sites)}")
        for site in sites:
            self._driver.ask(partial(self._add, site))
            self._posts.append(Post(site, fresh))
        if self._grown is not None:
            self._grown(machine)

    def _add(self, site: Site, _: float) -> None:
        self._driver.controller.add_site(site)
