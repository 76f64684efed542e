"""The paper's five applications on its three machines under each policy: throughput and delay (Fig. 6, Table I).

A run first has the same load for every policy, then a little more than the placement carries. The throughput is the
number of source tuples per second that are then processed to their end. Delays are those under the load, from a tuple's
emission until all that follows from it is processed.

Everything runs twice: on a manual clock (columns `run_`), and live on Spark (`live_`) if the host has a core to spare.
A live run in which the emulation lagged is repeated; if it lags again, nothing of it is kept. Claims about policies go
by the manual clock.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Figure, Row
from penstock.experiments.live_cases import Report, live_session, silent, temporary
from penstock.experiments.live_tuples import followed
from penstock.experiments.pictures import COLOURS, Picture, bars_beside, finish
from penstock.experiments.slow_motion import Phases, Raised
from penstock.model.costs import Costs
from penstock.model.objective import Objective
from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Floats
from penstock.papers.tata.live.claims import live_claims
from penstock.papers.tata.live.runs import Placed, carried, host_is_busy, running
from penstock.papers.tata.live.settings import APPLICATIONS, LATE, OVER, WINDOW, EmulatedApplication
from penstock.papers.tata.live.stepped import Part, stepped
from penstock.papers.tata.policies import FLINK, I_STORM, NI, TATA, base
from penstock.planning.planner import Decision, Planner
from penstock.runtime.config import ALL
from penstock.sim.events import Twin

POLICIES = (FLINK, I_STORM, NI, TATA, "neural", "local-search")
QUICK_APPLICATIONS, QUICK_POLICIES = ("throughput-test",), (FLINK, "local-search")
REPETITIONS, QUICK_REPETITIONS = 1, 1
SETTLE_S, HOLD_S = 6.0, 20.0
QUICK_SETTLE_S, QUICK_HOLD_S = 2.0, 4.0
LOAD = 0.7  # of what the weaker of Flink's and I-Storm's placements carries, by the estimate
SPARE_S = 5.0  # by which overload lasts longer than it is looked at
TRIES = 2
TWIN_WARM_S, TWIN_S = 20.0, 600.0  # of virtual time
QUANTILES = (95, 98, 99)


def _cases(quick: bool) -> Sequence[Case]:
    names, policies = (QUICK_APPLICATIONS, QUICK_POLICIES) if quick else (tuple(APPLICATIONS), POLICIES)
    settle_s, hold_s = (QUICK_SETTLE_S, QUICK_HOLD_S) if quick else (SETTLE_S, HOLD_S)
    return [
        {"application": name, "policy": policy, "repetition": repetition, "settle_s": settle_s, "hold_s": hold_s,
         "seed": repetition}
        for repetition in range(QUICK_REPETITIONS if quick else REPETITIONS)
        for name in names
        for policy in policies
    ]  # fmt: skip


class Plans(NamedTuple):
    """The decision of a policy, and the load that all policies have."""

    decision: Decision
    load_tps: float


@cache
def _planner(name: str, seed: int) -> Planner:
    setting = EmulatedApplication(name)
    return Planner(setting.application, setting.cluster, Objective.BALANCED, seed)


def planned(name: str, policy: str, seed: int) -> Plans:
    """Ask a policy for its placement of an application."""
    planner = _planner(name, seed)
    weaker = [e.throughput_tps for one in (FLINK, I_STORM) if (e := planner.decide(one).evaluation) is not None]
    return Plans(planner.decide(policy), LOAD * min(weaker))


def run_application(case: Case, report: Report = silent) -> Sequence[Row]:
    """Run one application under one policy; return a row, which states why if nothing was measured."""
    name, policy = str(case["application"]), str(case["policy"])
    plans = planned(name, policy, int(case["seed"]))
    if isinstance(plans.decision.result, Infeasible):
        return [{"skipped": plans.decision.result.reason}]
    report(f"{name}, {policy}, on a manual clock")
    expected = predicted(name, plans, int(case["seed"]))
    placed, times = _placed(case, plans, OVER * expected["twin_tps"]), _times(case)
    on_clock = _row(times, stepped(placed, *times.parts).tuples, "run")
    row: dict[str, str | float] = {"skipped": "", **expected, **on_clock}
    late = float("nan")
    for attempt in range(0 if host_is_busy() else TRIES):
        report(f"{name}, {policy}, live{', again' if attempt else ''}")
        found = _live(placed, times)
        if (late := found["live_late"]) <= LATE:
            return [{**row, **found}]
    nothing = {column.replace("run_", "live_", 1): float("nan") for column in row if column.startswith("run_")}
    return [{**row, **nothing, "live_late": late}]


def predicted(name: str, plans: Plans, seed: int) -> dict[str, float]:
    """Return what the estimate and the twin predict for a placement; delays of the twin are under the load."""
    setting, placement, evaluation = EmulatedApplication(name), plans.decision.result, plans.decision.evaluation
    assert isinstance(placement, Placement)
    assert evaluation is not None
    application = setting.application
    twin = Twin(application, setting.cluster, Costs(window=WINDOW))
    run = twin.start(placement.slots, rates={source.name: plans.load_tps for source in application.sources}, seed=seed)
    run.advance(TWIN_WARM_S)
    taken = 1e3 * run.advance(TWIN_S).latencies
    return {
        "slower": setting.slower,
        "load_tps": plans.load_tps,
        "estimate_tps": evaluation.throughput_tps,
        "twin_tps": twin.saturated_tps(placement.slots, seed),
        "delay_ms": evaluation.delay_ms,
        **{f"twin_p{quantile}_ms": _percentile(taken, quantile) for quantile in QUANTILES},
        "machines": evaluation.machines,
        "slots": evaluation.slots,
        "decided_ms": 1e3 * plans.decision.seconds,
    }


class Timetable(NamedTuple):
    """A run's intervals in seconds: under the load, then at full throughput, each after the same time to settle."""

    settle: float
    hold: float

    @property
    def load_end(self) -> float:
        """The end of the load, and the begin of the overload."""
        return self.settle + self.hold

    @property
    def end(self) -> float:
        """The end of the run."""
        return 2 * self.load_end

    @property
    def parts(self) -> tuple[Part, Part]:
        """The intervals that count."""
        return Part(self.settle, self.load_end), Part(self.end - self.hold, self.end)


def _placed(case: Case, plans: Plans, over_tps: float) -> Placed:
    """Return the application with its arrivals, and its placement."""
    setting, times, placement = EmulatedApplication(str(case["application"])), _times(case), plans.decision.result
    assert isinstance(placement, Placement)
    over = Raised(times.load_end, times.end + SPARE_S, over_tps)
    flow = setting.flow(Phases(plans.load_tps, (over,)), int(case["seed"]))
    return Placed(flow, setting.cluster, placement, int(case["seed"]), ALL)


def _times(case: Case) -> Timetable:
    return Timetable(float(case["settle_s"]), float(case["hold_s"]))


def _live(placed: Placed, times: Timetable) -> dict[str, float]:
    """Run a placement live under the load and in overload."""
    late = []
    with live_session() as spark, temporary() as folder:
        with running(placed, Path(folder)) as run:
            began = monotonic() - run.status().seconds
            for part in times.parts:
                _sleep_until(began + part.begin)
                late.append(carried(run, began + part.end).late)
        tuples = followed(spark, run.info.telemetry_path, []).tuples
    moved = tuples.assign(emitted=tuples["emitted"] - began, finished=tuples["finished"] - began)
    return {**_row(times, moved, "live"), "live_late": max(late)}


def _row(times: Timetable, tuples: pd.DataFrame, prefix: str) -> dict[str, float]:
    """Return the delays under the load, and the source tuples that ended per second in overload."""
    load, over = times.parts
    ended = _ended(tuples, over)
    return {f"{prefix}_tps": len(ended) / (over.end - over.begin), **delays(tuples, load, prefix)}


def _ended(tuples: pd.DataFrame, part: Part) -> pd.DataFrame:
    return tuples[tuples["complete"] & (tuples["finished"] >= part.begin) & (tuples["finished"] < part.end)]


def delays(tuples: pd.DataFrame, part: Part, prefix: str) -> dict[str, float]:
    """Return quantiles of the delays, in ms, of the source tuples that ended in an interval, and their number."""
    done = _ended(tuples, part)
    taken = 1e3 * (done["finished"] - done["emitted"]).dropna().to_numpy()
    found = {f"{prefix}_p{quantile}_ms": _percentile(taken, quantile) for quantile in QUANTILES}
    return {**found, f"{prefix}_tuples": float(len(taken))}


def _percentile(values: Floats, quantile: int) -> float:
    return float(np.percentile(values, quantile)) if len(values) else float("nan")


def _sleep_until(when: float) -> None:
    sleep(max(0.0, when - monotonic()))


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    kept = rows[rows["skipped"] == ""]
    if kept.empty:
        picture.text(0.5, 0.5, "no run was measured", ha="center")
        return
    policies, names = list(dict.fromkeys(kept["policy"])), list(dict.fromkeys(kept["application"]))
    picture.set_size_inches(11, 7)
    axes = picture.subplots(2, 1, sharex=True)
    panels = (("run_tps", "throughput (tuples/s)"), ("run_p99_ms", "p99 at an equal load (ms)"))  # fmt: skip
    for axis, (column, text) in zip(axes, panels, strict=True):
        for number, policy in enumerate(policies):
            own = kept[kept["policy"] == policy].groupby("application")[column]
            means, lowest, highest = (found.reindex(names).to_numpy() for found in (own.mean(), own.min(), own.max()))
            look = {"color": COLOURS[number % len(COLOURS)], "label": base(policy)}
            bars_beside(axis, number, len(policies), means, yerr=[means - lowest, highest - means], **look)
        finish(axis, "", text, "", legend=axis is axes[0])
    axes[-1].set_xticks(range(len(names)), names, fontsize=8)


LIVE = Figure(
    "live",
    "The paper's applications on machines of 1, 2 and 4 cores, in slow motion",
    _cases,
    run_application,
    _draw,
    live_claims,
    live=True,
)
