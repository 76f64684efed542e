"""The operator: looks at the book again and again, and does what is missing.

`step` does everything that is quick in the caller's thread: it hears what has become of earlier starts and ends, reads
the book where that has changed, sets limits, and begins what takes a while in other threads, one thing a path at a
time. So a path that drains or starts holds nobody up. No step raises for what a user can mend: it is told, and tried
again.

A path whose elements have failed is stopped, and what its last checkpoint does not cover is given to the other paths
only when its run has ended. A run that fails by itself is given up the same way and started again after a rest under
another name: the book is left as it is, as its elements are not known to have failed. A run that does not end is kept
hold of and stopped again: nothing of it is given to others, and its path is not started beside it.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from penstock.admission.book.file import BookFile
from penstock.admission.reconciler.applications import LiveApplication
from penstock.admission.reconciler.launch import Flows, PathRun, Start, find_flow, launch, shape
from penstock.admission.reconciler.live_path import (
    Begun,
    Goal,
    LivePath,
    Manner,
    Over,
    Refused,
    begin,
    finish,
    in_a_line,
    stop,
)
from penstock.admission.reconciler.outcomes import REST_S, Outcomes, tps
from penstock.admission.reconciler.promises import Promises
from penstock.admission.reconciler.split_log_registry import Key, Remembered
from penstock.admission.reconciler.state import OperatorState, Phase
from penstock.model.book import Book, Booking
from penstock.model.cluster import Cluster
from penstock.model.errors import PenstockError

DRAIN_S = 30.0  # for a path that is not wanted any more to process what is in flight
STOP_S = 30.0  # for a run that was stopped to end; after that it is stuck
LOOK_S = 1.0  # between two looks at the runs' figures, and before a limit that was not taken is tried again

Spawn = Callable[[Callable[[], None]], None]
Scale = Callable[[Cluster, Mapping[str, float]], None]
"""Has elements give so many times what a cluster describes them to have, in all runs that there are or will be."""


def in_thread(work: Callable[[], None]) -> None:
    """Call a function in a thread of its own."""
    Thread(target=work, name="penstock path", daemon=True).start()


class Operator:
    """Does what a book says.

    book: its file. flows: the applications' dataflows. start: starts a run of a path and returns when tuples flow.
    tell: called with a line for everything that a person should know. spawn: calls a function, in another thread.
    scale: called with elements whose capacity has changed in the book.
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
        scale: Scale = lambda *_: None,
        drain_s: float = DRAIN_S,
        stop_s: float = STOP_S,
        rest_s: float = REST_S,
    ) -> None:
        self.path = Path(book)
        self.book: Book | None = None  # as it was read last
        self.applications: dict[Key, LiveApplication] = {}
        self._flows, self._start = flows, start
        self._tell, self._clock, self._spawn, self._scale = tell, clock, spawn, scale
        self._drain_s, self._stop_s = drain_s, stop_s
        self._outcomes = Outcomes(tell, clock, rest_s)
        self._promises = Promises(tell)
        self._done: SimpleQueue[tuple[LivePath, Begun | Over]] = SimpleQueue()
        self._signature: tuple[int, ...] = ()  # of the file that was read
        self._problem = ""  # with the book
        self._scaled: Mapping[str, float] = {}  # the capacities that runs have been told of
        self._wanted: set[Key] = set()  # applications in the book
        self._left_alone: set[Key] = set()  # of these, those that cannot be run
        self._ending = self._at_once = False
        self._last = float("inf")  # when what has not ended by then is left to itself
        self._told: set[str] = set()  # problems with files, once each
        self._looked = -LOOK_S
        self._written: OperatorState | None = None
        self._remembered = Remembered(self.path)

    def step(self) -> None:
        """Do all that can be done at once, and begin what takes longer."""
        self._hear()
        if not self._ending:
            self._read()
            self._set_capacities()
        for application in list(self.applications.values()):
            self._tend(application)
        if self._clock() >= self._last:
            self._abandon()
        self._look()

    @property
    def idle(self) -> bool:
        """Whether nothing runs, nor is being started or ended."""
        return not self.applications

    def end(self, now: bool = False) -> None:
        """Have everything drained, or stopped at once, from the next step on; the book is not followed any more."""
        if now and not self._at_once:
            self._last = self._clock() + self._stop_s
        self._ending, self._at_once = True, self._at_once or now
        for application in self.applications.values():
            application.follow(self._book, None)
            for path in application.paths:
                if now and path.busy and path.run is not None:
                    stop(path.run, 0.0)  # who drains it hears that it has ended

    def state(self) -> OperatorState:
        """Return what runs; quick, and from any thread."""
        applications = list(self.applications.values())
        return OperatorState(
            pid=os.getpid(),
            at=time.time(),
            version=0 if self.book is None else self.book.version,
            paths=tuple(path.state() for application in applications for path in list(application.paths)),
            sources=self._remembered.sources,
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
            self._promises.compare(book)

    def _follow(self, book: Book) -> None:
        wanted = {(booking.name, shape(booking.application)): booking for booking in book.bookings}
        self._wanted = set(wanted)
        for key, application in self.applications.items():
            if key not in wanted and any(path.goal is not Goal.GONE for path in application.paths):
                self._tell(f"{application.name}: released")
            application.follow(book, wanted.get(key))
        self._left_alone &= wanted.keys()
        self._remembered.forget(self._wanted | self.applications.keys())
        for key, booking in wanted.items():
            if key not in self.applications and key not in self._left_alone:
                self._take_on(key, booking)
        self._keep()

    def _take_on(self, key: Key, booking: Booking) -> None:
        """Begin to operate an application, going on where an operator before had come to."""
        try:
            flow = find_flow(booking, self._flows)
            application = LiveApplication(booking, key[1], flow, self._remembered.folder(key))
            told = application.take_over()
        except Exception as error:  # users' code finds dataflows; others must not suffer from it
            self._left_alone.add(key)
            self._tell(f"warning: {booking.name}: cannot be run and is left: {in_a_line(error)}")
            return
        for text in told:
            self._tell(text)
        self.applications[key] = application
        self._remembered.add(application.shared())
        application.follow(self._book, booking)

    def _set_capacities(self) -> None:
        """Have elements be as fast as the book says, in all runs at once."""
        if self.book is None or self.book.capacities == self._scaled:
            return
        before, now = self._scaled, self.book.capacities
        changed = {name: now.get(name, 1.0) for name in {**before, **now} if now.get(name) != before.get(name)}
        with self._telling():
            self._scale(self.book.cluster, changed)
            self._scaled = now
            for name, factor in changed.items():
                self._tell(f"{name} is now at {factor:g} of what is described")

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
            del self.applications[application.key]
            self._remembered.forget(self._wanted | self.applications.keys())
            self._tell(f"{application.name}: all of it has ended")

    def _act(self, application: LiveApplication, path: LivePath) -> None:
        """Do the next thing for a path for which nothing is being done."""
        if path.run is not None:
            if path.phase is Phase.STUCK:
                if self._ending or path.run.wait(0) or self._clock() >= path.again_at:
                    self._finish(application, path, Manner.STOP)
            elif path.run.wait(0):
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
        elif path.goal is Goal.RUN and path.may_begin(self._clock()) and self._remembered.safe(application.key):
            self._begin(application, path)

    def _begin(self, application: LiveApplication, path: LivePath) -> None:
        book, booking, booked = self._book, application.booking, path.booked
        splits, path.seen = application.splits, None
        try:
            path.name = name = application.new_name(path)
            prepared = launch(book, booking, booked, application.flow, splits, name)
        except PenstockError as problem:
            if problem.__cause__ is not None:  # an author's factory raised, which may work later
                self._outcomes.does_not_start(application, path, str(problem))
                return
            path.phase, path.note = Phase.IMPOSSIBLE, str(problem)
            self._tell(f"warning: {application.name}: path {path.called} cannot be run: {problem}")
            return
        except Exception as error:  # of users' sources, or of the disk: others must not suffer from it
            self._outcomes.does_not_start(application, path, in_a_line(error))
            return
        path.busy, path.phase, path.limits = True, Phase.STARTING, prepared.limits
        path.refused, path.lower = None, {}
        self._spawn(lambda: self._done.put((path, begin(self._start, prepared, splits, name))))

    def _limit(self, application: LiveApplication, path: LivePath, run: PathRun) -> None:
        """Have a run keep to the rate that its path has in the book, or to less where somebody has set that."""
        refused = path.refused
        if (limits := path.allowed()) == path.limits:
            path.refused = None
            return
        if refused is not None and limits == refused.limits and self._clock() < refused.until:
            return
        self._look_at(application, path)  # what somebody has set since the last look must not be lost
        if (limits := path.allowed()) == path.limits:
            return
        try:
            run.limit(limits)
        except Exception as error:  # where it has just ended, the next step will see that
            path.refused = Refused(limits, in_a_line(error), self._clock() + LOOK_S)
            if refused is None or refused.why != path.refused.why:
                self._tell(f"warning: {application.name}: path {path.name} keeps its rate: {path.refused.why}")
            return
        before, path.limits, path.refused = _told(path.limits), limits, None
        booked, now = path.booked.rate_tps, sum(limits.values())
        limited = f" of the {tps(booked)} booked" if path.lower and now < booked else ""
        if before != tps(now):  # a change too small to be seen is none
            self._tell(f"{application.name}: path {path.name} now at {tps(now)}{limited}, was {before}")

    def _finish(self, application: LiveApplication, path: LivePath, manner: Manner) -> None:
        run, name, splits, within, patience = path.run, path.name, application.splits, self._drain_s, self._stop_s
        assert run is not None, "it is ended because it runs"
        if path.goal is Goal.DOWN and manner is Manner.STOP and path.phase is not Phase.STUCK:
            failed = ", ".join(self._book.failed_of(path.booked))
            self._tell(f"{application.name}: path {name} uses {failed}, which has failed: it is given up")
        path.busy, path.phase = True, Phase.DRAINING if manner is Manner.DRAIN else Phase.STOPPING
        self._spawn(lambda: self._done.put((path, finish(run, manner, within, patience, splits, name))))

    # What became of it

    def _hear(self) -> None:
        """Take note of what other threads have done."""
        while True:
            try:
                path, result = self._done.get_nowait()
            except Empty:
                return
            path.busy = False
            application = next((each for each in self.applications.values() if path in each.paths), None)
            if application is None:  # it was left to itself
                continue
            if isinstance(result, Begun):
                self._outcomes.begun(application, path, result)
            else:
                self._outcomes.over(application, path, result, ending=self._ending)

    def _abandon(self) -> None:
        """Leave what has not ended in time to itself: whoever hurries is to come to an end."""
        for application in self.applications.values():
            for path in application.paths:
                self._tell(f"warning: {application.name}: path {path.called} has not ended and is left to itself")
        self.applications.clear()

    # What is told of it

    def _look(self) -> None:
        """Ask all runs how they are from time to time, and keep that in the file; at once where more has changed."""
        now = self._clock()
        if now - self._looked >= LOOK_S:
            self._looked = now
            for application in self.applications.values():
                for path in application.paths:
                    self._look_at(application, path)
        elif self._written is not None and self.state().standing == self._written.standing:
            return
        if self.book is not None:
            self._keep()

    def _look_at(self, application: LiveApplication, path: LivePath) -> None:
        """Ask a path's run how it is, and tell of a limit that others have set; `_limit` sees to one too high."""
        with self._telling():
            if not path.look():
                return
            what = f"was set to {_told(path.limits)} by somebody else, where {tps(path.booked.rate_tps)} is booked"
            lower = "; what is lower stands while its run goes on" if path.lower else ""
            higher = "; what is higher is taken back" if path.allowed() != path.limits else ""
            self._tell(f"{application.name}: path {path.name} {what}{lower}{higher}")

    def _keep(self) -> None:
        self._written = self.state()
        with self._telling():
            self._remembered.write(self._written)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell of what goes wrong, such as a file that cannot be written, once, in place of ending all that runs."""
        try:
            yield
        except Exception as error:
            if (problem := in_a_line(error)) not in self._told:
                self._told.add(problem)
                self._tell(f"warning: {problem}")


def _signature(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _told(limits: Mapping[str, float]) -> str:
    return tps(sum(limits.values())) if limits else "no limit"
