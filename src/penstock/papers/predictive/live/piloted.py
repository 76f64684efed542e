"""Autopilots live: latency before and after the change of each, from the default placement, run after run.

In every run Algorithm 1 and the search with the same models have one pass each (`passes`), in alternating order. The
latency of a source tuple is measured in two ways, as on the twin: until all its descendants are processed, which is
what a user waits for, and as the longest path of mean times, which models predict (2.5). Both come from the pipeline.

Models are trained without a live measurement: emulated machines charge the declared costs of components, so the twin
with declared costs matches the run, and exploration on it takes no hour of random placements.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from pyspark.sql import SparkSession

from penstock.autopilot.ledger import Episode
from penstock.estimate.latency_models import save_models
from penstock.experiments.figure import Case, Figure, Row, Value
from penstock.experiments.live_cases import Report, live_session, silent, temporary
from penstock.experiments.live_tuples import COLUMNS
from penstock.experiments.pictures import COLOURS, Axes, Picture, label
from penstock.experiments.statistics import deviation
from penstock.exploration.index import Trials
from penstock.exploration.twin_exploration import explore_twin
from penstock.model.errors import InvalidInput
from penstock.model.instance import Instance
from penstock.papers.predictive.live.claims import POLICIES, pilot_claims
from penstock.papers.predictive.live.passes import Pass, Pilots, fly
from penstock.papers.predictive.live.settings import APPLICATIONS, LOAD, SlowedApplication
from penstock.papers.predictive.live.tables import HOP_COLUMNS, MILLISECOND, latencies_between, path_ms
from penstock.papers.predictive.windows import Tables
from penstock.pipeline.job import read_table, run_pipeline
from penstock.pipeline.training import train_latency

HOLD_S, SETTLE_S = 30.0, 5.0  # of virtual time; a placement is held for a window
MARGIN = 0.1  # capacity of a placement beyond its load
FACTORS = (0.8, 1.2)  # range of a placement's load relative to the load
FOLLOWED_TPS = 2.0  # traced source tuples per second, per task


class Learnt(NamedTuple):
    """A file of models, and their accuracy on held-out placements."""

    path: Path
    accuracy: float  # mean over components and streams, cross-validated


def learn(
    spark: SparkSession, setting: SlowedApplication, folder: Path, placements: int, seed: int, report: Report
) -> Learnt:
    """Explore a number of placements on the twin, and train models on them."""
    records, tables, models = folder / "explored", folder / "tables", folder / "models.npz"
    records.mkdir(parents=True)
    report(f"exploring {placements} placements in the twin")
    explored = explore_twin(
        setting.application,
        setting.cluster,
        records,
        Trials(placements, HOLD_S, SETTLE_S, HOLD_S, margin=MARGIN, seed=seed),
        factors=FACTORS,
        sample_tps=FOLLOWED_TPS,
    )
    if explored.stopped:  # models trained on fewer placements are not accepted
        problem = f"{len(explored.runs)} of {placements} were tried: {explored.stopped}"
        raise InvalidInput("placements", f"{problem}; run it again")
    report("through the pipeline")
    run_pipeline(spark, records, tables, window_s=HOLD_S)
    report("training")
    trained = train_latency(spark, tables, kind="svr", application=setting.name, seed=seed)
    save_models(trained.models, models)
    known = [one.accuracy for one in trained.trained if one.accuracy is not None]
    return Learnt(models, sum(known) / len(known) if known else float("nan"))


REPETITIONS, QUICK_REPETITIONS = 6, 1  # an even number, so that each policy is first equally often
EXPLORED, QUICK_EXPLORED = 40, 20  # placements, with a window of 30 s each: the paper's 20 minutes
INTERVAL_S, QUICK_INTERVAL_S = 2.0, 1.0  # of a reading
AFTER_S, QUICK_AFTER_S = 4.0, 1.0  # duration of a pass after its decision


class Recorded(NamedTuple):
    """The pipeline's tables of runs."""

    tuples: pd.DataFrame  # by source tuple: run, due, finished, latency, complete
    hops: pd.DataFrame  # by tuple and hop: run, stream, target_component, emitted, started, processing

    def of(self, run: str) -> "Recorded":
        """Return the rows of one run."""
        return Recorded(self.tuples[self.tuples["run"] == run], self.hops[self.hops["run"] == run])


def _cases(quick: bool) -> Sequence[Case]:
    repetitions, explored = (QUICK_REPETITIONS, QUICK_EXPLORED) if quick else (REPETITIONS, EXPLORED)
    interval, after = (QUICK_INTERVAL_S, QUICK_AFTER_S) if quick else (INTERVAL_S, AFTER_S)
    return [
        {"application": name, "load": LOAD, "repetitions": repetitions, "explored": explored,
         "interval_s": interval, "after_s": after, "seed": 0}
        for name in APPLICATIONS
    ]  # fmt: skip


def run_autopilot(case: Case, report: Report = silent) -> Sequence[Row]:
    """Train models for one application, then apply both policies repeatedly; return one row per pass."""
    setting, seed = SlowedApplication(str(case["application"]), float(case["load"])), int(case["seed"])

    def say(what: str) -> None:
        report(f"{setting.name}, {what}")

    with live_session() as spark, temporary() as folder:
        learnt = learn(spark, setting, Path(folder) / "learnt", int(case["explored"]), seed, say)
        runs = Path(folder) / "runs"
        done: list[tuple[int, Pass]] = []
        for number in range(int(case["repetitions"])):
            pilots = Pilots(in_turn(number), learnt.path, float(case["interval_s"]), float(case["after_s"]))
            say(f"run {number + 1} of {case['repetitions']}: {', then '.join(pilots.policies)}")
            done += [(number, one) for one in fly(setting, pilots, runs, seed + number)]
        say("reading telemetry")
        recorded = _recorded(spark, runs, Path(folder) / "tables")
    tables = Tables(Instance(setting.application, setting.cluster))
    return [{"accuracy": learnt.accuracy, **pass_row(n, one, recorded.of(one.run), tables)} for n, one in done]


def in_turn(repetition: int) -> tuple[str, ...]:
    """Return the order of the policies in a run; it is reversed in every other run."""
    return POLICIES if repetition % 2 == 0 else POLICIES[::-1]


def _recorded(spark: SparkSession, runs: Path, tables: Path) -> Recorded:
    run_pipeline(spark, runs, tables)
    return Recorded(
        read_table(spark, tables, "tuples").select("run", *COLUMNS).toPandas(),
        read_table(spark, tables, "hops").select("run", *HOP_COLUMNS).toPandas(),
    )


def pass_row(repetition: int, one: Pass, recorded: Recorded, tables: Tables) -> dict[str, Value]:
    """Return the results of a pass, from its run's tables and its own ledger."""
    before, after = latencies_between(recorded.tuples, *one.before), latencies_between(recorded.tuples, *one.after)
    paths = [path_ms(tables, recorded.hops, *span) for span in (one.before, one.after)]
    return {
        "repetition": repetition,
        "policy": one.policy,
        "turn": one.turn,
        "before_ms": before.mean_ms,
        "after_ms": after.mean_ms,
        "before_p99_ms": before.p99_ms,
        "after_p99_ms": after.p99_ms,
        "ratio": after.mean_ms / before.mean_ms,
        "before_path_ms": paths[0],
        "after_path_ms": paths[1],
        "path_ratio": paths[1] / paths[0],
        **_decided(one.episodes),
        "tuples": before.tuples + after.tuples,
        "unfinished": before.unfinished + after.unfinished,
        "late": one.late,
    }


def _decided(episodes: Sequence[Episode]) -> dict[str, Value]:
    """Return the decision and its prediction; of several changes, the last."""
    acted = [episode for episode in episodes if episode.decision.acts]
    last = acted[-1] if acted else None
    stay = None if last is None else next((one for one in last.decision.alternatives if one.name == "stay"), None)
    return {
        "moves": sum(len(episode.decision.moves) for episode in acted),
        "decisions": len(episodes),
        "verdict": last.verdict if last is not None else "held",
        "reason": episodes[-1].decision.reason if episodes else "",
        "predicted_before_ms": _ms(None if stay is None or stay.score is None else -stay.score),
        "predicted_ms": _ms(last.decision.predicted_s if last is not None else None),
        "predicted_gain": last.decision.gain if last is not None else 0.0,
        "read_before_ms": _ms(last.decision.before_s if last is not None else None),
        "read_after_ms": _ms(last.outcome.realised_s if last is not None and last.outcome is not None else None),
        "bound_ms": max((episode.decision.bound_s / MILLISECOND for episode in acted), default=float("nan")),
    }


def _ms(seconds: float | None) -> float:
    return float("nan") if seconds is None else seconds / MILLISECOND


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    names = list(dict.fromkeys(rows["application"]))
    axes = picture.subplots(1, len(names), squeeze=False)[0]
    for axis, name in zip(axes, names, strict=True):
        own = rows[rows["application"] == name]
        for policy, colour in zip(POLICIES, COLOURS, strict=False):
            _draw_policy(axis, own[own["policy"] == policy], policy, colour)
        axis.set_xticks([0, 1], ["default placement", "after the autopilot"])
        axis.set_xlim(-0.4, 1.4)
        axis.set_ylim(bottom=0)
        label(axis, "", "mean latency (ms)", f"{name}: {own['repetition'].nunique()} runs")
        axis.legend(frameon=False, fontsize=8)


def _draw_policy(axis: Axes, rows: pd.DataFrame, policy: str, colour: str) -> None:
    """Draw every pass as a thin line, the mean of whole trees with its spread, and that of longest paths dashed."""
    for times in rows[["before_ms", "after_ms"]].to_numpy():
        axis.plot([0, 1], times, color=colour, linewidth=0.5, alpha=0.5)
    for columns, text, mark in (
        (["before_ms", "after_ms"], "whole trees", "s-"),
        (["before_path_ms", "after_path_ms"], "longest path", "s--"),
    ):
        means = [float(rows[column].mean()) for column in columns]
        spread = [deviation(rows[column].to_numpy()) for column in columns]
        axis.errorbar([0, 1], means, spread, fmt=mark, color=colour, markersize=4, capsize=3, label=f"{policy}: {text}")


AUTOPILOT = Figure(
    "autopilot",
    "Live: mean latency before and after an autopilot with trained models",
    _cases,
    run_autopilot,
    _draw,
    pilot_claims,
    live=True,
)
