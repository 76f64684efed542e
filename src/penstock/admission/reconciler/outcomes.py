"""What follows from how the start or the end of a run came out: what its path is about next, and what is told of it.

A run that has failed is started again after a rest, one that has read all there was is not, and one that does not end
is kept hold of. What other threads have done is only told here; nothing is begun.
"""

from collections.abc import Callable

from penstock.admission.reconciler.applications import LiveApplication
from penstock.admission.reconciler.launch import machines_of
from penstock.admission.reconciler.live_path import Begun, Goal, LivePath, Manner, Over
from penstock.admission.reconciler.state import Phase

REST_S = 5.0  # before a run that has failed is started again; twice as long each time that it fails again
LONGEST_REST_S = 120.0
SOUND_S = 60.0  # a run that went on for so long has not failed again


class Outcomes:
    """Takes note of starts and ends of runs; only the operator's thread asks it to.

    tell: called with a line for everything that a person should know. rest_s: see `REST_S`.
    """

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float], rest_s: float) -> None:
        self._tell, self._clock, self._rest_s = tell, clock, rest_s

    def begun(self, application: LiveApplication, path: LivePath, result: Begun) -> None:
        """Take note of a start: the run is there, or is tried again after a rest."""
        if result.run is None:
            self.does_not_start(application, path, result.problem)
            if result.kept:
                self._tell(f"warning: {application.name}: path {path.name} gives nothing back: {result.kept}")
            if result.returned:
                self._tell(f"{application.name}: path {path.name}: given back: {_tuples(result.returned)}")
                application.revive()
            return
        path.run, path.phase, path.note, path.begun_at = result.run, Phase.RUNNING, "", self._clock()
        where, rate = ", ".join(machines_of(path.booked)), tps(sum(path.limits.values()))
        self._tell(f"{application.name}: path {path.name} runs on {where} at {rate}, run {result.run.folder.name}")

    def does_not_start(self, application: LiveApplication, path: LivePath, problem: str) -> None:
        """Let a path rest whose run could not be started."""
        self._rest(path, problem)
        if path.goal is Goal.RUN:
            text = f"path {path.called} does not start, {self._again(path)}: {problem}"
            self._tell(f"warning: {application.name}: {text}")

    def over(self, application: LiveApplication, path: LivePath, result: Over, *, ending: bool) -> None:
        """Take note of an end; `ending` says whether everything is to end, and nothing to be tried again."""
        if result.stuck:
            self._stuck(application, path, result.problem, ending)
            return
        path.run, path.seen = None, None
        told = self._became(application, path, result)
        if result.problem:
            self._tell(
                f"warning: {application.name}: path {path.name} {told}; nothing was given back: {result.problem}"
            )
            return
        back = f"; given back: {_tuples(result.returned)}" if result.returned else ""
        self._tell(f"{application.name}: path {path.name} {told}{back}")
        if result.returned and path.phase is not Phase.ENDED:
            application.revive()

    def _became(self, application: LiveApplication, path: LivePath, result: Over) -> str:
        """Set what a path is about after its run, and return how that has ended."""
        if self._clock() - path.begun_at >= SOUND_S:
            path.mishaps = 0
        if result.error:
            self._rest(path, result.error)
            return f"has failed, {result.error}"
        if result.manner is not Manner.COLLECT:
            path.phase = Phase.WAITING
            return "was drained" if result.manner is Manner.DRAIN else "was stopped"
        if application.exhausted():
            path.phase = Phase.ENDED
            return "has come to its end"
        self._rest(path, "it was ended from outside")
        return f"was ended from outside, though there is more to read; {self._again(path)}"

    def _stuck(self, application: LiveApplication, path: LivePath, problem: str, ending: bool) -> None:
        """Keep hold of a run that does not end; where all is to end, let go of it."""
        if ending:
            path.run = None
            later = "it is left to itself, and the next operator gives back what it leaves undone"
        else:
            self._rest(path, problem)
            path.phase = Phase.STUCK
            later = self._again(path)
        self._tell(f"warning: {application.name}: path {path.name} does not end, {problem}; {later}")

    def _again(self, path: LivePath) -> str:
        return f"it is tried again in {path.again_at - self._clock():.0f} s"

    def _rest(self, path: LivePath, problem: str) -> None:
        rest = min(self._rest_s * 2.0**path.mishaps, LONGEST_REST_S)
        path.phase, path.note, path.mishaps = Phase.RESTING, problem, path.mishaps + 1
        path.again_at = self._clock() + rest


def tps(rate: float) -> str:
    """Write a rate as it is told."""
    return f"{rate:.4g}/s"


def _tuples(count: int) -> str:
    return "1 tuple" if count == 1 else f"{count:,} tuples"
