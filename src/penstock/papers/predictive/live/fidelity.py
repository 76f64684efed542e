"""The calibrated twin compared with a run: placements visited with live moves, their latency and maximum rate.

The twin is calibrated with the run's telemetry of the first placement only, the default; all others are predicted. It
is compared with TATA's estimator, as in its paper: after a linear fit to the measurements.

The maximum rate is measured in the same manner in both: for some seconds slightly more tuples arrive than a placement
carries, and the output at its sinks is counted. It is compared with the twin's rate with all queues full, which takes
minutes.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from penstock.calibration import Calibration
from penstock.calibration.calibrator import combine
from penstock.calibration.observation import summarise_run
from penstock.estimate.evaluator import Evaluator
from penstock.experiments.figure import Case, Claim, Figure, Row, Value, judged
from penstock.experiments.live_cases import Report, live_session, silent, temporary
from penstock.experiments.live_tuples import Followed, followed
from penstock.experiments.pictures import COLOURS, Axes, Picture, label
from penstock.experiments.slow_motion import Phases, Raised
from penstock.experiments.statistics import fitted, relative_deviation, signed
from penstock.model.costs import Costs
from penstock.model.instance import Instance
from penstock.model.taskgraph import Floats
from penstock.model.topology import Kind
from penstock.papers.predictive.live.claims import LATE, emulated_truly
from penstock.papers.predictive.live.settings import APPLICATIONS, LOAD, SlowedApplication
from penstock.papers.predictive.live.tables import MILLISECOND, carried_tps, latencies_between
from penstock.papers.predictive.live.visits import (
    WINDOW,
    Flood,
    Lengths,
    Timetable,
    Toured,
    Visit,
    named_placements,
    tour,
)
from penstock.papers.predictive.models import rank_correlation
from penstock.sim.events import Twin

PLACES, QUICK_PLACES = 12, 3
FIRST, EACH, FLOODED = Lengths(0.0, 3.0, 24.0), Lengths(4.0, 2.0, 10.0), Lengths(8.0, 4.0, 9.0)
QUICK_FIRST, QUICK_EACH, QUICK_FLOODED = Lengths(0.0, 2.0, 6.0), Lengths(4.0, 1.5, 4.0), Lengths(8.0, 4.0, 6.0)
LAST_S = 1.0  # at the end of a visit, whose tuples would complete after the next moves
OVER = 1.2  # arrivals relative to the twin's maximum rate of a placement, to saturate it
SEEDS = (0, 1, 2)
WARM_S, TWIN_S = 10.0, 120.0  # of virtual time
WANTED_RANK = 0.9
TATA_DEVIATION = 0.067


def _cases(quick: bool) -> Sequence[Case]:
    number = QUICK_PLACES if quick else PLACES
    return [
        {"application": name, "load": LOAD, "placements": number, "quick": quick, "seed": 0} for name in APPLICATIONS
    ]


def run_fidelity(case: Case, report: Report = silent) -> Sequence[Row]:
    """Visit placements of one application; return one row each, with the predictions of twin and estimator."""
    setting = SlowedApplication(str(case["application"]), float(case["load"]))

    def say(what: str) -> None:
        report(f"{setting.name}, {what}")

    say("what placements carry in the twin")
    visited = named_placements(setting, int(case["placements"]), int(case["seed"]))
    declared = Twin(setting.application, setting.cluster, Costs(window=WINDOW))
    most = {place.name: declared.saturated_tps(place.placement.slots) for place in visited}
    floods = [Flood(place, OVER * most[place.name]) for place in reversed(visited)]  # the last one needs no moves
    lengths = (QUICK_FIRST, QUICK_EACH, QUICK_FLOODED) if case["quick"] else (FIRST, EACH, FLOODED)
    with live_session() as spark, temporary() as folder:
        toured = tour(setting, Timetable(visited, floods, *lengths), Path(folder), int(case["seed"]), say)
        say("reading telemetry")
        seen = followed(spark, toured.telemetry, list(sink_gains(declared.instance)))
        calibration = calibrated(spark, setting, toured)
    say("in the twin")
    twin = Twin(setting.application, calibration.cluster, calibration.costs)
    return list(_rows(setting, toured, seen, twin, most, lengths[-1].settle))


def calibrated(spark: SparkSession, setting: SlowedApplication, toured: Toured) -> Calibration:
    """Measure costs from the run's telemetry before its first move."""
    settle = toured.visits[0].end - toured.visits[0].start
    observed = summarise_run(spark, toured.telemetry, settle_s=min(2.0, settle / 2), until="move")
    return combine(setting.application, setting.cluster, observed, None, window=WINDOW)


def _rows(
    setting: SlowedApplication, toured: Toured, seen: Followed, twin: Twin, most: Mapping[str, float], settle: float
) -> Iterator[dict[str, Value]]:
    """Yield one row per visit under load, with the maximum rate if its placement was also saturated."""
    evaluator = Evaluator(setting.application, setting.cluster)
    flooded = {visit.place.name: visit for visit in toured.visits if visit.over_tps is not None}
    for visit in toured.visits:
        if visit.over_tps is not None:
            continue
        under_load = latencies_between(seen.tuples, visit.start, visit.end - LAST_S)
        estimate = evaluator.evaluate(visit.place.placement)
        yield {
            "placement": visit.place.name,
            "machines": estimate.machines,
            "live_ms": under_load.mean_ms,
            "twin_ms": _twin_ms(twin, setting, visit),
            "delay_ms": estimate.delay_ms,
            "half_a_ms": under_load.halves_ms[0],
            "half_b_ms": under_load.halves_ms[1],
            "tuples": under_load.tuples,
            "unfinished": under_load.unfinished,
            "moved_s": visit.moved_s,
            "late": visit.late,
            **_carried(seen.ends, twin, setting, flooded.get(visit.place.name), settle),
            "full_tps": most[visit.place.name],
            "even_tps": estimate.even_tps,
        }


def _twin_ms(twin: Twin, setting: SlowedApplication, visit: Visit) -> float:
    means = []
    for seed in SEEDS:
        run = twin.start(visit.place.placement.slots, rates=setting.application.rate_tps, seed=seed)
        run.advance(WARM_S)
        means.append(run.advance(TWIN_S).mean_s)
    return float(np.mean(means)) / MILLISECOND


def _carried(
    ends: pd.DataFrame, twin: Twin, setting: SlowedApplication, visit: Visit | None, settle: float
) -> dict[str, Value]:
    """Return the output of a saturated placement live, also by halves, and on the twin in the same seconds."""
    if visit is None:
        none = float("nan")
        return {"live_tps": none, "half_a_tps": none, "half_b_tps": none, "twin_tps": none, "held_s": 0.0,
                "flooded_moved_s": none, "flooded_late": 0.0}  # fmt: skip
    gains = sink_gains(twin.instance)
    middle = (visit.start + visit.end) / 2
    return {
        "live_tps": carried_tps(ends, gains, visit.start, visit.end),
        "half_a_tps": carried_tps(ends, gains, visit.start, middle),
        "half_b_tps": carried_tps(ends, gains, middle, visit.end),
        "twin_tps": float(np.mean([_twin_tps(twin, setting, visit, settle, seed) for seed in SEEDS])),
        "held_s": visit.end - visit.start,
        "flooded_moved_s": visit.moved_s,
        "flooded_late": visit.late,
    }


def _twin_tps(twin: Twin, setting: SlowedApplication, visit: Visit, settle: float, seed: int) -> float:
    """Return the twin's output in overload, as `carried_tps` measures it in a run."""
    assert visit.over_tps is not None
    [source] = setting.application.sources
    phases = Phases(setting.rate_tps, (Raised(WARM_S, np.inf, visit.over_tps),))
    run = twin.start(visit.place.placement.slots, rates={source.name: phases}, seed=seed)
    run.advance(WARM_S + settle)
    span = run.advance(visit.end - visit.start)
    tasks = twin.instance.tasks
    names = [twin.instance.topology.components[position].name for position in tasks.position]
    counts = dict(zip(names, np.bincount(tasks.component, span.processed, len(names)).tolist(), strict=True))
    least = min(counts[sink] / gain for sink, gain in sink_gains(twin.instance).items())
    return float(least / span.seconds)


def sink_gains(instance: Instance) -> dict[str, float]:
    """Return the tuples that every sink processes per source tuple."""
    tasks, topology = instance.tasks, instance.topology
    names = [topology.components[position].name for position in tasks.position]
    gains = np.bincount(tasks.component, tasks.gain, len(names))
    return {name: float(gains[number]) for number, name in enumerate(names) if topology[name].kind is Kind.SINK}


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    names = list(dict.fromkeys(rows["application"]))
    picture.set_size_inches(11, 3.8 * len(names))
    axes = picture.subplots(len(names), 3, squeeze=False)
    for line, name in zip(axes, names, strict=True):
        own = rows[rows["application"] == name]
        live = own["live_ms"].to_numpy()
        _scatter(line[0], own["twin_ms"].to_numpy(), live, "twin (ms)", "live (ms)", f"{name}: mean latency")
        fit = fitted(own["delay_ms"].to_numpy(), live)
        _scatter(line[1], fit, live, "TATA's estimator, fitted (ms)", "live (ms)", f"{name}: mean latency")
        filled = own[own["live_tps"].notna()]
        carried = filled["live_tps"].to_numpy()
        _scatter(line[2], filled["twin_tps"].to_numpy(), carried, "twin (tuples/s)", "live (tuples/s)", f"{name}: most")


def _scatter(axis: Axes, across: Floats, up: Floats, across_text: str, up_text: str, title: str) -> None:
    axis.plot(across, up, "o", color=COLOURS[0], markersize=5, markerfacecolor="none")
    ends = [float(min(across.min(), up.min())), float(max(across.max(), up.max()))] if len(up) else [0.0, 1.0]
    axis.plot(ends, ends, color="black", linewidth=0.7)
    label(axis, across_text, up_text, title)


def _claims(rows: pd.DataFrame) -> list[Claim]:
    by_name = {str(name): own for name, own in rows.groupby("application", sort=False)}
    return [*(claim for name, own in by_name.items() for claim in _claims_of(name, own)), _true(rows)]


def _claims_of(name: str, rows: pd.DataFrame) -> Iterator[Claim]:
    live, twin, delay = (rows[column].to_numpy() for column in ("live_ms", "twin_ms", "delay_ms"))
    halves = float(np.mean(np.abs(rows["half_a_ms"] - rows["half_b_ms"]) / rows["live_ms"]))
    noise = f"the two halves of a visit differ by {halves:.1%}"
    rank, off = rank_correlation(twin, live), relative_deviation(twin, live)
    off_fitted = relative_deviation(fitted(twin, live), live)
    tata, tata_rank = relative_deviation(fitted(delay, live), live), rank_correlation(delay, live)
    yield judged(
        f"ours: the calibrated twin ranks {len(rows)} placements of {name} as they are live",
        f"asked: ≥ {WANTED_RANK}",
        f"rank correlation {rank:.3f}; {live.min():.0f} to {live.max():.0f} ms; {noise}",
        f"Spearman's ≥ {WANTED_RANK}",
        rank >= WANTED_RANK,
        "many placements are closer to each other than the noise of a visit",
    )
    yield judged(
        f"ours: the twin's mean latency of {name} deviates by no more than TATA's estimator did in its paper",
        f"{TATA_DEVIATION:.1%} after a linear fit",
        f"{off:.1%} as it is, {signed(float(np.mean(twin / live - 1)))} on average; {off_fitted:.1%} after a fit",
        "mean absolute deviation, without a fit",
        off <= TATA_DEVIATION,
        f"{noise}, and events that the host handles late add to what is seen live",
    )
    yield judged(
        f"TATA's estimator of {name}, after a linear fit",
        f"{TATA_DEVIATION:.1%} mean deviation",
        f"{tata:.1%}, rank correlation {tata_rank:.3f}",
        "at most twice the paper's",
        tata <= 2 * TATA_DEVIATION,
        "it knows the way alone, not what tuples wait where slots and cores are shared",
    )
    yield judged(
        f"ours: the twin of {name} is nearer than TATA's estimator, both after a linear fit",
        "not compared",
        f"{off_fitted:.1%} against {tata:.1%}",
        "a smaller mean deviation",
        off_fitted < tata,
        f"here the way is most of the latency, which both know; {noise}",
    )
    yield from _carried_claims(name, rows[rows["live_tps"].notna()])


def _carried_claims(name: str, rows: pd.DataFrame) -> Iterator[Claim]:
    if rows.empty:
        return
    live, twin, even, full = (rows[name].to_numpy() for name in ("live_tps", "twin_tps", "even_tps", "full_tps"))
    off, mean = relative_deviation(twin, live), float(np.mean(twin / live - 1))
    halves = float(np.mean(np.abs(rows["half_a_tps"] - rows["half_b_tps"]) / rows["live_tps"]))
    late = f"events were late at {rows['flooded_late'].mean():.0%} of looks"
    yield judged(
        f"ours: the most that {len(rows)} placements of {name} carry, in the twin and live",
        f"{TATA_DEVIATION:.1%} for TATA's estimator after a linear fit",
        f"{off:.1%} ({signed(mean)} on average), rank correlation {rank_correlation(twin, live):.3f}; "
        f"{live.min():.0f} to {live.max():.0f} tuples/s; the two halves of a visit differ by {halves:.1%}; "
        f"the twin with full queues {relative_deviation(full, live):.1%}, "
        f"the estimator's split {relative_deviation(even, live):.1%}",
        "mean absolute deviation, without a fit",
        off <= TATA_DEVIATION,
        f"saturated, {late}: the host may be at its limit too",
    )


def _true(rows: pd.DataFrame) -> Claim:
    seen = (
        f"late at {rows['late'].mean():.0%} of looks; unfinished {rows['unfinished'].sum()} of {rows['tuples'].sum()}"
    )
    late = [f"{row.application} {row.placement}" for row in rows[rows["late"] > LATE].itertuples()]
    return emulated_truly(seen, "placement under load", late)


FIDELITY = Figure(
    "fidelity",
    "Live: the calibrated twin beside placements visited in one run",
    _cases,
    run_fidelity,
    _draw,
    _claims,
    live=True,
)
