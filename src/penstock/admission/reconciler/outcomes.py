"""Update a path and report after its run was started or has ended.

A failed run is started again after a delay, one that has read everything is not, and one that does not end is stopped
again. This module only records what other threads have done; it starts nothing.
"""

from collections.abc import Callable

from penstock.admission.book.changes import find_unmet
from penstock.admission.reconciler.applications import LiveApplication
from penstock.admission.reconciler.launch import used_machines
from penstock.admission.reconciler.live_path import EndMode, EndResult, Goal, LivePath, StartResult
from penstock.admission.reconciler.state import PathPhase
from penstock.model.book import Book

RETRY_S = 5.0  # before a failed run is started again; doubled with each consecutive failure
MAX_RETRY_S = 120.0
HEALTHY_S = 60.0  # a run that lasted this long resets the count of failures


class Outcomes:
    """Records starts and ends of runs; only the reconciler's thread calls it.

    report: called with a line for every event that a person should know.
    """

    def __init__(self, report: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._report, self._clock = report, clock

    def record_start(self, application: LiveApplication, path: LivePath, result: StartResult) -> None:
        """Record a start: the run is there, or is tried again after a delay."""
        if result.run is None:
            self.record_failed_start(application, path, result.problem)
            if result.kept:
                self._report(f"warning: {application.name}: path {path.name} returns no tuples: {result.kept}")
            if result.returned:
                self._report(f"{application.name}: path {path.name}: returned {_tuples(result.returned)}")
                application.revive()
            return
        path.run, path.phase, path.note, path.started_at = result.run, PathPhase.RUNNING, "", self._clock()
        where, rate = ", ".join(used_machines(path.booked)), format_rate(sum(path.limits.values()))
        self._report(f"{application.name}: path {path.name} runs on {where} at {rate}, run {result.run.folder.name}")

    def record_failed_start(self, application: LiveApplication, path: LivePath, problem: str) -> None:
        """Schedule another start of a path whose run could not be started."""
        self._back_off(path, problem)
        if path.goal is Goal.RUN:
            text = f"path {path.label} cannot be started, {self._again(path)}: {problem}"
            self._report(f"warning: {application.name}: {text}")

    def record_end(self, application: LiveApplication, path: LivePath, result: EndResult, *, ending: bool) -> None:
        """Record an end; `ending`: everything is being ended, and nothing is tried again."""
        if result.stuck:
            self._stuck(application, path, result.problem, ending)
            return
        path.run, path.seen = None, None
        what = self._set_phase(application, path, result)
        if result.problem:
            self._report(
                f"warning: {application.name}: path {path.name} {what}; no tuples were returned: {result.problem}"
            )
            return
        back = f"; returned {_tuples(result.returned)}" if result.returned else ""
        self._report(f"{application.name}: path {path.name} {what}{back}")
        if result.returned and path.phase is not PathPhase.ENDED:
            application.revive()

    def _set_phase(self, application: LiveApplication, path: LivePath, result: EndResult) -> str:
        """Set the phase of a path after its run, and return how the run has ended."""
        if self._clock() - path.started_at >= HEALTHY_S:
            path.failures = 0
        if result.error:
            self._back_off(path, result.error)
            return f"failed, {result.error}"
        if result.manner is not EndMode.COLLECT:
            path.phase = PathPhase.WAITING
            return "was drained" if result.manner is EndMode.DRAIN else "was stopped"
        if application.sources_ended():
            path.phase = PathPhase.ENDED
            return "has read all its sources"
        self._back_off(path, "it was ended by another process")
        return f"was ended by another process before its sources ended; {self._again(path)}"

    def _stuck(self, application: LiveApplication, path: LivePath, problem: str, ending: bool) -> None:
        """Keep a run that does not end, to stop it again; abandon it if everything is being ended."""
        if ending:
            path.run = None
            later = "it is abandoned, and the next reconciler returns its unprocessed tuples"
        else:
            self._back_off(path, problem)
            path.phase = PathPhase.STUCK
            later = self._again(path)
        self._report(f"warning: {application.name}: path {path.name} does not end, {problem}; {later}")

    def _again(self, path: LivePath) -> str:
        return f"next attempt in {path.retry_at - self._clock():.0f} s"

    def _back_off(self, path: LivePath, problem: str) -> None:
        delay = min(RETRY_S * 2.0**path.failures, MAX_RETRY_S)
        path.phase, path.note, path.failures = PathPhase.BACKOFF, problem, path.failures + 1
        path.retry_at = self._clock() + delay


def format_rate(rate: float) -> str:
    """Format a rate."""
    return f"{rate:.4g}/s"


def _tuples(count: int) -> str:
    return "1 tuple" if count == 1 else f"{count:,} tuples"


class PromiseMonitor:
    """Reports promises that are not kept: at first, when they change, and when they are kept again."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._missed: dict[str, str] = {}  # by application

    def compare(self, book: Book) -> None:
        """Report the promises that a book does not keep and were not reported yet, and those that it keeps again."""
        missed = {one.application: one.describe(format_rate, _share) for one in find_unmet(book)}
        for name, text in missed.items():
            if self._missed.get(name) != text:
                self._report(f"warning: {name} {text}; penstock cluster admit {name} --again searches for other paths")
        for name in self._missed:
            if name not in missed and name in book.index:
                self._report(f"{name}: its promise is kept again")
        self._missed = missed


def _share(part: float | None) -> str:
    return f"{part or 0.0:.6g}"
