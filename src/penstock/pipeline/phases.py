"""Phases: a run is divided at its changes, so that before and after can be compared.

Events named `phase` divide a run, with the phase's name as detail. A run without them is divided by `apply` (detail:
the policy), `move`, and `switch` (detail: the new tuple policies). A plan is applied from `applying` until `apply` or
`apply failed`: the moves in between belong to it, so its phase starts before the first of them, however long they take.
After a change a run needs time to settle, which belongs to no phase.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind
from penstock.pipeline.clocks import on_controller_clock

NAMED = "phase"
APPLYING, APPLIED = "applying", ("apply", "apply failed")
CHANGES = (APPLYING, *APPLIED, "move", "switch")
ENDS = ("drain", "stop")
INCOMPLETE = " (incomplete)"  # after the name of a plan that failed, or that the end of the run interrupted
NONE = "none"  # detail of a switch after which no tuple policy is in force


class Event(NamedTuple):
    """An event on the controller's clock."""

    at: float
    event: str
    detail: str | None = None


class Phase(NamedTuple):
    """An interval of a run without changes; measurements count from `settled` to `end`."""

    number: int
    name: str
    start: float
    settled: float
    end: float

    @property
    def seconds(self) -> float:
        """Duration of the part that counts."""
        return self.end - self.settled


def events(good: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return the events that divide a run, one row each, on the controller's clock."""
    wanted = (sf.col("kind") == RecordKind.EVENT.value) & sf.col("event").isin(NAMED, *CHANGES, *ENDS)
    return on_controller_clock(good.where(wanted), clocks, ("at",)).select("at", "event", "detail").orderBy("at")


def divide_into_phases(happened: Sequence[Event], start: float, end: float, settle_s: float, first: str) -> list[Phase]:
    """Divide a run from `start` to `end` into phases; `first` names phases that no event names.

    Changes within `settle_s` of each other are one change. A phase settles for `settle_s` after its last change, but
    for half of its duration at most, so that a short one is not lost.
    """
    happened = sorted(happened, key=lambda event: (event.at, event.event != APPLYING))
    end = min([end, *(event.at for event in happened if event.event in ENDS and event.at > start)])
    changes = _joined([event for event in happened if event.event in (NAMED, *CHANGES) and event.at < end])
    named = [change.event for change in changes if change.event.event == NAMED]
    starts = [(max(event.at, start), event.detail or NAMED) for event in named] or _unnamed(
        changes, start, settle_s, first
    )
    phases = []
    for number, (begun, name) in enumerate(starts):
        until = starts[number + 1][0] if number + 1 < len(starts) else end
        last = _last_of_chain(changes, begun, settle_s)
        phases.append(Phase(number, name, begun, min(last + settle_s, (begun + until) / 2), until))
    return phases


def phase_of(time: str, phases: Sequence[Phase]) -> Column:
    """Return the number of the phase whose settled part contains a time; null if there is none."""
    found = sf.lit(None).cast("int")
    for phase in phases:
        inside = (sf.col(time) >= phase.settled) & (sf.col(time) < phase.end)
        found = sf.when(inside, phase.number).otherwise(found)
    return found


class _Change(NamedTuple):
    """An event that changes a run."""

    event: Event
    joined: bool  # whether it is part of a plan whose application started before


def _joined(changes: Sequence[Event]) -> list[_Change]:
    made, applying = [], False
    for event in changes:
        made.append(_Change(event, applying and event.event != APPLYING))
        applying = event.event == APPLYING or (applying and event.event not in APPLIED)
    return made


def _unnamed(changes: Sequence[_Change], start: float, settle_s: float, first: str) -> list[tuple[float, str]]:
    """Return the starts of phases defined only by changes, each named by the last change of every kind."""
    starts = [(start, first)]
    last: float = start
    made: dict[str, str] = {}  # by kind, the change at the start of the phase
    for change, joined in changes:
        again = (joined or change.at - last <= settle_s) and len(starts) > 1
        if again or change.at > start:
            made = {**(made if again else {}), change.event: change.detail or ""}
            starts = [*starts[: -1 if again else None], (starts[-1][0] if again else change.at, _named(made))]
        last = max(last, change.at)
    return starts


def _named(made: Mapping[str, str]) -> str:
    """Name a phase by its changes: a plan and tuple policies, whatever moves came with them, or the last move.

    A plan that was not applied completely may have moved some of its tasks; its name says so.
    """
    plans = [name for name in ("apply", "apply failed", APPLYING) if name in made]
    if not plans and "switch" not in made:
        return " ".join(filter(None, ("move", made["move"])))
    plan = made[plans[0]] or "apply" if plans else ""
    plan += INCOMPLETE if plans and plans[0] != "apply" else ""
    tuples = made["switch"] or "other tuple policies" if "switch" in made else ""
    tuples = "no tuple policies" if tuples == NONE else tuples
    return " with ".join(filter(None, (plan, tuples)))


def _last_of_chain(changes: Sequence[_Change], begun: float, settle_s: float) -> float:
    last = begun
    for event, joined in changes:
        if event.at >= last and not (joined or event.at <= last + settle_s):
            break
        last = max(last, event.at)
    return last
