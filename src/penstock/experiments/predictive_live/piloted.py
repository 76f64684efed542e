"""An autopilot live: latency before and after it was on, from the default placement, run after run.

Every repetition is a run of its own. It begins with the default placement; then the autopilot reads, decides by models
that were trained before, moves tasks, measures and keeps or takes back, as its guard says. Latencies are those of the
pipeline's table of tuples: before the first task moved, and after the last has settled.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import SparkSession

from penstock.control.live import start
from penstock.control.loop.autopilot import Autopilot, Settings
from penstock.control.loop.guard import Guard
from penstock.control.loop.ledger import Book, Episode, Ledger
from penstock.control.loop.live import LivePlant
from penstock.experiments.figure import Case, Claim, Figure, Row, Value
from penstock.experiments.live.running import live_session, silent
from penstock.experiments.live.trial import temporary
from penstock.experiments.pictures import COLOURS, deviation, label
from penstock.experiments.predictive_live.claims import LATE, emulated_truly, judged, percent
from penstock.experiments.predictive_live.settings import APPLICATIONS, DEFAULT, LOAD, Setting
from penstock.experiments.predictive_live.tables import COLUMNS, MILLISECOND, latencies
from penstock.experiments.predictive_live.training import learn
from penstock.experiments.predictive_live.visits import Tell, is_late
from penstock.model.plan import Plan
from penstock.pipeline.job import read_table, run_pipeline
from penstock.runtime.handle import Outcome
from penstock.runtime.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

NUMBER = "autopilot"
POLICY = "predictive"
REPETITIONS, QUICK_REPETITIONS = 5, 1
EXPLORED, QUICK_EXPLORED = 40, 20  # placements, a window of 30 s each: the paper's 20 minutes
INTERVAL_S, QUICK_INTERVAL_S = 2.0, 1.0  # of a reading
SETTLE_S = 3.0  # at the beginning, and after the last move
LAST_S = 1.0  # before moves begin, and before the end, whose tuples would end after it
AFTER_S, QUICK_AFTER_S = 4.0, 1.0  # that a run goes on when all is decided
PAPER = (0.20, 0.318)
POINTS = 0.10
CONFIDENCE = 0.95


class WatchedPlant(LivePlant):
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


class Piloted(NamedTuple):
    """A run with an autopilot; times are the controller's."""

    run: str
    before: tuple[float, float]
    after: tuple[float, float]
    episodes: list[Episode]
    late: float


def _cases(quick: bool) -> Sequence[Case]:
    repetitions, explored = (QUICK_REPETITIONS, QUICK_EXPLORED) if quick else (REPETITIONS, EXPLORED)
    interval, after = (QUICK_INTERVAL_S, QUICK_AFTER_S) if quick else (INTERVAL_S, AFTER_S)
    return [
        {"application": name, "load": LOAD, "policy": POLICY, "repetitions": repetitions, "explored": explored,
         "interval_s": interval, "after_s": after, "seed": 0}
        for name in APPLICATIONS
    ]  # fmt: skip


def run_autopilot(case: Case, tell: Tell = silent) -> Sequence[Row]:
    """Train models for one application, then let it run with an autopilot again and again; return a row each."""
    setting = Setting(str(case["application"]), float(case["load"]))

    def say(what: str) -> None:
        tell(f"{setting.name}, {what}")

    with live_session() as spark, temporary() as folder:
        learnt = learn(spark, setting, Path(folder) / "learnt", int(case["explored"]), int(case["seed"]), say)
        runs = Path(folder) / "runs"
        done = []
        for number in range(int(case["repetitions"])):
            say(f"run {number + 1} of {case['repetitions']}")
            done.append(_piloted(setting, case, learnt.path, runs, int(case["seed"]) + number))
        say("reading telemetry")
        tuples = _tuples(spark, runs, Path(folder) / "tables")
    rows = [_row(number, one, tuples[tuples["run"] == one.run]) for number, one in enumerate(done)]
    return [{"accuracy": learnt.accuracy, **row} for row in rows]


def _piloted(setting: Setting, case: Case, models: Path, runs: Path, seed: int) -> Piloted:
    guard = Guard(
        max_moves=sum(one.parallelism for one in setting.application.components),
        interval_s=float(case["interval_s"]),
        cool_down_s=float(case["interval_s"]),
    )
    settings = Settings(policy=str(case["policy"]), model=str(models), seed=seed)
    run = start(
        setting.flow(seed=seed), emulate=setting.cluster, policy=DEFAULT, runs=runs, sample_tps=-1.0, checkpoint_s=0,
        seed=seed,
    )  # fmt: skip
    try:
        begin = monotonic() + SETTLE_S
        plant, ledger = WatchedPlant(run), Ledger()
        plant.wait(SETTLE_S)
        plant.reading()
        # One decision: the next would be due only when its change has been measured.
        Autopilot(plant, settings, guard=guard, ledger=ledger).run(guard.readings * guard.interval_s + SETTLE_S)
        plant.wait(float(case["after_s"]))
        end = monotonic() - LAST_S
    finally:
        run.stop()
    middle = (begin + end) / 2
    before = (begin, plant.moved[0][0] - LAST_S if plant.moved else middle)
    after = (plant.moved[-1][1] + SETTLE_S if plant.moved else middle, end)
    return Piloted(run.info.run, before, after, Book(ledger.lines).episodes, float(np.mean(plant.late)))


def _tuples(spark: SparkSession, runs: Path, tables: Path) -> pd.DataFrame:
    run_pipeline(spark, runs, tables)
    return read_table(spark, tables, "tuples").select("run", *COLUMNS).toPandas()


def _row(number: int, one: Piloted, tuples: pd.DataFrame) -> dict[str, Value]:
    before, after = latencies(tuples, *one.before), latencies(tuples, *one.after)
    acted = [episode for episode in one.episodes if episode.decision.acts]
    last = acted[-1] if acted else None
    bounds = [episode.decision.bound_s / MILLISECOND for episode in acted]
    return {
        "repetition": number,
        "before_ms": before.mean_ms,
        "after_ms": after.mean_ms,
        "before_p99_ms": before.p99_ms,
        "after_p99_ms": after.p99_ms,
        "ratio": after.mean_ms / before.mean_ms,
        "moves": sum(len(episode.decision.moves) for episode in acted),
        "decisions": len(one.episodes),
        "verdict": last.verdict if last is not None else "held",
        "reason": one.episodes[-1].decision.reason if one.episodes else "",
        "predicted_ms": _ms(last.decision.predicted_s if last is not None else None),
        "predicted_gain": last.decision.gain if last is not None else 0.0,
        "read_before_ms": _ms(last.decision.before_s if last is not None else None),
        "read_after_ms": _ms(last.outcome.realised_s if last is not None and last.outcome is not None else None),
        "bound_ms": max(bounds, default=float("nan")),
        "tuples": before.tuples + after.tuples,
        "unfinished": before.unfinished + after.unfinished,
        "late": one.late,
    }


def _ms(seconds: float | None) -> float:
    return float("nan") if seconds is None else seconds / MILLISECOND


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Return the limits of the mean of repetitions, by Student's t; of one alone, that one."""
    from scipy.stats import t

    if len(ratios) < 2:
        return ratios[0], ratios[0]
    mean, error = float(np.mean(ratios)), float(np.std(ratios, ddof=1) / np.sqrt(len(ratios)))
    reach = float(t.ppf((1 + CONFIDENCE) / 2, len(ratios) - 1)) * error
    return mean - reach, mean + reach


def _draw(rows: pd.DataFrame, picture: "Picture") -> None:
    names = list(dict.fromkeys(rows["application"]))
    axes = picture.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        own = rows[rows["application"] == name]
        for row in own.itertuples():
            axis.plot([0, 1], [row.before_ms, row.after_ms], "o-", color=COLOURS[0], linewidth=0.9, markersize=4)
        means = [own["before_ms"].mean(), own["after_ms"].mean()]
        spread = [deviation(own["before_ms"].to_numpy()), deviation(own["after_ms"].to_numpy())]
        axis.errorbar([0, 1], means, spread, color=COLOURS[1], marker="s", capsize=3, label="mean")
        axis.set_xticks([0, 1], ["default placement", "after the autopilot"])
        axis.set_xlim(-0.4, 1.4)
        axis.set_ylim(bottom=0)
        label(axis, "", "mean latency (ms)", f"{name}: {len(own)} runs")
        axis.legend(frameon=False, fontsize=8)


def _claims(rows: pd.DataFrame) -> list[Claim]:
    by_name = {str(name): own for name, own in rows.groupby("application", sort=False)}
    return [*(claim for name, own in by_name.items() for claim in _claims_of(name, own)), _guarded(rows), _true(rows)]


def _claims_of(name: str, rows: pd.DataFrame) -> Iterator[Claim]:
    mean, (low, high) = float(rows["ratio"].mean()), interval(rows["ratio"].tolist())
    limits = f"95 %: {percent(low - 1)} to {percent(high - 1)}; {len(rows)} runs" if len(rows) > 1 else "one run"
    told = f"{percent(mean - 1)} ({limits})"
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in rows["verdict"].value_counts().items())
    decided = f"decided: {'; '.join(dict.fromkeys(str(reason) for reason in rows['reason']))}"
    yield judged(
        NUMBER,
        f"live, the autopilot ({rows['policy'].iloc[0]}) lowers the mean latency of {name} below the default's",
        "lower",
        f"{told}; {verdicts}; {rows['moves'].mean():.0f} moves",
        "upper 95 % limit of the mean ratio < 1",
        high < 1.0,
        decided,
    )
    yield judged(
        NUMBER,
        f"and by as much as on the paper's cluster: {name}",
        f"{percent(-PAPER[0])} to {percent(-PAPER[1])}",
        f"{percent(mean - 1)}; {rows['before_ms'].mean():.0f} → {rows['after_ms'].mean():.0f} ms, p99 "
        f"{rows['before_p99_ms'].mean():.0f} → {rows['after_p99_ms'].mean():.0f} ms",
        f"at least {percent(POINTS - PAPER[0])}",
        mean <= 1.0 - PAPER[0] + POINTS,
        decided,
    )
    gain, came = rows["predicted_gain"].to_numpy(), 1.0 - rows["ratio"].to_numpy()
    accuracy = f"models' accuracy in cross-validation {rows['accuracy'].mean():.1%}"
    yield judged(
        NUMBER,
        f"ours: the reduction that was predicted for {name} is the one that came",
        "not compared",
        f"predicted {percent(-gain.mean())}, came {percent(-came.mean())}; {accuracy}",
        f"mean absolute difference ≤ {100 * POINTS:.0f} points",
        float(np.mean(np.abs(gain - came))) <= POINTS,
        "models add up the mean hops of the longest path (2.5), but a source tuple ends with the last of all its hops",
    )


def _guarded(rows: pd.DataFrame) -> Claim:
    acted = rows[rows["bound_ms"].notna()]  # where nothing was done there is no bound that could be kept
    within = acted["after_ms"] <= acted["bound_ms"]  # a latency that nobody has measured is not
    worse = [f"{row.application} {row.repetition}" for row in acted[~within].itertuples()]
    idle = f"; nothing was done in {len(rows) - len(acted)} more" if len(acted) < len(rows) else ""
    return judged(
        NUMBER,
        "ours: no run ends with a latency beyond the bound of its guard",
        "not compared",
        f"{len(acted) - len(worse)} of {len(acted)}; rolled back {int((rows['verdict'] == 'rolled back').sum())}{idle}",
        "every run",
        len(acted) > 0 and not worse,
        f"beyond it: {', '.join(worse)}" if worse else "nothing was done in any run",
    )


def _true(rows: pd.DataFrame) -> Claim:
    unfinished = f"unfinished {rows['unfinished'].sum()} of {rows['tuples'].sum()}"
    seen = f"late at {rows['late'].mean():.0%} of readings; {unfinished}"
    late = [f"{row.application} {row.repetition}" for row in rows[rows["late"] > LATE].itertuples()]
    return emulated_truly(NUMBER, seen, "run", late)


AUTOPILOT = Figure(
    NUMBER,
    "Live: mean latency before and after an autopilot with trained models",
    _cases,
    run_autopilot,
    _draw,
    _claims,
    live=True,
)
