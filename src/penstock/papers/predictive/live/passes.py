"""Passes: one run in which policies are applied one after another, each from the default placement.

A pass starts with the default placement. Then an autopilot reads, decides with models that were trained before, moves
tasks, measures, and keeps the change or rolls it back, as its guard requires. Before the next pass the default
placement is restored. So policies are compared in one run, with the same workers and host, and each with a default of
its own.
"""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np

from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import Episode, Ledger, LedgerContents
from penstock.autopilot.live_target import LiveTarget
from penstock.experiments.live_cases import is_late, measured_run
from penstock.model.objective import Objective
from penstock.model.plan import Plan, to_plan
from penstock.papers.predictive.live.settings import DEFAULT, SlowedApplication
from penstock.runtime.handle import MovedTask
from penstock.runtime.run import Run

SETTLE_S = 3.0  # at the start, and after the last move
LAST_S = 1.0  # before the moves and before the end, whose tuples would complete afterwards


class Pilots(NamedTuple):
    """The autopilots of a run."""

    policies: Sequence[str]  # in turn
    models: Path
    interval_s: float  # of a reading
    after_s: float  # duration of a pass after its decision


class Pass(NamedTuple):
    """Actions of an autopilot in a run; times are the controller's."""

    run: str
    policy: str
    turn: int  # in its run, from 0
    before: tuple[float, float]
    after: tuple[float, float]
    episodes: list[Episode]
    late: float  # share of readings at which the emulation lagged


class WatchedTarget(LiveTarget):
    """A run as a control target that records when tasks moved and how often the emulation lagged."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.moved: list[tuple[float, float]] = []  # intervals
        self.late: list[bool] = []

    def wait(self, seconds: float) -> None:
        """Wait."""
        super().wait(seconds)
        self.late.append(is_late(self._run))

    def apply(self, plan: Plan) -> list[MovedTask]:
        """Move the tasks whose slots differ in a plan."""
        begin = monotonic()
        outcomes = super().apply(plan)
        self.moved.append((begin, monotonic()))
        return outcomes


def fly(setting: SlowedApplication, pilots: Pilots, runs: Path, seed: int) -> list[Pass]:
    """Start a run and apply one policy after another; its telemetry is below a folder."""
    default = to_plan(
        setting.application, setting.cluster, setting.default, policy=DEFAULT, objective=Objective.DELAY, seed=seed
    )
    found = []
    with measured_run(setting.flow(seed=seed), setting.cluster, runs, seed, plan=default) as run:
        for turn in range(len(pilots.policies)):
            run.apply(default)  # without effect before the first pass
            found.append(_steered(run, setting, pilots, turn, seed))
    return found


def _steered(run: Run, setting: SlowedApplication, pilots: Pilots, turn: int, seed: int) -> Pass:
    """Let one policy decide once, from the current placement."""
    guard = Guard(
        max_moves=sum(one.parallelism for one in setting.application.components),
        interval_s=pilots.interval_s,
        cool_down_s=pilots.interval_s,
    )
    policy = pilots.policies[turn]
    begin = monotonic() + SETTLE_S
    target, ledger = WatchedTarget(run), Ledger()
    target.wait(SETTLE_S)
    target.reading()
    pilot = Autopilot(
        target, AutopilotSettings(policy=policy, model=str(pilots.models), seed=seed), guard=guard, ledger=ledger
    )
    # One decision: the next would be due only after its change has been measured.
    pilot.run(guard.readings * guard.interval_s + SETTLE_S)
    target.wait(pilots.after_s)
    before, after = spans(begin, monotonic() - LAST_S, target.moved)
    return Pass(
        run.info.run, policy, turn, before, after, LedgerContents(ledger.lines).episodes, float(np.mean(target.late))
    )


def spans(
    begin: float, end: float, moved: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the settled intervals before the first and after the last move; without moves, the two halves."""
    if not moved:
        middle = (begin + end) / 2
        return (begin, middle), (middle, end)
    return (begin, moved[0][0] - LAST_S), (moved[-1][1] + SETTLE_S, end)
