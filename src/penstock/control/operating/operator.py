"""The operator: looks at the book again and again, and does what is missing.

`step` does everything that is quick in the caller's thread: it hears what has become of earlier starts and ends, reads
the book where that has changed, sets limits, and begins what takes a while in other threads, one thing a path at a
time. So a path that drains or starts holds nobody up. No step raises for what a user can mend: it is told, and tried
again.

A path whose elements have failed is stopped, and what its last checkpoint does not cover is given to the other paths
only when its run has ended. A run that fails by itself is given up the same way and started again after a rest under
another name: the book is left as it is, as its elements are not known to have failed.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from penstock.control.book.file import BookFile
from penstock.control.operating.applications import LiveApplication
from penstock.control.operating.launching import Flows, PathRun, Start, find_flow, launch, limits_of, machines_of, shape
from penstock.control.operating.paths import Begun, Goal, LivePath, Manner, Over, begin, finish
from penstock.control.operating.state import OperatorState, PathState, Phase, SharedSources, read_state, write_state
from penstock.model.book import Book, Booking
from penstock.model.errors import PenstockError

DRAIN_S = 30.0  # for a path that is not wanted any more to process what is in flight
REST_S = 5.0  # before a run that has failed is started again; twice as long each time that it fails again
LONGEST_REST_S = 120.0
SOUND_S = 60.0  # a run that went on for so long has not failed again
LOOK_S = 1.0  # between two looks at the runs' figures
LOGS = "operator"  # the folder of split logs, beside the book

Spawn = Callable[[Callable[[], None]], None]
Key = tuple[str, str]  # an application's name and fingerprint


def in_thread(work: Callable[[], None]) -> None:
    """Call a function in a thread of its own."""
    Thread(target=work, name="penstock path", daemon=True).start()


class Operator:
    """Does what a book says.

    book: its file. flows: the applications' dataflows. start: starts a run of a path and returns when tuples flow.
    tell: called with a line for everything that a person should know. spawn: calls a function, in another thread.
    """

    def __init__(
        self,
        book: Path | str,
        flows: Flows,
        start: Start,
        *,
        tell: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        spawn: Spawn = in_thread,
        drain_s: float = DRAIN_S,
        rest_s: float = REST_S,
    ) -> None:
        self.path = Path(book)
        self.book: Book | None = None  # as it was read last
        self.applications: dict[Key, LiveApplication] = {}
        self._flows, self._start = flows, start
        self._tell, self._clock, self._spawn = tell, clock, spawn
        self._drain_s, self._rest_s = drain_s, rest_s
        self._done: SimpleQueue[tuple[LivePath, Begun | Over]] = SimpleQueue()
        self._signature: tuple[int, ...] = ()  # of the file that was read
        self._problem = ""  # with the book
        self._left: list[SharedSources] = []  # of applications that were ended with the operator, for the next one
        self._left_alone: set[Key] = set()  # applications that cannot be run
        self._ending = self._at_once = False
        self._told: set[str] = set()  # problems with files, once each
        self._looked = -LOOK_S
        self._written: OperatorState | None = None
        self._before = read_state(self.path)  # of an operator that may have died

    def step(self) -> None:
        """Do all that can be done at once, and begin what takes longer."""
        self._hear()
        if not self._ending:
            self._read()
        for application in list(self.applications.values()):
            self._tend(application)
        self._look()

    @property
    def idle(self) -> bool:
        """Whether nothing runs, nor is being started or ended."""
        return not self.applications

    def end(self, now: bool = False) -> None:
        """Have everything drained, or stopped at once, from the next step on; the book is not followed any more."""
        self._ending, self._at_once = True, self._at_once or now
        for application in self.applications.values():
            application.follow(self._book, None)
            for path in application.paths:
                if now and path.busy and path.run is not None:
                    self._spawn(partial(_stop, path.run))  # who drains it hears that it has ended

    def state(self) -> OperatorState:
        """Return what runs; quick, and from any thread."""
        applications = list(self.applications.values())
        return OperatorState(
            pid=os.getpid(),
            at=time.time(),
            version=0 if self.book is None else self.book.version,
            paths=tuple(path.state() for application in applications for path in list(application.paths)),
            sources=(*self._left, *(application.shared() for application in applications)),
            problem=self._problem,
        )

    # The book

    @property
    def _book(self) -> Book:
        assert self.book is not None, "a book was read before anything ran"
        return self.book

    def _read(self) -> None:
        """Follow the book, where its file has changed; one that cannot be read at the moment is waited for."""
        signature = _signature(self.path)
        if signature == self._signature and not self._problem:
            return
        try:
            book = BookFile(self.path).load()
        except PenstockError as problem:
            if str(problem) != self._problem:
                self._tell(f"warning: {problem}; what runs goes on as it is until the book can be read")
            self._problem = str(problem)
            return
        if self._problem:
            self._tell(f"the book can be read again, version {book.version}")
        self._problem, self._signature = "", signature
        if self.book != book:
            self.book = book
            self._follow(book)

    def _follow(self, book: Book) -> None:
        wanted = {(booking.name, shape(booking.application)): booking for booking in book.bookings}
        for key, application in self.applications.items():
            if key not in wanted and any(path.goal is not Goal.GONE for path in application.paths):
                self._tell(f"{application.name}: released")
            application.follow(book, wanted.get(key))
        self._left_alone &= wanted.keys()
        for key, booking in wanted.items():
            if key not in self.applications and key not in self._left_alone:
                self._take_on(key, booking)
        self._before = None

    def _take_on(self, key: Key, booking: Booking) -> None:
        """Begin to operate an application, going on where an operator before had come to."""
        try:
            flow = find_flow(booking, self._flows)
            application = LiveApplication(booking, key[1], flow, self._folder(key))
        except PenstockError as problem:
            self._left_alone.add(key)
            self._tell(f"warning: {booking.name}: cannot be run and is left: {problem}")
            return
        if self._before is not None:
            for text in application.take_over(self._before.of(booking.name)):
                self._tell(text)
        self.applications[key] = application
        application.follow(self._book, booking)

    def _folder(self, key: Key) -> Path:
        """Return the folder of an application's split logs: that of the operator before, or a new one."""
        for kept in () if self._before is None else self._before.sources:
            if (kept.application, kept.digest) == key:
                return Path(kept.folder)
        plain = re.sub(r"[^\w.-]+", "-", key[0]).strip("-.") or "application"
        number = 1
        while (folder := self.path.parent / LOGS / f"{plain}-{number}").exists():
            number += 1
        return folder

    # Paths

    def _tend(self, application: LiveApplication) -> None:
        for path in application.paths:
            if not path.busy:
                self._act(application, path)
        with self._telling():
            application.weigh()
        for path in [path for path in application.paths if path.goal is Goal.GONE and path.run is None]:
            if not path.busy:
                application.paths.remove(path)
        if application.gone:
            del self.applications[application.name, application.digest]
            if self._ending and application.name in self._book.index:
                self._left.append(application.shared())
            self._tell(f"{application.name}: all of it has ended")

    def _act(self, application: LiveApplication, path: LivePath) -> None:
        """Do the next thing for a path for which nothing is being done."""
        if path.run is not None:
            if path.run.wait(0):
                self._finish(application, path, Manner.COLLECT)
            elif path.goal is Goal.RUN:
                self._limit(application, path, path.run)
            else:
                at_once = self._at_once or path.goal is Goal.DOWN
                self._finish(application, path, Manner.STOP if at_once else Manner.DRAIN)
        elif path.goal is Goal.DOWN:
            path.phase = Phase.DOWN
        elif path.goal is Goal.STANDBY:
            path.phase = Phase.STANDBY
        elif path.goal is Goal.RUN and path.may_begin(self._clock()):
            self._begin(application, path)

    def _begin(self, application: LiveApplication, path: LivePath) -> None:
        book, booking, booked = self._book, application.booking, path.booked
        path.name = name = application.new_name(path)
        path.busy, path.phase, path.seen = True, Phase.STARTING, None
        try:
            prepared = launch(book, booking, booked, application.flow, application.splits.folder, name)
        except PenstockError as problem:
            path.busy, path.phase, path.note = False, Phase.IMPOSSIBLE, str(problem)
            self._tell(f"warning: {application.name}: path {name} cannot be run: {problem}")
            return
        path.limits = prepared.limits
        self._spawn(lambda: self._done.put((path, begin(self._start, prepared))))

    def _limit(self, application: LiveApplication, path: LivePath, run: PathRun) -> None:
        """Have a run keep to the rate that its path has in the book."""
        limits = limits_of(application.booking, path.booked)
        if limits == path.limits:
            return
        before, path.limits = sum(path.limits.values()), limits
        try:
            run.limit(limits)
        except PenstockError as problem:  # it has just ended, which the next step will see
            self._tell(f"warning: {application.name}: path {path.name} keeps its rate: {problem}")
            return
        self._tell(f"{application.name}: path {path.name} now at {_tps(path.booked.rate_tps)}, was {_tps(before)}")

    def _finish(self, application: LiveApplication, path: LivePath, manner: Manner) -> None:
        run, name, splits, within = path.run, path.name, application.splits, self._drain_s
        assert run is not None, "it is ended because it runs"
        path.busy, path.phase = True, Phase.DRAINING if manner is Manner.DRAIN else Phase.STOPPING
        if path.goal is Goal.DOWN and manner is Manner.STOP:
            failed = ", ".join(element for element in path.booked.elements if element in self._book.failed)
            self._tell(f"{application.name}: path {name} uses {failed}, which has failed: it is given up")
        self._spawn(lambda: self._done.put((path, finish(run, manner, within, splits, name))))

    # What became of it

    def _hear(self) -> None:
        """Take note of what other threads have done."""
        while True:
            try:
                path, result = self._done.get_nowait()
            except Empty:
                return
            path.busy = False
            application = next(each for each in self.applications.values() if path in each.paths)
            if isinstance(result, Begun):
                self._begun(application, path, result)
            else:
                self._over(application, path, result)

    def _begun(self, application: LiveApplication, path: LivePath, result: Begun) -> None:
        if result.run is None:
            self._rest(path, result.problem)
            if path.goal is Goal.RUN:
                wait = f"it is tried again in {path.again_at - self._clock():.0f} s"
                self._tell(f"warning: {application.name}: path {path.name} does not start, {wait}: {result.problem}")
            return
        path.run, path.phase, path.note, path.begun_at = result.run, Phase.RUNNING, "", self._clock()
        where, rate = ", ".join(machines_of(path.booked)), _tps(sum(path.limits.values()))
        self._tell(f"{application.name}: path {path.name} runs on {where} at {rate}, run {result.run.folder.name}")

    def _over(self, application: LiveApplication, path: LivePath, result: Over) -> None:
        path.run, path.seen = None, None
        if result.manner is Manner.COLLECT and not result.error:
            path.phase, told = Phase.ENDED, "has come to its end"
        elif result.error:
            if self._clock() - path.begun_at >= SOUND_S:
                path.mishaps = 0
            self._rest(path, result.error)
            told = f"has failed, {result.error}"
        else:
            path.phase, told = Phase.WAITING, "was drained" if result.manner is Manner.DRAIN else "was stopped"
        if result.problem:
            self._tell(
                f"warning: {application.name}: path {path.name} {told}; nothing was given back: {result.problem}"
            )
            return
        back = f"; given back: {_tuples(result.returned)}" if result.returned else ""
        self._tell(f"{application.name}: path {path.name} {told}{back}")
        if result.returned and path.phase is not Phase.ENDED:
            application.revive()

    def _rest(self, path: LivePath, problem: str) -> None:
        rest = min(self._rest_s * 2.0**path.mishaps, LONGEST_REST_S)
        path.phase, path.note, path.mishaps = Phase.RESTING, problem, path.mishaps + 1
        path.again_at = self._clock() + rest

    # What is told of it

    def _look(self) -> None:
        """Ask all runs how they are from time to time, and keep that in the file; at once where more has changed."""
        now = self._clock()
        if now - self._looked >= LOOK_S:
            self._looked = now
            for application in self.applications.values():
                for path in application.paths:
                    if path.run is not None:
                        path.seen = path.run.status()
        elif self._written is not None and _standing(self.state()) == _standing(self._written):
            return
        if self.book is not None:
            self._written = self.state()
            with self._telling():
                write_state(self.path, self._written)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell of a file that cannot be written, once, in place of ending all that runs."""
        try:
            yield
        except (PenstockError, OSError) as problem:
            if str(problem) not in self._told:
                self._told.add(str(problem))
                self._tell(f"warning: {problem}")


def _stop(run: PathRun) -> None:
    with suppress(PenstockError):  # it has ended by itself meanwhile
        run.stop()


def _signature(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _standing(state: OperatorState) -> list[tuple[object, ...]]:
    """Return what of a state is no figure."""
    return [_path_standing(path) for path in state.paths] + [(state.version, state.problem)]


def _path_standing(path: PathState) -> tuple[object, ...]:
    return path.application, path.path, path.phase, path.run, path.booked_tps


def _tuples(count: int) -> str:
    return "1 tuple" if count == 1 else f"{count:,} tuples"


def _tps(rate: float) -> str:
    return f"{rate:.4g}/s"
