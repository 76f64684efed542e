"""Passes: one run in which policies steer one after another, each from the default placement.

A pass begins with the default placement. Then an autopilot of its own reads, decides by models that were trained
before, moves tasks, measures and keeps or takes back, as its guard says. Before the next pass all tasks are put back.
So policies are compared on one run, with the same workers and the same host, and each beside a default of its own.
"""

from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np

from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import Book, Episode, Ledger
from penstock.autopilot.live_target import LiveTarget
from penstock.model.objective import Objective
from penstock.model.plan import Plan, to_plan
from penstock.papers.predictive.live.settings import DEFAULT, Setting
from penstock.papers.predictive.live.visits import is_late
from penstock.runtime.handle import Outcome
from penstock.runtime.run import Run
from penstock.startup.start import start

SETTLE_S = 3.0  # at the beginning, and after the last move
LAST_S = 1.0  # before moves begin, and before the end, whose tuples would end after it


class Pilots(NamedTuple):
    """What steers a run."""

    policies: Sequence[str]  # in turn
    models: Path
    interval_s: float  # of a reading
    after_s: float  # that a pass goes on when all is decided


class Pass(NamedTuple):
    """What an autopilot did in a run; times are the controller's."""

    run: str
    policy: str
    turn: int  # in its run, from 0
    before: tuple[float, float]
    after: tuple[float, float]
    episodes: list[Episode]
    late: float  # share of readings at which the emulation was not true


class WatchedPlant(LiveTarget):
    """A run as a plant, with a note of when tasks moved and of how often the emulation was not true."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.moved: list[tuple[float, float]] = []  # from when to when
        self.late: list[bool] = []

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        super().wait(seconds)
        self.late.append(is_late(self._run))

    def apply(self, plan: Plan) -> list[Outcome]:
        """Move the tasks that a plan puts elsewhere."""
        begin = monotonic()
        outcomes = super().apply(plan)
        self.moved.append((begin, monotonic()))
        return outcomes


def fly(setting: Setting, pilots: Pilots, runs: Path, seed: int) -> list[Pass]:
    """Start a run and let one policy after another steer it; its telemetry is below a folder."""
    default = to_plan(
        setting.application, setting.cluster, setting.default, policy=DEFAULT, objective=Objective.DELAY, seed=seed
    )
    run = start(
        setting.flow(seed=seed), emulate=setting.cluster, plan=default, runs=runs, sample_tps=-1.0, checkpoint_s=0,
        seed=seed,
    )  # fmt: skip
    found = []
    try:
        for turn in range(len(pilots.policies)):
            run.apply(default)  # nothing moves before the first
            found.append(_steered(run, setting, pilots, turn, seed))
    finally:
        run.stop()
    return found


def _steered(run: Run, setting: Setting, pilots: Pilots, turn: int, seed: int) -> Pass:
    """Let one policy decide, once, from where tasks are."""
    guard = Guard(
        max_moves=sum(one.parallelism for one in setting.application.components),
        interval_s=pilots.interval_s,
        cool_down_s=pilots.interval_s,
    )
    policy = pilots.policies[turn]
    begin = monotonic() + SETTLE_S
    plant, ledger = WatchedPlant(run), Ledger()
    plant.wait(SETTLE_S)
    plant.reading()
    pilot = Autopilot(
        plant, AutopilotSettings(policy=policy, model=str(pilots.models), seed=seed), guard=guard, ledger=ledger
    )
    # One decision: the next would be due only when its change has been measured.
    pilot.run(guard.readings * guard.interval_s + SETTLE_S)
    plant.wait(pilots.after_s)
    before, after = spans(begin, monotonic() - LAST_S, plant.moved)
    return Pass(run.info.run, policy, turn, before, after, Book(ledger.lines).episodes, float(np.mean(plant.late)))


def spans(
    begin: float, end: float, moved: Sequence[tuple[float, float]]
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the settled times before the first and after the last move; without any, the two halves."""
    if not moved:
        middle = (begin + end) / 2
        return (begin, middle), (middle, end)
    return (begin, moved[0][0] - LAST_S), (moved[-1][1] + SETTLE_S, end)
