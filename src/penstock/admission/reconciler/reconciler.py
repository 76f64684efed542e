"""The reconciler compares the book with what runs and makes up the difference.

`step` runs in the caller's thread and does everything that is quick: it collects the outcomes of earlier starts and
ends, reads the book if it has changed, and sets limits. What takes a while it starts in other threads, one action per
path at a time, so that a path that drains or starts delays no other. A step does not raise for problems that a user can
solve: it reports them and tries again.

A path with a failed element is stopped; after its run has ended, the tuples that its last checkpoint does not cover go
to the other paths. A run that fails by itself is given up in the same way and started again after a delay, under
another name; the book is not changed, because its elements are not known to have failed. A run that does not end is
stopped
again: none of its tuples go to others, and its path is not started a second time.
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
from penstock.admission.reconciler.launch import Flows, PathRun, Start, flow_of_booking, prepare_launch, shape
from penstock.admission.reconciler.live_path import (
    EndMode,
    EndResult,
    Goal,
    LivePath,
    RejectedLimits,
    StartResult,
    describe_error,
    end_path_run,
    start_path_run,
    stop_run,
)
from penstock.admission.reconciler.outcomes import Outcomes, PromiseMonitor, format_rate
from penstock.admission.reconciler.state import Key, PathPhase, ReconcilerState, SplitLogRegistry
from penstock.model.book import Book, Booking
from penstock.model.cluster import Cluster
from penstock.model.errors import PenstockError

DRAIN_S = 30.0  # for a path that is no longer wanted to process what is in flight
STOP_S = 30.0  # for a stopped run to end; after that it is stuck
STATUS_S = 1.0  # between two readings of the runs' status, and before a failed limit is tried again

Spawn = Callable[[Callable[[], None]], None]
Scale = Callable[[Cluster, Mapping[str, float]], None]
"""Scales the capacities of elements relative to a cluster's description, in all current and future runs."""


def in_thread(work: Callable[[], None]) -> None:
    """Call a function in a thread of its own."""
    Thread(target=work, name="penstock path", daemon=True).start()


class BookReconciler:
    """Makes the runs match a book.

    book: its file. flows: the applications' dataflows. start: starts a path's run and returns when tuples flow.
    report: called with a line for every event that a person should know. spawn: calls a function in another thread.
    scale: called with elements whose capacity has changed in the book.
    """

    def __init__(
        self,
        book: Path | str,
        flows: Flows,
        start: Start,
        *,
        report: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        spawn: Spawn = in_thread,
        scale: Scale = lambda *_: None,
        stop_s: float = STOP_S,
    ) -> None:
        self.path = Path(book)
        self.book: Book | None = None  # as last read
        self.applications: dict[Key, LiveApplication] = {}
        self._flows, self._start = flows, start
        self._report, self._clock, self._spawn, self._scale = report, clock, spawn, scale
        self._stop_s = stop_s
        self._outcomes = Outcomes(report, clock)
        self._promises = PromiseMonitor(report)
        self._done: SimpleQueue[tuple[LivePath, StartResult | EndResult]] = SimpleQueue()
        self._signature: tuple[int, ...] = ()  # of the file that was read
        self._problem = ""  # with the book
        self._scaled: Mapping[str, float] = {}  # the capacities set on all runs
        self._wanted: set[Key] = set()  # applications in the book
        self._skipped: set[Key] = set()  # those of them that cannot be run
        self._ending = self._at_once = False
        self._last = float("inf")  # when runs that have not ended are abandoned
        self._reported: set[str] = set()  # problems with files that were reported
        self._polled_at = -STATUS_S
        self._written: ReconcilerState | None = None
        self._registry = SplitLogRegistry(self.path)

    def step(self) -> None:
        """Do everything that is quick, and start what takes longer."""
        self._collect()
        if not self._ending:
            self._read()
            self._set_capacities()
        for application in list(self.applications.values()):
            self._advance_paths(application)
        if self._clock() >= self._last:
            self._abandon()
        self._poll()

    @property
    def idle(self) -> bool:
        """Whether nothing runs, starts or ends."""
        return not self.applications

    def end(self, now: bool = False) -> None:
        """Drain, or stop, everything from the next step on; changes of the book are ignored from then on."""
        if now and not self._at_once:
            self._last = self._clock() + self._stop_s
        self._ending, self._at_once = True, self._at_once or now
        for application in self.applications.values():
            application.follow(self._book, None)
            for path in application.paths:
                if now and path.busy and path.run is not None:
                    stop_run(path.run, 0.0)  # the thread that drains it sees that it has ended

    def state(self) -> ReconcilerState:
        """Return the current state of all paths; quick, and safe in any thread."""
        applications = list(self.applications.values())
        return ReconcilerState(
            pid=os.getpid(),
            at=time.time(),
            version=0 if self.book is None else self.book.version,
            paths=tuple(path.state() for application in applications for path in list(application.paths)),
            sources=self._registry.sources,
            problem=self._problem,
        )

    # The book

    @property
    def _book(self) -> Book:
        assert self.book is not None, "the book was read before anything ran"
        return self.book

    def _read(self) -> None:
        """Apply the book if its file has changed; if it cannot be read, try again later."""
        signature = _signature(self.path)
        if signature == self._signature and not self._problem:
            return
        try:
            book = BookFile(self.path).load()
        except PenstockError as problem:
            if str(problem) != self._problem:
                self._report(f"warning: {problem}; running paths continue until the book can be read")
            self._problem = str(problem)
            return
        if self._problem:
            self._report(f"the book is readable again, version {book.version}")
        self._problem, self._signature = "", signature
        if self.book != book:
            self.book = book
            self._follow(book)
            self._promises.compare(book)

    def _follow(self, book: Book) -> None:
        wanted = {(booking.name, shape(booking.application)): booking for booking in book.bookings}
        self._wanted = set(wanted)
        for key, application in self.applications.items():
            if key not in wanted and any(path.goal is not Goal.REMOVED for path in application.paths):
                self._report(f"{application.name}: released")
            application.follow(book, wanted.get(key))
        self._skipped &= wanted.keys()
        self._registry.forget(self._wanted | self.applications.keys())
        for key, booking in wanted.items():
            if key not in self.applications and key not in self._skipped:
                self._adopt(key, booking)
        self._write()

    def _adopt(self, key: Key, booking: Booking) -> None:
        """Start to run an application, from where a previous reconciler stopped."""
        try:
            flow = flow_of_booking(booking, self._flows)
            application = LiveApplication(booking, key[1], flow, self._registry.folder(key))
            messages = application.take_over()
        except Exception as error:  # users' code returns dataflows; other applications must not suffer
            self._skipped.add(key)
            self._report(f"warning: {booking.name}: cannot be run and is skipped: {describe_error(error)}")
            return
        for text in messages:
            self._report(text)
        self.applications[key] = application
        self._registry.add(application.shared())
        application.follow(self._book, booking)

    def _set_capacities(self) -> None:
        """Set the capacities of the book in all runs at once."""
        if self.book is None or self.book.capacities == self._scaled:
            return
        before, now = self._scaled, self.book.capacities
        changed = {name: now.get(name, 1.0) for name in {**before, **now} if now.get(name) != before.get(name)}
        with self._reporting_errors():
            self._scale(self.book.cluster, changed)
            self._scaled = now
            for name, factor in changed.items():
                self._report(f"{name} now has {factor:g} of its described capacity")

    # Paths

    def _advance_paths(self, application: LiveApplication) -> None:
        for path in application.paths:
            if not path.busy:
                self._advance(application, path)
        with self._reporting_errors():
            application.weigh()
        for path in [path for path in application.paths if path.goal is Goal.REMOVED and path.run is None]:
            if not path.busy:
                application.paths.remove(path)
        if application.finished:
            del self.applications[application.key]
            self._registry.forget(self._wanted | self.applications.keys())
            self._report(f"{application.name}: all its runs have ended")

    def _advance(self, application: LiveApplication, path: LivePath) -> None:
        """Take the next action for a path that is not busy."""
        if path.run is not None:
            if path.phase is PathPhase.STUCK:
                if self._ending or path.run.wait(0) or self._clock() >= path.retry_at:
                    self._end_path(application, path, EndMode.STOP)
            elif path.run.wait(0):
                self._end_path(application, path, EndMode.COLLECT)
            elif path.goal is Goal.RUN:
                self._limit(application, path, path.run)
            else:
                at_once = self._at_once or path.goal is Goal.DOWN
                self._end_path(application, path, EndMode.STOP if at_once else EndMode.DRAIN)
        elif path.goal is Goal.DOWN:
            path.phase = PathPhase.DOWN
        elif path.goal is Goal.STANDBY:
            path.phase = PathPhase.STANDBY
        elif path.goal is Goal.RUN and path.may_start(self._clock()) and self._registry.safe(application.key):
            self._start_path(application, path)

    def _start_path(self, application: LiveApplication, path: LivePath) -> None:
        book, booking, booked = self._book, application.booking, path.booked
        splits, path.seen = application.splits, None
        try:
            path.name = name = application.new_name(path)
            prepared = prepare_launch(book, booking, booked, application.flow, splits, name)
        except PenstockError as problem:
            if problem.__cause__ is not None:  # an author's factory raised, which may succeed later
                self._outcomes.record_failed_start(application, path, str(problem))
                return
            path.phase, path.note = PathPhase.IMPOSSIBLE, str(problem)
            self._report(f"warning: {application.name}: path {path.label} cannot be run: {problem}")
            return
        except Exception as error:  # of users' sources, or of the disk: others must not suffer
            self._outcomes.record_failed_start(application, path, describe_error(error))
            return
        path.busy, path.phase, path.limits = True, PathPhase.STARTING, prepared.limits
        path.rejected, path.lower = None, {}
        self._spawn(lambda: self._done.put((path, start_path_run(self._start, prepared, splits, name))))

    def _limit(self, application: LiveApplication, path: LivePath, run: PathRun) -> None:
        """Set the booked rate of a path on its run, or a lower one that somebody else has set."""
        rejected = path.rejected
        if (limits := path.allowed()) == path.limits:
            path.rejected = None
            return
        if rejected is not None and limits == rejected.limits and self._clock() < rejected.until:
            return
        self._read_status(application, path)  # limits set by others since the last reading must not be lost
        if (limits := path.allowed()) == path.limits:
            return
        try:
            run.limit(limits)
        except Exception as error:  # if the run has just ended, the next step notices
            path.rejected = RejectedLimits(limits, describe_error(error), self._clock() + STATUS_S)
            if rejected is None or rejected.why != path.rejected.why:
                self._report(f"warning: {application.name}: path {path.name} keeps its rate: {path.rejected.why}")
            return
        before, path.limits, path.rejected = _format_limits(path.limits), limits, None
        booked, now = path.booked.rate_tps, sum(limits.values())
        limited = f" of the {format_rate(booked)} booked" if path.lower and now < booked else ""
        if before != format_rate(now):  # changes below the printed precision are not reported
            self._report(f"{application.name}: path {path.name} now at {format_rate(now)}{limited}, was {before}")

    def _end_path(self, application: LiveApplication, path: LivePath, manner: EndMode) -> None:
        run, name, splits, patience = path.run, path.name, application.splits, self._stop_s
        assert run is not None, "only a running path is ended"
        if path.goal is Goal.DOWN and manner is EndMode.STOP and path.phase is not PathPhase.STUCK:
            failed = ", ".join(self._book.failed_of(path.booked))
            self._report(f"{application.name}: path {name} uses {failed}, which has failed: the path is given up")
        path.busy, path.phase = True, PathPhase.DRAINING if manner is EndMode.DRAIN else PathPhase.STOPPING
        self._spawn(lambda: self._done.put((path, end_path_run(run, manner, DRAIN_S, patience, splits, name))))

    # Outcomes

    def _collect(self) -> None:
        """Collect the outcomes of other threads."""
        while True:
            try:
                path, result = self._done.get_nowait()
            except Empty:
                return
            path.busy = False
            application = next((each for each in self.applications.values() if path in each.paths), None)
            if application is None:  # it was abandoned
                continue
            if isinstance(result, StartResult):
                self._outcomes.record_start(application, path, result)
            else:
                self._outcomes.record_end(application, path, result, ending=self._ending)

    def _abandon(self) -> None:
        """Abandon what has not ended in time."""
        for application in self.applications.values():
            for path in application.paths:
                self._report(f"warning: {application.name}: path {path.label} has not ended and is abandoned")
        self.applications.clear()

    # Status

    def _poll(self) -> None:
        """Read the status of all runs periodically and write the file; write at once after a change of state."""
        now = self._clock()
        if now - self._polled_at >= STATUS_S:
            self._polled_at = now
            for application in self.applications.values():
                for path in application.paths:
                    self._read_status(application, path)
        elif self._written is not None and self.state().status_key == self._written.status_key:
            return
        if self.book is not None:
            self._write()

    def _read_status(self, application: LiveApplication, path: LivePath) -> None:
        """Read the status of a path's run and report limits set by others; `_limit` corrects those too high."""
        with self._reporting_errors():
            if not path.look():
                return
            limited, booked = _format_limits(path.limits), format_rate(path.booked.rate_tps)
            what = f"was limited to {limited} by another process, booked: {booked}"
            lower = "; lower limits are kept until its run ends" if path.lower else ""
            higher = "; higher limits are reset" if path.allowed() != path.limits else ""
            self._report(f"{application.name}: path {path.name} {what}{lower}{higher}")

    def _write(self) -> None:
        self._written = self.state()
        with self._reporting_errors():
            self._registry.write(self._written)

    @contextmanager
    def _reporting_errors(self) -> Iterator[None]:
        """Report an error, such as a file that cannot be written, once, instead of ending everything that runs."""
        try:
            yield
        except Exception as error:
            if (problem := describe_error(error)) not in self._reported:
                self._reported.add(problem)
                self._report(f"warning: {problem}")


def _signature(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _format_limits(limits: Mapping[str, float]) -> str:
    return format_rate(sum(limits.values())) if limits else "no limit"
