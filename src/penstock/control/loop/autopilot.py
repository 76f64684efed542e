"""The autopilot: leads a plant through the steps of the control loop, one decision after another.

It waits, reads, decides, applies and writes down; what to do at each step is said by `deciding`, `guard` and
`measuring`, which know neither a clock nor a file. The policy may be swapped, and shadow mode switched, at any time and
from any thread: that counts from the next decision on. A change that is under way is judged in any case.
"""

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from statistics import fmean
from threading import Lock

import msgspec

from penstock.control.loop.deciding import decide, offered
from penstock.control.loop.guard import Guard, latencies
from penstock.control.loop.ledger import Decision, Episode, Inputs, Ledger, Opening, Outcome, Seen, Swap
from penstock.control.loop.measuring import Measurement, Stage
from penstock.control.loop.plant import Ended, Plant, Reading
from penstock.control.loop.proposing import Propose, by_policy, plan_of
from penstock.estimate.evaluator import Objective
from penstock.model.errors import PenstockError
from penstock.model.plan import PlannedRoute
from penstock.model.topology import Application
from penstock.runtime.handle import Outcome as Moved

ATTEMPTS = 3  # measurements of a change, where the plant fails during each
RESTORES = 5  # times that a placement is tried to be restored
SEEN_MOVES = 50  # of which the mean time is taken


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How an autopilot decides."""

    policy: str | None  # of the registry, with its parameters; None: off, it only reads
    objective: str = Objective.DELAY.value
    seed: int = 0
    model: str = ""  # the file of latency models
    shadow: bool = False  # decide and record, but do nothing


class Autopilot:
    """The control loop of one plant."""

    def __init__(
        self,
        plant: Plant,
        settings: Settings,
        *,
        guard: Guard | None = None,
        ledger: Ledger | None = None,
        propose: Propose = by_policy,
        tell: Callable[[str], None] = lambda _: None,
        run: str = "",
    ) -> None:
        self.guard = guard or Guard()
        self.ledger = ledger or Ledger()
        self.state = "observing"
        self.last: Episode | None = None
        self._plant = plant
        self._settings = settings
        self._propose = propose
        self._tell = tell
        self._run = run
        self._lock = Lock()  # of the settings
        self._opening: Opening | None = None
        self._recent: deque[Reading] = deque(maxlen=self.guard.readings)
        self._empty = 0  # readings in a row without a latency
        self._rested_at = 0.0
        self._setbacks = 0  # changes in a row that were taken back
        self._anchor_s: float | None = None
        self._upset_s: float | None = None  # latency to come back to after a change that was taken back
        self._held: deque[float] = deque(maxlen=SEEN_MOVES)  # s that moves took

    @property
    def settings(self) -> Settings:
        """How it decides now."""
        with self._lock:
            return self._settings

    def swap(self, policy: str | None, shadow: bool | None = None) -> None:
        """Decide by another policy from the next decision on, None: by none; `shadow` None leaves that as it is."""
        with self._lock:
            changes = {"policy": policy} | ({} if shadow is None else {"shadow": shadow})
            self._settings = msgspec.structs.replace(self._settings, **changes)
            now = self._settings
        self.ledger.append(Swap(at=self._plant.now(), policy=now.policy, shadow=now.shadow))

    def run(self, seconds: float | None = None) -> None:
        """Make decisions until the plant ends or, where given, so many seconds have passed at a decision's end."""
        until = None if seconds is None else self._plant.now() + seconds
        while until is None or self._plant.now() < until:
            try:
                if self.step(until) is None:
                    return
            except Ended:
                return

    def step(self, until: float | None = None) -> Episode | None:
        """Make the next decision, and return it with what became of it; None where it is not due before `until`."""
        settings = self._observe(until)
        if settings is None:
            return None
        self.state = "deciding"
        decision = self._decide(settings)
        assert self._opening is not None, "a decision has one"
        self.last = episode = Episode(self._opening, decision)
        if decision.acts and not decision.shadow:
            episode.outcome = self._act(decision)
        else:
            verdict = "shadow" if decision.acts else "held"
            episode.outcome = Outcome(number=decision.number, at=self._plant.now(), verdict=verdict)
        self._close(episode.outcome, decision)
        self._tell(told(episode))
        return episode

    def _observe(self, until: float | None) -> Settings | None:
        """Read until it may decide again and has as many readings as it takes, none of them disturbed."""
        while True:
            now = self._plant.now()
            self.state = "observing" if now >= self._rested_at else f"resting for {self._rested_at - now:.0f} s more"
            settings = self.settings
            if settings.policy is not None and now >= self._rested_at and self._is_ready(now):
                return settings
            if until is not None and now >= until:
                return None
            self._keep(self._read())

    def _is_ready(self, now: float) -> bool:
        """Whether there are readings to decide from; of what a bad change left behind, for as long as that lasts, none.

        Where latency does not come back in a measuring interval beyond the rest, something else has changed.
        """
        if len(self._recent) < self.guard.readings:
            return False
        upset = self._upset_s is not None and fmean(latencies(self._recent)) > self._upset_s
        return not upset or now >= self._rested_at + self.guard.measuring_s

    def _read(self) -> Reading:
        self._plant.wait(self.guard.interval_s)
        reading = self._plant.reading()
        self.ledger.append(Seen(at=reading.at, reading=reading))
        return reading

    def _keep(self, reading: Reading) -> None:
        if not reading.steady or (self._recent and self._recent[-1].epoch != reading.epoch):
            self._recent.clear()
        if not reading.steady:
            return
        if reading.mean_s is None:
            self._empty += 1
            if self._empty == self.guard.readings:
                self._tell("no latency has been seen, so nothing is decided; are source tuples sampled?")
            return
        self._empty = 0
        self._recent.append(reading)

    def _decide(self, settings: Settings) -> Decision:
        application, cluster = self._plant.application, self._plant.cluster
        opening = self._opening
        if opening is None or (opening.application, opening.cluster) != (application, cluster):
            self._opening = Opening(
                at=self._plant.now(), run=self._run, time=_time(), application=application, cluster=cluster
            )
            self.ledger.append(self._opening)
        decision = decide(
            application,
            cluster,
            self._inputs(settings, application),
            self._propose,
            number=self.ledger.next_number,
            at=self._plant.now(),
            time=_time(),
            shadow=settings.shadow,
        )
        self.ledger.append(decision)
        return decision

    def _inputs(self, settings: Settings, application: Application) -> Inputs:
        assert settings.policy is not None, "it is on"
        readings = list(self._recent)
        return Inputs(
            policy=settings.policy,
            objective=settings.objective,
            seed=settings.seed,
            model=settings.model,
            placement=self._plant.placement(),
            rates=offered(application, readings),
            readings=readings,
            held_s=fmean(self._held) if self._held else self.guard.move_s,
            guard=self.guard,
            anchor_s=self._anchor_s,
        )

    def _act(self, decision: Decision) -> Outcome:
        """Change the placement, measure, and take the change back unless it is good enough."""
        began, policy, routes = self._plant.now(), self._plant.policy, self._plant.routes()
        moved: list[Moved] = []
        self.state = f"moving {len(decision.moves)} tasks"
        self._tell(f"decision {decision.number} by {decision.inputs.policy}: {decision.reason}")
        try:
            moved, measurement, voided, problem = self._try(decision)
            verdict, note = ("failed", problem) if measurement is None else self._judge(measurement, decision)
            if verdict != "kept" and (measurement is None or measurement.stage is not Stage.MEDDLED):
                note += self._restore(decision, policy, routes)
        except Ended:
            self.ledger.append(Outcome(number=decision.number, at=self._plant.now(), verdict="unfinished", moved=moved))
            raise
        return Outcome(
            number=decision.number,
            at=self._plant.now(),
            verdict=verdict,
            note=note,
            realised_s=None if measurement is None else measurement.mean_s,
            readings=[] if measurement is None else measurement.readings,
            voided=voided,
            moved=moved,
            in_force_s=self._plant.now() - began,
        )

    def _try(self, decision: Decision) -> tuple[list[Moved], Measurement | None, int, str]:
        """Move tasks and measure; return no measurement, but what went wrong, where tasks cannot be moved."""
        wanted = decision.inputs.placement | {move.task: move.after for move in decision.moves}
        moved: list[Moved] = []
        try:
            moved = self._move(wanted, decision, decision.inputs.policy)
            measurement, voided = self._measure(decision, wanted)
        except PenstockError as problem:
            return moved, None, 0, str(problem)
        return moved, measurement, voided, ""

    def _measure(self, decision: Decision, wanted: Mapping[str, str]) -> tuple[Measurement, int]:
        """Measure a change, again where the plant fails meanwhile; return the last, and how many came to nothing."""
        epoch = decision.inputs.readings[-1].epoch
        for attempt in range(ATTEMPTS):
            measurement = Measurement(self.guard, decision.bound_s, epoch, wanted)
            while measurement.stage in (Stage.SETTLING, Stage.MEASURING):
                self.state = f"{measurement.stage} after decision {decision.number}"
                reading = self._read()
                measurement.take(reading, self._plant.placement())
            if measurement.stage is not Stage.VOID:
                return measurement, attempt
            self._tell(f"decision {decision.number}: the measurement is void, the run failed or recovered meanwhile")
            epoch = self._read_until_steady()
        return measurement, ATTEMPTS

    def _read_until_steady(self) -> int:
        """Wait for a plant to run again; return its epoch."""
        while not (reading := self._read()).steady:
            pass
        return reading.epoch

    def _judge(self, measurement: Measurement, decision: Decision) -> tuple[str, str]:
        """Return what becomes of a change, and why."""
        if measurement.stage is Stage.MEDDLED:
            return "void", "tasks were moved meanwhile, by somebody else or by a recovery"
        if measurement.stage is Stage.VOID:
            return "void", "the run failed or recovered in every measurement"
        realised, bound = measurement.mean_s, decision.bound_s
        if realised is None:
            return "rolled back", "nothing came to its end any more"
        if measurement.stage is Stage.EXCEEDED or realised > bound:
            return "rolled back", f"{1e3 * realised:.3g} ms is above the bound of {1e3 * bound:.3g} ms"
        return "kept", ""

    def _restore(self, decision: Decision, policy: str, routes: tuple[PlannedRoute, ...]) -> str:
        """Put every task and route back as it was; return what went wrong for good, if anything did."""
        problem = ""
        for _ in range(RESTORES):
            self.state = "rolling back"
            try:
                self._move(decision.inputs.placement, decision, policy, routes)
            except PenstockError as found:
                problem = f"; not all tasks could be put back: {found}"
                self._tell(f"decision {decision.number}{problem}")
                self._plant.wait(self.guard.interval_s)
            else:
                return ""
        return problem

    def _move(
        self, placement: Mapping[str, str], decision: Decision, policy: str, routes: tuple[PlannedRoute, ...] = ()
    ) -> list[Moved]:
        application, cluster = self._plant.application, self._plant.cluster
        goal, seed = decision.inputs.objective, decision.inputs.seed
        plan = plan_of(application, cluster, placement, policy=policy, objective=goal, seed=seed, by=routes)
        moved = self._plant.apply(plan)
        self._held.extend(outcome.seconds for outcome in moved)
        return moved

    def _close(self, outcome: Outcome, decision: Decision) -> None:
        """Write an outcome down and say when the next decision may come."""
        if outcome.verdict == "kept":
            assert outcome.realised_s is not None, "a change is kept by what was measured"
            worse = outcome.realised_s > decision.before_s
            self._anchor_s, self._upset_s = decision.bound_s if worse else None, None
            self._setbacks = 0
        elif outcome.verdict in ("rolled back", "failed"):
            self._anchor_s = self._upset_s = decision.bound_s
            self._setbacks += 1
        if outcome.verdict not in ("held", "shadow"):
            self._recent.clear()  # they were of another placement
            self._recent.extend(outcome.readings if outcome.verdict == "kept" else [])
        self._rested_at = self._plant.now() + self.guard.rest_s(self._setbacks)
        self.ledger.append(outcome)


def told(episode: Episode) -> str:
    """Say in a line what was decided and what became of it."""
    decision, outcome = episode.decision, episode.outcome
    text = f"decision {decision.number} by {decision.inputs.policy}: {episode.verdict}"
    if outcome is None or outcome.verdict in ("held", "shadow"):
        return f"{text}, {decision.reason}"
    if outcome.realised_s is not None:
        change = outcome.realised_s / decision.before_s - 1
        text += f", latency {1e3 * decision.before_s:.3g} ms before, {1e3 * outcome.realised_s:.3g} ms now"
        text += f" ({change:+.1%}, predicted {-decision.gain:+.1%})"
    return text + (f"; {outcome.note}" if outcome.note else "")


def _time() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
