"""A pilot runs the autopilot of a run in a thread of the driver, and controls it.

The thread starts when a policy is first set, and ends with the run. It never blocks the run.
"""

from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING

from msgspec.structs import replace

from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import LEDGER, UNFINISHED, DecisionOutcome, Ledger, Swap
from penstock.autopilot.moves import DRIVER_ENDED
from penstock.autopilot.proposal import find_foreign_cluster
from penstock.estimate.latency_models import load_models
from penstock.model.cluster import Cluster
from penstock.model.errors import PenstockError, member
from penstock.model.objective import Objective
from penstock.model.status import PilotStatus
from penstock.policies.registry import placement_policy

if TYPE_CHECKING:
    from penstock.runtime.run import Run

PREDICTIVE = ("predictive", "predictive-search")  # policies that need latency models
LAST_S = 5.0  # maximum wait for the thread at the end


class Pilot:
    """The autopilot of a run; its methods may be called from any thread."""

    def __init__(self, run: "Run", settings: AutopilotSettings | None = None, guard: Guard | None = None) -> None:
        self._run = run
        self._settings = settings or AutopilotSettings(policy=None)
        self._guard = guard or Guard()
        self._lock = Lock()  # guards what follows
        self._autopilot: Autopilot | None = None
        self._thread: Thread | None = None
        self._problem = ""

    def steer(self, policy: str | None = None, shadow: bool | None = None, model: str | None = None) -> PilotStatus:
        """Change the policy, `off` for none; return the new status. None leaves a setting unchanged.

        `model` is a file of latency models of the run's application.
        """
        if policy not in (None, "off"):
            placement_policy(policy or "")  # raises for an unknown policy
        path = None if model is None else _checked(model, self._run)
        if (policy, shadow, path) != (None, None, None):
            with self._lock:
                self._change(policy, shadow, path)
        found = self.status()
        if policy is not None and found.caution:
            self._run.say(found.caution, "warning")
        return found

    def status(self) -> PilotStatus:
        """Return the status of the autopilot."""
        autopilot = self._autopilot
        if autopilot is None:
            was = self._settings
            return PilotStatus(policy=None, shadow=was.shadow, state=self._problem or "off", model=was.model)
        settings, last = autopilot.settings, autopilot.last
        on = settings.policy is not None or autopilot.acting  # a change in progress is completed before it is off
        return PilotStatus(
            policy=None if self._problem else settings.policy,
            shadow=settings.shadow,
            state=self._problem or (autopilot.state if on else "off"),
            decisions=autopilot.ledger.next_number - 1,
            last="" if last is None else last.verdict,
            model=settings.model,
            caution=caution(settings.policy, settings.model, settings.objective, self._run.cluster),
        )

    def join(self) -> None:
        """Wait for the thread after the run has ended."""
        thread = self._thread
        if thread is not None:
            thread.join(LAST_S)

    def _change(self, policy: str | None, shadow: bool | None, model: str | None) -> None:
        if model is not None:
            self._settings = replace(self._settings, model=model)
        running = self._thread is not None and self._thread.is_alive()
        if self._autopilot is not None and running:
            chosen = self._autopilot.settings.policy if policy is None else policy if policy != "off" else None
            self._autopilot.swap(chosen, shadow, model)
            return
        wanted = self._settings.policy if policy is None else policy
        if wanted not in (None, "off"):
            quiet = self._settings.shadow if shadow is None else shadow
            self._start(replace(self._settings, policy=wanted, shadow=quiet))

    def _start(self, settings: AutopilotSettings) -> None:
        from penstock.autopilot.live_target import LiveTarget

        self._problem = ""
        ledger = Ledger(self._run.folder / LEDGER)
        target = LiveTarget(self._run)
        report = self._run.say
        self._autopilot = Autopilot(
            target, settings, guard=self._guard, ledger=ledger, report=report, run=self._run.folder.name
        )
        ledger.append(Swap(at=target.now(), policy=settings.policy, shadow=settings.shadow, model=settings.model))
        self._thread = Thread(target=self._run_loop, args=(self._autopilot,), name="penstock autopilot", daemon=True)
        self._thread.start()

    def _run_loop(self, autopilot: Autopilot) -> None:
        try:
            autopilot.run()
        except PenstockError as problem:
            self._fail(str(problem))
        except Exception as error:  # a defect of the loop must not affect the run
            self._fail(f"a defect of Penstock, {type(error).__name__}: {error}")

    def _fail(self, problem: str) -> None:
        self._problem = f"stopped: {problem}"
        self._run.say(f"the autopilot has stopped: {problem}", "warning")


def attach(
    run: "Run", policy: str | None = None, *, shadow: bool = False, objective: str | None = None, seed: int = 0,
    model: str = "", guard: Guard | None = None,
) -> Pilot:  # fmt: skip
    """Attach a pilot to a run; it is off until a policy is set, here or later with `penstock autopilot`.

    run = ps.run(flow, emulate=cluster)
    pilot = attach(run, "local-search")
    """
    goal = member("objective", Objective, objective or Objective.DELAY).value
    file = _checked(model, run) if model else ""
    settings = AutopilotSettings(policy=None, objective=goal, seed=seed, model=file, shadow=shadow)
    pilot = Pilot(run, settings, guard)
    run.pilot = pilot
    if policy is not None:
        pilot.steer(policy)
    else:
        _note_left(run)
    return pilot


def caution(policy: str | None, model: str, objective: str | None = None, cluster: Cluster | None = None) -> str:
    """Return why a policy's predictions may be wrong; empty if there is no reason.

    A policy that needs predictions may have no latency models, or models trained on another cluster.
    """
    if policy is None:
        return ""
    if model:
        return "" if cluster is None else find_foreign_cluster(model, cluster)
    if policy.partition(":")[0] not in PREDICTIVE:
        return ""
    goal = member("objective", Objective, objective or Objective.DELAY)
    estimate = "network delay" if goal is Objective.DELAY else goal.value
    return f"{policy} has no latency models and uses the estimate of {estimate}; add their file with --model"


def _checked(model: str, run: "Run") -> str:
    """Return the path of a file of latency models; raises if it is damaged or belongs to another application."""
    load_models(model).check(run.application)
    return str(Path(model).absolute())


def _note_left(run: "Run") -> None:
    """Record that the last decision of an earlier driver is no longer in progress.

    Tasks stay in place until an autopilot is on again, which rolls the change back.
    """
    path = run.folder / LEDGER
    ledger = Ledger(path if path.exists() else None)
    if ledger.left is not None and ledger.left.outcome is None:
        number, at = ledger.left.decision.number, run.status().seconds
        ledger.append(DecisionOutcome(number=number, at=at, verdict=UNFINISHED, note=DRIVER_ENDED))
