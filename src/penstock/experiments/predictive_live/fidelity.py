"""The calibrated twin beside a run: placements visited by live moves, their latency and the most that they carry.

The twin is calibrated by what the run's telemetry says of the first placement alone, the default; all others are
predicted. TATA's estimator stands beside it, as its paper has it: after a linear fit to what was measured.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from penstock.control.calibration import Calibration
from penstock.control.calibration.measuring import combine
from penstock.control.calibration.observing import observe
from penstock.estimate.evaluator import Evaluator
from penstock.experiments.figure import Case, Claim, Figure, Row, Value
from penstock.experiments.live.running import live_session, silent
from penstock.experiments.live.trial import temporary
from penstock.experiments.pictures import COLOURS, label
from penstock.experiments.predictive_live.claims import LATE, emulated_truly, judged, percent
from penstock.experiments.predictive_live.placements import places, spread
from penstock.experiments.predictive_live.settings import APPLICATIONS, LOAD, Setting
from penstock.experiments.predictive_live.tables import MILLISECOND, latencies, source_tuples, throughput_tps
from penstock.experiments.predictive_live.visits import WINDOW, Lengths, Tell, Timetable, Toured, Visit, tour
from penstock.model.taskgraph import Floats
from penstock.sim.events import Twin

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

NUMBER = "fidelity"
PLACES, SATURATED = 12, 4
QUICK_PLACES, QUICK_SATURATED = 4, 1
FIRST, EACH, FILLED = Lengths(0.0, 3.0, 12.0), Lengths(4.0, 2.0, 11.0), Lengths(4.0, 5.0, 7.0)
QUICK_FIRST, QUICK_EACH, QUICK_FILLED = Lengths(0.0, 2.0, 6.0), Lengths(4.0, 1.5, 4.0), Lengths(4.0, 4.0, 4.0)
LAST_S = 1.0  # at the end of a visit, whose tuples would end after the next moves
OVER = 2.0  # times what the best placement carries, that comes where placements are saturated
SEEDS = (0, 1, 2)
WARM_S, TWIN_S = 10.0, 120.0  # of virtual time
WANTED_RANK = 0.9
TATA_DEVIATION = 0.067


def _cases(quick: bool) -> Sequence[Case]:
    sizes = (QUICK_PLACES, QUICK_SATURATED) if quick else (PLACES, SATURATED)
    return [
        {"application": name, "load": LOAD, "placements": sizes[0], "saturated": sizes[1], "quick": quick, "seed": 0}
        for name in APPLICATIONS
    ]


def run_fidelity(case: Case, tell: Tell = silent) -> Sequence[Row]:
    """Visit placements of one application and return a row each, beside what the twin and the estimator say."""
    setting = Setting(str(case["application"]), float(case["load"]))
    visited = places(setting, int(case["placements"]), int(case["seed"]))
    filled = spread(setting, visited, int(case["saturated"]))
    lengths = (QUICK_FIRST, QUICK_EACH, QUICK_FILLED) if case["quick"] else (FIRST, EACH, FILLED)
    table = Timetable(visited, filled, *lengths)
    evaluator = Evaluator(setting.application, setting.cluster)
    most = max(evaluator.evaluate(place.placement).rate_tps for place in visited)

    def say(what: str) -> None:
        tell(f"{setting.name}, {what}")

    with live_session() as spark, temporary() as folder:
        toured = tour(setting, table, OVER * most, Path(folder), int(case["seed"]), say)
        say("reading telemetry")
        tuples = source_tuples(spark, toured.telemetry)
        calibration = calibrated(spark, setting, toured)
    say("in the twin")
    return list(_rows(setting, toured, tuples, calibration, evaluator))


def calibrated(spark: SparkSession, setting: Setting, toured: Toured) -> Calibration:
    """Measure costs by the run's telemetry up to its first move."""
    settle = toured.visits[0].end - toured.visits[0].start
    observed = observe(spark, toured.telemetry, settle_s=min(2.0, settle / 2), until="move")
    return combine(setting.application, setting.cluster, observed, None, window=WINDOW)


def _rows(
    setting: Setting, toured: Toured, tuples: pd.DataFrame, calibration: Calibration, evaluator: Evaluator
) -> Iterator[dict[str, Value]]:
    """Yield a row a visit under load, with what was carried where its placement was saturated too."""
    twin = Twin(setting.application, calibration.cluster, calibration.costs)
    filled = {visit.place.name: visit for visit in toured.visits if visit.saturated}
    for visit in toured.visits:
        if visit.saturated:
            continue
        seen = latencies(tuples, visit.start, visit.end - LAST_S)
        estimate = evaluator.evaluate(visit.place.placement)
        yield {
            "placement": visit.place.name,
            "machines": estimate.machines,
            "live_ms": seen.mean_ms,
            "twin_ms": _twin_ms(twin, setting, visit),
            "delay_ms": estimate.delay_ms,
            "half_a_ms": seen.halves_ms[0],
            "half_b_ms": seen.halves_ms[1],
            "tuples": seen.tuples,
            "unfinished": seen.unfinished,
            "moved_s": visit.moved_s,
            "late": visit.late,
            **_carried(tuples, twin, filled.get(visit.place.name), estimate.rate_tps),
        }


def _twin_ms(twin: Twin, setting: Setting, visit: Visit) -> float:
    means = []
    for seed in SEEDS:
        run = twin.start(visit.place.placement.slots, rates=setting.application.rate_tps, seed=seed)
        run.advance(WARM_S)
        means.append(run.advance(TWIN_S).mean_s)
    return float(np.mean(means)) / MILLISECOND


def _carried(tuples: pd.DataFrame, twin: Twin, visit: Visit | None, even_tps: float) -> dict[str, Value]:
    none = float("nan")
    if visit is None:
        return {"live_tps": none, "twin_tps": none, "even_tps": even_tps, "filled_late": 0.0}
    return {
        "live_tps": throughput_tps(tuples, visit.start, visit.end),
        "twin_tps": twin.maximum_tps(visit.place.placement.slots),
        "even_tps": even_tps,
        "filled_late": visit.late,
    }


def fitted(estimate: Floats, measured: Floats) -> Floats:
    """Return estimates after a linear fit to what was measured, as TATA's paper compares them.

    Where higher estimates go with lower values there is nothing in them, and their fit is the mean.
    """
    spread = float(np.var(estimate))
    slope = max(0.0, float(np.cov(estimate, measured, bias=True)[0, 1]) / spread) if spread > 0 else 0.0
    line: Floats = measured.mean() + slope * (estimate - estimate.mean())
    return line


def deviation(estimate: Floats, measured: Floats) -> float:
    """Return the mean absolute deviation of estimates, relative to what was measured."""
    return float(np.mean(np.abs(estimate - measured) / measured))


def rank_correlation(estimate: Floats, measured: Floats) -> float:
    """Return Spearman's; not a number where one of them is the same throughout."""
    from scipy.stats import rankdata

    a, b = rankdata(estimate), rankdata(measured)
    return float(np.corrcoef(a, b)[0, 1]) if np.ptp(a) and np.ptp(b) else float("nan")


def _draw(rows: pd.DataFrame, picture: "Picture") -> None:
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


def _scatter(axis: "Axes", across: Floats, up: Floats, across_text: str, up_text: str, title: str) -> None:
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
    rank, off, off_fitted = rank_correlation(twin, live), deviation(twin, live), deviation(fitted(twin, live), live)
    tata, tata_rank = deviation(fitted(delay, live), live), rank_correlation(delay, live)
    yield judged(
        NUMBER,
        f"ours: the calibrated twin ranks {len(rows)} placements of {name} as they are live",
        f"asked: ≥ {WANTED_RANK}",
        f"rank correlation {rank:.3f}; {live.min():.0f} to {live.max():.0f} ms; {noise}",
        f"Spearman's ≥ {WANTED_RANK}",
        rank >= WANTED_RANK,
        "many placements are closer to each other than a visit's chance lets tell",
    )
    yield judged(
        NUMBER,
        f"ours: the twin's mean latency of {name} deviates by no more than TATA's estimator did in its paper",
        f"{TATA_DEVIATION:.1%} after a linear fit",
        f"{off:.1%} as it is, {percent(float(np.mean(twin / live - 1)))} on average; {off_fitted:.1%} after a fit",
        "mean absolute deviation, without a fit",
        off <= TATA_DEVIATION,
        f"{noise}, and events that the host handles late add to what is seen live",
    )
    yield judged(
        NUMBER,
        f"TATA's estimator of {name}, after a linear fit",
        f"{TATA_DEVIATION:.1%} mean deviation",
        f"{tata:.1%}, rank correlation {tata_rank:.3f}",
        "at most twice the paper's",
        tata <= 2 * TATA_DEVIATION,
        "it knows the way alone, not what tuples wait where slots and cores are shared",
    )
    yield judged(
        NUMBER,
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
    live, twin, even = (rows[column].to_numpy() for column in ("live_tps", "twin_tps", "even_tps"))
    off, signed = deviation(twin, live), float(np.mean(twin / live - 1))
    yield judged(
        NUMBER,
        f"ours: the most that {len(rows)} placements of {name} carry, in the twin and live",
        f"{TATA_DEVIATION:.1%} for TATA's estimator after a linear fit",
        f"{off:.1%} ({percent(signed)} on average); the estimator's even split {deviation(even, live):.1%}",
        "mean absolute deviation, without a fit",
        off <= TATA_DEVIATION,
        f"saturated, events were late at {rows['filled_late'].mean():.0%} of looks: the host is at its limit too",
    )


def _true(rows: pd.DataFrame) -> Claim:
    seen = (
        f"late at {rows['late'].mean():.0%} of looks; unfinished {rows['unfinished'].sum()} of {rows['tuples'].sum()}"
    )
    late = [f"{row.application} {row.placement}" for row in rows[rows["late"] > LATE].itertuples()]
    return emulated_truly(NUMBER, seen, "placement under load", late)


FIDELITY = Figure(
    NUMBER,
    "Live: the calibrated twin beside placements visited in one run",
    _cases,
    run_fidelity,
    _draw,
    _claims,
    live=True,
)
