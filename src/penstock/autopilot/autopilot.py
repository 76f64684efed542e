"""The autopilot takes a target through the steps of the control loop, one decision after another.

It waits, reads, decides, applies and records; `decision` and `guard` determine each step and use neither
a clock nor files. The policy and shadow mode may be changed at any time, from any thread, and take effect with the next
decision. A decision is not applied if the placement has changed in the meantime. A change in progress is always judged.
If it has to be rolled back, the rollback is retried until it succeeds; no decision is made before that.
"""

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from statistics import fmean
from threading import Lock

import msgspec

from penstock.autopilot.control_target import ControlTarget, Reading, TargetEnded
from penstock.autopilot.decision import estimate_offered_rates, format_count, make_decision
from penstock.autopilot.guard import ATTEMPTS, Anchor, Guard, Measurement, Stage, mean_latencies
from penstock.autopilot.ledger import (
    STUCK,
    UNFINISHED,
    Decision,
    DecisionOutcome,
    Episode,
    Inputs,
    Ledger,
    Opening,
    ReadingRecord,
    Swap,
    describe_episode,
)
from penstock.autopilot.moves import DRIVER_ENDED, Mover, PendingRollback, is_own, leave_to_others, placement_after
from penstock.autopilot.proposal import Proposer, checksum_models, propose_with_policy
from penstock.model.errors import PenstockError, member
from penstock.model.objective import Objective
from penstock.model.topology import Application
from penstock.runtime.handle import MovedTask

RESTORES = 5  # attempts at a rollback before the failure is reported; then one per interval


class AutopilotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an autopilot decides."""

    policy: str | None  # registered name with parameters; None: off, readings only
    objective: str = Objective.DELAY.value
    seed: int = 0
    model: str = ""  # file of latency models
    shadow: bool = False  # decide and record, but apply nothing

    def __post_init__(self) -> None:
        member("objective", Objective, self.objective)


class Autopilot:
    """The control loop of one target."""

    def __init__(
        self,
        target: ControlTarget,
        settings: AutopilotSettings,
        *,
        guard: Guard | None = None,
        ledger: Ledger | None = None,
        propose: Proposer = propose_with_policy,
        report: Callable[[str], None] = lambda _: None,
        run: str = "",
    ) -> None:
        self.guard = guard or Guard()
        self.ledger = ledger or Ledger()
        self.state = "observing"
        self.last: Episode | None = None
        self._target = target
        self._settings = settings
        self._propose = propose
        self._report = report
        self._run = run
        self._lock = Lock()  # guards the settings
        self._opening: Opening | None = None
        self._recent: deque[Reading] = deque(maxlen=self.guard.readings)
        self._empty = 0  # consecutive readings without a latency
        self._ready_at = 0.0
        self._setbacks = 0  # consecutive changes that were rolled back
        self._anchor: Anchor | None = None
        self._pending: PendingRollback | None = None  # a rollback that has not succeeded yet
        self._unjudged = self.ledger.left  # unjudged change of an earlier driver
        self._recovery_s: float | None = None  # latency to return to after a rollback
        self._mover = Mover(target, self.guard.move_s)

    @property
    def settings(self) -> AutopilotSettings:
        """The current settings."""
        with self._lock:
            return self._settings

    def swap(self, policy: str | None, shadow: bool | None = None, model: str | None = None) -> None:
        """Change the settings from the next decision on. policy None: off; shadow or model None: unchanged."""
        named = {"shadow": shadow, "model": model}
        changes = {name: value for name, value in named.items() if value is not None}
        with self._lock:
            self._settings = now = msgspec.structs.replace(self._settings, policy=policy, **changes)
        self.ledger.append(Swap(at=self._target.now(), policy=now.policy, shadow=now.shadow, model=now.model))

    def run(self, seconds: float | None = None) -> None:
        """Make decisions until the target ends or, if `seconds` is set, the decision after that time has ended."""
        until = None if seconds is None else self._target.now() + seconds
        while until is None or self._target.now() < until:
            try:
                if self.step(until) is None:
                    return
            except TargetEnded:
                return

    def step(self, until: float | None = None) -> Episode | None:
        """Make the next decision and return it with its outcome; None if none is due before `until`."""
        self._roll_back_unjudged()
        settings = self._observe(until)
        if settings is None:
            return None
        self.state = "deciding"
        decision = self._decide(settings)
        assert self._opening is not None, "written before the first decision"
        self.last = episode = Episode(self._opening, decision)
        acts = decision.acts and not decision.shadow
        find_conflict = self._mover.find_conflict(self._opening, decision) if acts else ""
        if acts and not find_conflict:
            episode.outcome = self._apply(decision)
        else:
            verdict = "void" if find_conflict else "shadow" if decision.acts else "held"
            now = self._target.now()
            episode.outcome = DecisionOutcome(number=decision.number, at=now, verdict=verdict, note=find_conflict)
        self._close(episode.outcome, decision, cools_down=not find_conflict)
        self._report(describe_episode(episode))
        return episode

    @property
    def acting(self) -> bool:
        """Whether a change of its own is in progress or still has to be rolled back."""
        return not self.state.startswith(("observing", "resting", "deciding"))

    def _roll_back_unjudged(self) -> None:
        """Roll back a change that an earlier driver left unjudged, unless others have moved tasks since."""
        episode, self._unjudged = self._unjudged, None
        if episode is None:
            return
        decision, began = episode.decision, self._target.now()
        episode.outcome = DecisionOutcome(number=decision.number, at=began, verdict="rolled back", note=DRIVER_ENDED)
        episode.outcome = self._roll_back(decision, episode.outcome, began)
        self.last = episode
        self._close(episode.outcome, decision)
        self._report(describe_episode(episode))

    def _observe(self, until: float | None) -> AutopilotSettings | None:
        """Read until a decision may be made from enough undisturbed readings."""
        while True:
            if self._pending is not None:
                self._retry_rollback(self._pending)
            now = self._target.now()
            settings = self.settings
            if self._pending is None:
                remaining = self._ready_at - now
                self.state = "observing" if remaining <= 0 else f"cooling down for {remaining:.0f} s"
                if settings.policy is not None and remaining <= 0 and self._is_ready(now):
                    return settings
            if until is not None and now >= until:
                return None
            self._record(self._read(written=settings.policy is not None))

    def _is_ready(self, now: float) -> bool:
        """Return whether enough readings are available that are not affected by a change that was rolled back.

        If latency has not recovered one measuring interval after the cool-down, something else must have changed.
        """
        if len(self._recent) < self.guard.readings:
            return False
        upset = self._recovery_s is not None and fmean(mean_latencies(self._recent)) > self._recovery_s
        return not upset or now >= self._ready_at + self.guard.measuring_s

    def _read(self, written: bool = True) -> Reading:
        self._target.wait(self.guard.interval_s)
        reading = self._target.reading()
        if written:
            self.ledger.append(ReadingRecord(at=reading.at, reading=reading))
        return reading

    def _record(self, reading: Reading) -> None:
        if not reading.steady or (self._recent and self._recent[-1].epoch != reading.epoch):
            self._recent.clear()
        if not reading.steady:
            return
        if reading.mean_s is None:
            self._empty += 1
            if self._empty == self.guard.readings:
                self._report("no decision: no latency was measured; are source tuples sampled?")
            return
        self._empty = 0
        self._recent.append(reading)

    def _decide(self, settings: AutopilotSettings) -> Decision:
        application, cluster = self._target.application, self._target.cluster
        opening = self._opening
        if opening is None or (opening.application, opening.cluster) != (application, cluster):
            self._opening = Opening(
                at=self._target.now(), run=self._run, time=_time(), application=application, cluster=cluster
            )
            self.ledger.append(self._opening)
        decision = make_decision(
            application,
            cluster,
            self._inputs(settings, application),
            self._propose,
            number=self.ledger.next_number,
            at=self._target.now(),
            time=_time(),
            shadow=settings.shadow,
        )
        self.ledger.append(decision)
        return decision

    def _inputs(self, settings: AutopilotSettings, application: Application) -> Inputs:
        assert settings.policy is not None, "the autopilot is on"
        readings = list(self._recent)
        return Inputs(
            policy=settings.policy,
            objective=settings.objective,
            seed=settings.seed,
            model=settings.model,
            checksum=checksum_models(settings.model),
            placement=self._target.placement(),
            rates=estimate_offered_rates(application, readings),
            readings=readings,
            held_s=self._mover.held_s,
            guard=self.guard,
            anchor_s=None if self._anchor is None else self._anchor.bound_s,
            placed_by=self._target.policy,
            routes=self._target.routes(),
        )

    def _apply(self, decision: Decision) -> DecisionOutcome:
        """Change the placement, measure the effect, and roll the change back unless it is good enough."""
        began = self._target.now()
        self.state = f"moving {format_count(len(decision.moves), 'task')}"
        self._report(f"decision {decision.number} by {decision.inputs.policy}: {decision.reason}")
        try:
            outcome, stays = self._try(decision, began)
            return outcome if stays else self._roll_back(decision, outcome, began)
        except TargetEnded:
            self._roll_back_defect(decision, began)
            raise
        except BaseException as error:  # a defect or Ctrl-C must not leave the application with an unjudged change
            note = f"{type(error).__name__}: {' '.join(str(error).split())}"
            failed = DecisionOutcome(number=decision.number, at=began, verdict="failed", note=note)
            try:
                self._close(self._roll_back(decision, failed, began), decision)
            except TargetEnded:
                self._roll_back_defect(decision, began)
            raise

    def _roll_back_defect(self, decision: Decision, began: float) -> None:
        now = self._target.now()
        self.ledger.append(DecisionOutcome(number=decision.number, at=now, verdict=UNFINISHED, in_force_s=now - began))

    def _try(self, decision: Decision, began: float) -> tuple[DecisionOutcome, bool]:
        """Move tasks and measure; return the outcome, and whether tasks stay where they are."""
        moved: list[MovedTask] = []
        measurement, voided, problem = None, 0, ""
        try:
            moved = self._mover.apply_decision(decision)
            measurement, voided = self._measure(decision, placement_after(decision))
        except PenstockError as found:
            problem = str(found)
        verdict, note = ("failed", problem) if measurement is None else measurement.verdict()
        now = self._target.now()
        outcome = DecisionOutcome(
            number=decision.number,
            at=now,
            verdict=verdict,
            note=note,
            realised_s=None if measurement is None else measurement.mean_s,
            readings=[] if measurement is None else measurement.readings,
            voided=voided,
            moved=moved,
            in_force_s=now - began,
        )
        return outcome, verdict == "kept" or (measurement is not None and measurement.stage is Stage.INTERFERED)

    def _measure(self, decision: Decision, wanted: Mapping[str, str]) -> tuple[Measurement, int]:
        """Measure a change, again if the target fails meanwhile; return the last measurement and the number voided."""
        epoch = decision.inputs.readings[-1].epoch
        deadline = self._target.now() + self.guard.deadline_s
        for attempt in range(ATTEMPTS):
            measurement = Measurement(self.guard, decision.bound_s, epoch, wanted)
            while measurement.stage in (Stage.SETTLING, Stage.MEASURING):
                self.state = f"{measurement.stage} after decision {decision.number}"
                reading = self._read()
                measurement.take(reading, self._target.placement())
                if attempt and self._target.now() >= deadline:
                    measurement.stage = Stage.VOID
            if measurement.stage is not Stage.VOID:
                return measurement, attempt
            self._report(f"decision {decision.number}: measurement void, because the run failed or recovered")
            found = self._read_until_steady(deadline)
            if found is None:
                return measurement, attempt + 1
            epoch = found
        return measurement, ATTEMPTS

    def _read_until_steady(self, deadline: float) -> int | None:
        """Wait until the target runs again and return its epoch; None if it does not before the deadline."""
        while self._target.now() < deadline:
            reading = self._read()
            if reading.steady:
                return reading.epoch
        return None

    def _roll_back(self, decision: Decision, outcome: DecisionOutcome, began: float) -> DecisionOutcome:
        """Restore the previous placement and routes, unless others have moved tasks; return the resulting outcome.

        The outcome is `stuck` if they could not be restored.
        """
        problem = ""
        for _ in range(RESTORES):
            self.state = "rolling back"
            if not is_own(decision, self._target.placement(), self._target.cluster):
                outcome, problem = leave_to_others(outcome), ""
                break
            problem = self._mover.restore_tasks(decision)
            if not problem:
                break
            self._report(f"decision {decision.number}: not all tasks could be rolled back: {problem}")
            self._target.wait(self.guard.interval_s)
        now = self._target.now()
        outcome = msgspec.structs.replace(outcome, at=now, in_force_s=now - began)
        if not problem:
            return outcome
        self._pending = PendingRollback(decision, outcome)
        self.state = f"{STUCK}, not all tasks of decision {decision.number} are rolled back"
        note = "; ".join(filter(None, (outcome.note, f"rollback incomplete, retrying: {problem}")))
        return msgspec.structs.replace(outcome, verdict=STUCK, note=note)

    def _retry_rollback(self, pending: PendingRollback) -> None:
        """Retry an incomplete rollback, and record it when it is done."""
        decision, outcome, now = pending.decision, pending.outcome, self._target.now()
        in_force_s = outcome.in_force_s + now - outcome.at
        if not is_own(decision, self._target.placement(), self._target.cluster):
            outcome = leave_to_others(outcome)
        elif self._mover.restore_tasks(decision):
            return
        self._pending = None
        outcome = msgspec.structs.replace(outcome, at=now, in_force_s=in_force_s)
        self._close(outcome, decision)
        self._report(f"decision {decision.number}: finally {outcome.verdict}; {outcome.note}")

    def _close(self, outcome: DecisionOutcome, decision: Decision, cools_down: bool = True) -> None:
        """Record an outcome and set the time of the next decision; without `cools_down`, at the next readings."""
        anchor = self._anchor or Anchor(decision.before_s, decision.bound_s)
        if outcome.verdict == "kept":
            assert outcome.realised_s is not None, "only a measured change is kept"
            self._recovery_s, self._setbacks = None, 0
            if outcome.realised_s > decision.before_s:
                self._anchor = anchor.tightened(decision.before_s, decision.bound_s)
            elif outcome.realised_s <= anchor.base_s:
                self._anchor = None
        elif outcome.verdict in ("rolled back", "failed"):
            self._anchor = anchor.tightened(decision.before_s, decision.bound_s)
            self._recovery_s = max(decision.bound_s, decision.before_s)
            self._setbacks += 1
        if outcome.verdict not in ("held", "shadow"):
            self._recent.clear()  # they belong to another placement
            self._recent.extend(outcome.readings if outcome.verdict == "kept" else [])
        if cools_down:
            self._ready_at = self._target.now() + self.guard.pause_s(self._setbacks)
        if self.last is not None and self.last.decision.number == outcome.number:
            self.last.outcome = outcome
        self.ledger.append(outcome)


def _time() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
