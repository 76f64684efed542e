"""The paper's five applications on its three machines under each policy: throughput and delay (Fig. 6, Table I).

A run first has the same load for every policy, then more tuples than a placement carries. The throughput is what
sources then emit per second, as in the paper. Delays are those from a tuple's emission until all that follows from it
is processed, of the tuples that ended in the interval: under the load, and at full throughput as in the paper, where
they depend on how many tuples an engine keeps in flight.

A run in which the emulation lagged is repeated; if it lags again, nothing of it is kept but what was predicted: by
planning's estimate and by the twin.
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
from penstock.experiments.pictures import COLOURS, Picture, finish
from penstock.experiments.slow_motion import Phases, Raised
from penstock.model.costs import Costs
from penstock.model.objective import Objective
from penstock.model.placement import Infeasible, Placement
from penstock.model.taskgraph import Floats
from penstock.papers.tata.live.claims import live_claims
from penstock.papers.tata.live.runs import Carried, Placed, carried, running
from penstock.papers.tata.live.settings import APPLICATIONS, LATE, WINDOW, EmulatedApplication, in_flight
from penstock.papers.tata.policies import FLINK, I_STORM, NI, TATA, base, unknown
from penstock.planning.planner import Decision, Planner
from penstock.runtime.config import ALL
from penstock.sim.events import Twin

POLICIES = (FLINK, I_STORM, NI, TATA, "neural", "local-search")
QUICK_APPLICATIONS, QUICK_POLICIES = ("throughput-test",), (FLINK, "local-search")
REPETITIONS, QUICK_REPETITIONS = 1, 1
SETTLE_S, HOLD_S = 6.0, 20.0
QUICK_SETTLE_S, QUICK_HOLD_S = 2.0, 4.0
LOAD = 0.7  # of what the weaker of Flink's and I-Storm's placements carries, by the estimate
OVER = 3.0  # arrivals at full throughput, relative to the estimate for the placement
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
    if why := unknown(policy):
        return [{"skipped": why}]
    plans = planned(name, policy, int(case["seed"]))
    if isinstance(plans.decision.result, Infeasible):
        return [{"skipped": plans.decision.result.reason}]
    expected, late = predicted(name, plans, int(case["seed"])), 0.0
    for attempt in range(TRIES):
        report(f"{name}, {policy}, repetition {int(case['repetition']) + 1}{', again' if attempt else ''}")
        row = _measured(case, plans)
        late = max(float(row["late"]), float(row["full_late"]))
        if late <= LATE:
            return [{"skipped": "", **expected, **row}]
    return [{"skipped": f"the emulation lagged at {late:.0%} of checks", **expected, "late": late}]


def predicted(name: str, plans: Plans, seed: int) -> dict[str, float]:
    """Return what the estimate and the twin predict for a placement; delays of the twin are under the load."""
    setting, placement, evaluation = EmulatedApplication(name), plans.decision.result, plans.decision.evaluation
    assert isinstance(placement, Placement)
    assert evaluation is not None
    application = setting.application
    twin = Twin(application, setting.cluster, Costs(window=WINDOW, in_flight=in_flight(application)))
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


def _measured(case: Case, plans: Plans) -> dict[str, float]:
    """Run a placement under the load and at full throughput."""
    setting, seed = EmulatedApplication(str(case["application"])), int(case["seed"])
    times = Timetable(float(case["settle_s"]), float(case["hold_s"]))
    placement, evaluation = plans.decision.result, plans.decision.evaluation
    assert isinstance(placement, Placement)
    assert evaluation is not None
    over = Raised(times.load_end, times.end + SPARE_S, OVER * evaluation.throughput_tps)
    flow = setting.flow(Phases(plans.load_tps, (over,)), seed)
    limit = in_flight(setting.application)
    parts: list[tuple[float, float, Carried]] = []
    with live_session() as spark, temporary() as folder:
        with running(Placed(flow, setting.cluster, placement, limit, seed, ALL), Path(folder)) as run:
            began = monotonic() - run.status().seconds
            for end in (times.load_end, times.end):
                _sleep_until(began + end - times.hold)
                since = monotonic()
                parts.append((since, began + end, carried(run, began + end)))
        tuples = followed(spark, run.info.telemetry_path, []).tuples
    (load_from, load_to, load), (full_from, full_to, full) = parts
    return {
        "live_tps": full.emitted_tps,
        "sinks_tps": full.received_tps,
        "carried_tps": load.emitted_tps,
        **delays(tuples, load_from, load_to, "load"),
        **delays(tuples, full_from, full_to, "full"),
        "late": load.late,
        "full_late": full.late,
    }


def delays(tuples: pd.DataFrame, since: float, until: float, prefix: str) -> dict[str, float]:
    """Return quantiles of the delays, in ms, of the source tuples that ended between two times, and their number."""
    done = tuples[tuples["complete"] & (tuples["finished"] >= since) & (tuples["finished"] < until)]
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
    axes = picture.subplots(3, 1, sharex=True)
    panels = (("live_tps", "throughput (tuples/s)"), ("full_p99_ms", "p99 at full throughput (ms)"),
              ("load_p99_ms", "p99 at an equal load (ms)"))  # fmt: skip
    width = 0.8 / len(policies)
    for axis, (column, text) in zip(axes, panels, strict=True):
        for number, policy in enumerate(policies):
            own = kept[kept["policy"] == policy].groupby("application")[column]
            across = np.arange(len(names)) + (number - (len(policies) - 1) / 2) * width
            means, lowest, highest = (found.reindex(names).to_numpy() for found in (own.mean(), own.min(), own.max()))
            axis.bar(across, means, width * 0.9, color=COLOURS[number % len(COLOURS)], label=base(policy),
                     yerr=[means - lowest, highest - means], error_kw={"linewidth": 0.8})  # fmt: skip
        finish(axis, "", text, "", legend=axis is axes[0])
    axes[-1].set_xticks(range(len(names)), names, fontsize=8)


LIVE = Figure(
    "live",
    "Live, in slow motion: the paper's applications on machines of 1, 2 and 4 cores",
    _cases,
    run_application,
    _draw,
    live_claims,
    live=True,
)
