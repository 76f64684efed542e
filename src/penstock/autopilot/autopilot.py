"""The autopilot: leads a plant through the steps of the control loop, one decision after another.

It waits, reads, decides, applies and writes down; what to do at each step is said by `deciding`, `guard` and
`measuring`, which know neither a clock nor a file. The policy may be swapped, and shadow mode switched, at any time and
from any thread: that counts from the next decision on. A decision that others have overtaken is not carried out. A
change that is under way is judged in any case, and one that is to be taken back is tried to be until it is: nothing
else is decided before.
"""

from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from statistics import fmean
from threading import Lock

import msgspec

from penstock.autopilot.control_target import ControlTarget, Ended, Reading
from penstock.autopilot.decision import counted, decide, offered
from penstock.autopilot.guard import ATTEMPTS, Anchor, Guard, latencies
from penstock.autopilot.ledger import (
    STUCK,
    UNFINISHED,
    Decision,
    Episode,
    Inputs,
    Ledger,
    Opening,
    Outcome,
    Seen,
    Swap,
    told,
)
from penstock.autopilot.measurement import Measurement, Stage
from penstock.autopilot.moves import Mover
from penstock.autopilot.proposal import Propose, by_policy, checksum
from penstock.autopilot.rollback import DRIVER_ENDED, Owed, changed, is_own, left_to_others
from penstock.model.errors import PenstockError, member
from penstock.model.objective import Objective
from penstock.model.topology import Application
from penstock.runtime.handle import Outcome as Moved

RESTORES = 5  # times that a placement is tried to be restored before that is told; then once every interval


class AutopilotSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How an autopilot decides."""

    policy: str | None  # of the registry, with its parameters; None: off, it only reads
    objective: str = Objective.DELAY.value
    seed: int = 0
    model: str = ""  # the file of latency models
    shadow: bool = False  # decide and record, but do nothing

    def __post_init__(self) -> None:
        member("objective", Objective, self.objective)


class Autopilot:
    """The control loop of one plant."""

    def __init__(
        self,
        plant: ControlTarget,
        settings: AutopilotSettings,
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
        self._anchor: Anchor | None = None
        self._owed: Owed | None = None  # what could not be taken back yet
        self._left = self.ledger.left  # that an earlier driver has
        self._upset_s: float | None = None  # latency to come back to after a change that was taken back
        self._mover = Mover(plant, self.guard.move_s)

    @property
    def settings(self) -> AutopilotSettings:
        """How it decides now."""
        with self._lock:
            return self._settings

    def swap(self, policy: str | None, shadow: bool | None = None, model: str | None = None) -> None:
        """Decide by another policy from the next decision on, None: by none; what else is None stays as it is."""
        told = {"shadow": shadow, "model": model}
        changes = {name: value for name, value in told.items() if value is not None}
        with self._lock:
            self._settings = now = msgspec.structs.replace(self._settings, policy=policy, **changes)
        self.ledger.append(Swap(at=self._plant.now(), policy=now.policy, shadow=now.shadow, model=now.model))

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
        self._clear_up()
        settings = self._observe(until)
        if settings is None:
            return None
        self.state = "deciding"
        decision = self._decide(settings)
        assert self._opening is not None, "a decision has one"
        self.last = episode = Episode(self._opening, decision)
        acts = decision.acts and not decision.shadow
        overtaken = self._mover.overtaken(self._opening, decision) if acts else ""
        if acts and not overtaken:
            episode.outcome = self._act(decision)
        else:
            verdict = "void" if overtaken else "shadow" if decision.acts else "held"
            now = self._plant.now()
            episode.outcome = Outcome(number=decision.number, at=now, verdict=verdict, note=overtaken)
        self._close(episode.outcome, decision, rests=not overtaken)
        self._tell(told(episode))
        return episode

    @property
    def acting(self) -> bool:
        """Whether a change of its own is under way, or still to be taken back."""
        return not self.state.startswith(("observing", "resting", "deciding"))

    def _clear_up(self) -> None:
        """Take back what an earlier driver has left unjudged, unless others have moved tasks since."""
        episode, self._left = self._left, None
        if episode is None:
            return
        decision, began = episode.decision, self._plant.now()
        episode.outcome = Outcome(number=decision.number, at=began, verdict="rolled back", note=DRIVER_ENDED)
        episode.outcome = self._take_back(decision, episode.outcome, began)
        self.last = episode
        self._close(episode.outcome, decision)
        self._tell(told(episode))

    def _observe(self, until: float | None) -> AutopilotSettings | None:
        """Read until it may decide again and has as many readings as it takes, none of them disturbed."""
        while True:
            if self._owed is not None:
                self._take_back_again(self._owed)
            now = self._plant.now()
            settings = self.settings
            if self._owed is None:
                rest = self._rested_at - now
                self.state = "observing" if rest <= 0 else f"resting for {rest:.0f} s more"
                if settings.policy is not None and rest <= 0 and self._is_ready(now):
                    return settings
            if until is not None and now >= until:
                return None
            self._keep(self._read(written=settings.policy is not None))

    def _is_ready(self, now: float) -> bool:
        """Whether there are readings to decide from; of what a bad change left behind, for as long as that lasts, none.

        Where latency does not come back in a measuring interval beyond the rest, something else has changed.
        """
        if len(self._recent) < self.guard.readings:
            return False
        upset = self._upset_s is not None and fmean(latencies(self._recent)) > self._upset_s
        return not upset or now >= self._rested_at + self.guard.measuring_s

    def _read(self, written: bool = True) -> Reading:
        self._plant.wait(self.guard.interval_s)
        reading = self._plant.reading()
        if written:
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

    def _decide(self, settings: AutopilotSettings) -> Decision:
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

    def _inputs(self, settings: AutopilotSettings, application: Application) -> Inputs:
        assert settings.policy is not None, "it is on"
        readings = list(self._recent)
        return Inputs(
            policy=settings.policy,
            objective=settings.objective,
            seed=settings.seed,
            model=settings.model,
            checksum=checksum(settings.model),
            placement=self._plant.placement(),
            rates=offered(application, readings),
            readings=readings,
            held_s=self._mover.held_s,
            guard=self.guard,
            anchor_s=None if self._anchor is None else self._anchor.bound_s,
            placed_by=self._plant.policy,
            routes=self._plant.routes(),
        )

    def _act(self, decision: Decision) -> Outcome:
        """Change the placement, measure, and take the change back unless it is good enough."""
        began = self._plant.now()
        self.state = f"moving {counted(len(decision.moves), 'task')}"
        self._tell(f"decision {decision.number} by {decision.inputs.policy}: {decision.reason}")
        try:
            outcome, stays = self._try(decision, began)
            return outcome if stays else self._take_back(decision, outcome, began)
        except Ended:
            self._leave(decision, began)
            raise
        except BaseException as error:  # a defect, or Ctrl-C: the application must not suffer for that either
            note = f"{type(error).__name__}: {' '.join(str(error).split())}"
            failed = Outcome(number=decision.number, at=began, verdict="failed", note=note)
            try:
                self._close(self._take_back(decision, failed, began), decision)
            except Ended:
                self._leave(decision, began)
            raise

    def _leave(self, decision: Decision, began: float) -> None:
        now = self._plant.now()
        self.ledger.append(Outcome(number=decision.number, at=now, verdict=UNFINISHED, in_force_s=now - began))

    def _try(self, decision: Decision, began: float) -> tuple[Outcome, bool]:
        """Move tasks and measure; return what comes of that, and whether tasks stay where they are."""
        moved: list[Moved] = []
        measurement, voided, problem = None, 0, ""
        try:
            moved = self._mover.carry_out(decision)
            measurement, voided = self._measure(decision, changed(decision))
        except PenstockError as found:
            problem = str(found)
        verdict, note = ("failed", problem) if measurement is None else measurement.verdict()
        now = self._plant.now()
        outcome = Outcome(
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
        return outcome, verdict == "kept" or (measurement is not None and measurement.stage is Stage.MEDDLED)

    def _measure(self, decision: Decision, wanted: Mapping[str, str]) -> tuple[Measurement, int]:
        """Measure a change, again where the plant fails meanwhile; return the last, and how many came to nothing."""
        epoch = decision.inputs.readings[-1].epoch
        deadline = self._plant.now() + self.guard.deadline_s
        for attempt in range(ATTEMPTS):
            measurement = Measurement(self.guard, decision.bound_s, epoch, wanted)
            while measurement.stage in (Stage.SETTLING, Stage.MEASURING):
                self.state = f"{measurement.stage} after decision {decision.number}"
                reading = self._read()
                measurement.take(reading, self._plant.placement())
                if attempt and self._plant.now() >= deadline:
                    measurement.stage = Stage.VOID
            if measurement.stage is not Stage.VOID:
                return measurement, attempt
            self._tell(f"decision {decision.number}: the measurement is void, the run failed or recovered meanwhile")
            found = self._read_until_steady(deadline)
            if found is None:
                return measurement, attempt + 1
            epoch = found
        return measurement, ATTEMPTS

    def _read_until_steady(self, deadline: float) -> int | None:
        """Wait for a plant to run again; return its epoch, None where it does not before the deadline."""
        while self._plant.now() < deadline:
            reading = self._read()
            if reading.steady:
                return reading.epoch
        return None

    def _take_back(self, decision: Decision, outcome: Outcome, began: float) -> Outcome:
        """Put every task and route back as it was, unless others have moved tasks; return the outcome as it is then.

        It is stuck where they could not be put back.
        """
        problem = ""
        for _ in range(RESTORES):
            self.state = "rolling back"
            if not is_own(decision, self._plant.placement(), self._plant.cluster):
                outcome, problem = left_to_others(outcome), ""
                break
            problem = self._mover.put_back(decision)
            if not problem:
                break
            self._tell(f"decision {decision.number}; not all tasks could be put back: {problem}")
            self._plant.wait(self.guard.interval_s)
        now = self._plant.now()
        outcome = msgspec.structs.replace(outcome, at=now, in_force_s=now - began)
        if not problem:
            return outcome
        self._owed = Owed(decision, outcome)
        self.state = f"{STUCK}, not all tasks of decision {decision.number} are back"
        note = "; ".join(filter(None, (outcome.note, f"not all tasks could be put back, tried on: {problem}")))
        return msgspec.structs.replace(outcome, verdict=STUCK, note=note)

    def _take_back_again(self, owed: Owed) -> None:
        """Try once more to take back what could not be, and write down when that is done."""
        decision, outcome, now = owed.decision, owed.outcome, self._plant.now()
        in_force_s = outcome.in_force_s + now - outcome.at
        if not is_own(decision, self._plant.placement(), self._plant.cluster):
            outcome = left_to_others(outcome)
        elif self._mover.put_back(decision):
            return
        self._owed = None
        outcome = msgspec.structs.replace(outcome, at=now, in_force_s=in_force_s)
        self._close(outcome, decision)
        self._tell(f"decision {decision.number}: {outcome.verdict} after all; {outcome.note}")

    def _close(self, outcome: Outcome, decision: Decision, rests: bool = True) -> None:
        """Write an outcome down and say when the next decision may come; unless it rests, with the next readings."""
        anchor = self._anchor or Anchor(decision.before_s, decision.bound_s)
        if outcome.verdict == "kept":
            assert outcome.realised_s is not None, "a change is kept by what was measured"
            self._upset_s, self._setbacks = None, 0
            if outcome.realised_s > decision.before_s:
                self._anchor = anchor.tightened(decision.before_s, decision.bound_s)
            elif outcome.realised_s <= anchor.base_s:
                self._anchor = None
        elif outcome.verdict in ("rolled back", "failed"):
            self._anchor = anchor.tightened(decision.before_s, decision.bound_s)
            self._upset_s = max(decision.bound_s, decision.before_s)
            self._setbacks += 1
        if outcome.verdict not in ("held", "shadow"):
            self._recent.clear()  # they were of another placement
            self._recent.extend(outcome.readings if outcome.verdict == "kept" else [])
        if rests:
            self._rested_at = self._plant.now() + self.guard.rest_s(self._setbacks)
        if self.last is not None and self.last.decision.number == outcome.number:
            self.last.outcome = outcome
        self.ledger.append(outcome)


def _time() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
