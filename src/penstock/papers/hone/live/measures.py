"""Measures of a trial: the latency of every source tuple from its telemetry, by choice of policies and round.

A tuple belongs to the episode in which it was due. Sources start within some milliseconds of each other, and each
counts its episodes from its own start, which follows from its first tuple.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.experiments.figure import Row, Value
from penstock.experiments.live_cases import Report, live_session, silent, temporary
from penstock.experiments.live_tuples import traced
from penstock.model.errors import PenstockError
from penstock.papers.hone.live.episodes import SLOT_S, Episodes
from penstock.papers.hone.live.settings import MILLISECOND
from penstock.papers.hone.live.trial import Conducted, Trial, conduct
from penstock.pipeline.hops import SPANS

SPLIT = "split"
PARTS = tuple(f"{span}_ms" for span in SPANS)


class NothingSeen(PenstockError):
    """A trial without any recorded source tuple."""


class Seen(NamedTuple):
    """Tables of a trial."""

    tuples: pd.DataFrame  # source, due, finished, latency, complete and the parts of it, in seconds
    busy: pd.DataFrame  # episode, task, seconds: busy time of tasks in the counted part of it
    splits: pd.DataFrame  # source and due of a sentence, task, seconds: from its arrival there until its words had left


def read_trial(spark: SparkSession, conducted: Conducted, trial: Trial, with_splits: bool = False) -> Seen:
    """Read the telemetry of a trial through the pipeline; times of splits only if requested."""
    with traced(spark, conducted.telemetry) as tables:
        found = tables.tuples.select("source", "due", "finished", "latency", "complete", *SPANS).toPandas()
        if found.empty:
            raise NothingSeen("telemetry: no source tuple was seen; run the trial again on a host that is less busy")
        start = float(np.median(list(beginnings(found, trial.episodes).values())))
        splits = _splits(tables.hops, tables.tuples).toPandas() if with_splits else pd.DataFrame()
        return Seen(found, _busy(tables.hops, trial.episodes, start).toPandas(), splits)


def beginnings(tuples: pd.DataFrame, episodes: Episodes) -> dict[str, float]:
    """Return when each source task started: its first tuple was due a known time later."""
    first = episodes.times(0) * SLOT_S
    dues = tuples.groupby("source")["due"].min()
    numbers = {str(task): int(str(task).rpartition("[")[2].rstrip("]")) for task in dues.index}
    return {task: float(dues[task]) - float(first[number]) for task, number in numbers.items()}


def placed(tuples: pd.DataFrame, episodes: Episodes) -> pd.DataFrame:
    """Add to every tuple the number of its episode, and its due and finish times relative to the episode's start."""
    began = tuples["source"].map(beginnings(tuples, episodes))
    period = episodes.lengths.period
    # A tuple is due at the start of a slot, up to the clock error: half a slot allows for that.
    since = tuples["due"] - began + SLOT_S / 2
    episode = np.floor(since / period).astype(int)
    due = since - episode * period
    return tuples.assign(episode=episode, due_s=due, finished_s=due + tuples["latency"])


def cell_rows(seen: Seen, conducted: Conducted, trial: Trial) -> list[dict[str, Value]]:
    """Return one row per choice and round."""
    tuples = placed(seen.tuples, trial.episodes)
    splits = _split_means(seen.splits, trial.episodes)
    rows: list[dict[str, Value]] = []
    for episode in range(1, trial.episodes.number):
        choice = trial.choices[trial.order[episode]]
        rows.append(
            {
                "routing": choice.routing,
                "sending": choice.sending,
                "round": trial.episodes.round_of(episode),
                **_latencies(tuples, trial.episodes, episode),
                "busiest": _busiest(seen.busy, trial.episodes, episode),
                "late": conducted.late[episode],
                **splits.get(episode, {}),
            }
        )
    return rows


def _latencies(tuples: pd.DataFrame, episodes: Episodes, episode: int) -> dict[str, float]:
    """Return the latencies of the tuples that count in an episode, in milliseconds.

    unfinished: tuples that never completed. left: tuples that had not completed when the last of the episode arrived,
    as is usual for the latest ones; many of them mean overload. carried: tuples of earlier episodes that were in the
    system when the first counted one arrived.
    """
    lengths = episodes.lengths
    own = tuples[tuples["episode"] == episode]
    own = own[(own["due_s"] >= lengths.settle) & (own["due_s"] < lengths.settle + lengths.counted)]
    done = own[own["complete"] & own["latency"].notna()]
    before = tuples[tuples["episode"] == episode - 1]
    latency = done["latency"] / MILLISECOND
    return {
        "mean_ms": float(latency.mean()),
        "p99_ms": float(latency.quantile(0.99)) if len(done) else float("nan"),
        "tuples": len(own),
        "unfinished": len(own) - len(done),
        "left": int((own["finished_s"] > lengths.busy).sum()),
        "carried": int((before["finished_s"] > lengths.period + lengths.settle).sum()),
        **{name: float(done[span].mean() / MILLISECOND) for name, span in zip(PARTS, SPANS, strict=True)},
    }


def _busy(hops: DataFrame, episodes: Episodes, start: float) -> DataFrame:
    """Return the busy time of each task in the counted part of every episode."""
    lengths = episodes.lengths
    episode = sf.floor((sf.col("started") - start) / lengths.period)
    since = sf.col("started") - start - episode * lengths.period
    counted = (since >= lengths.settle) & (since < lengths.settle + lengths.counted)
    rows = hops.where(counted).groupBy(episode.alias("episode"), sf.col("target").alias("task"))
    return rows.agg(sf.sum("processing").alias("seconds"))


def _busiest(busy: pd.DataFrame, episodes: Episodes, episode: int) -> float:
    own = busy[busy["episode"] == episode]["seconds"]
    return float(own.max()) / episodes.lengths.counted if len(own) else 0.0


def _splits(hops: DataFrame, tuples: DataFrame) -> DataFrame:
    """Return the time of every sentence at its split: from its arrival until all its words had arrived."""
    words = hops.where(sf.col("source_component") == SPLIT).groupBy("root", sf.col("parent").alias("id"))
    left = words.agg(sf.max("arrived").alias("left"))
    came = hops.where(sf.col("target_component") == SPLIT).select(
        "root", "id", "arrived", sf.col("target").alias("task")
    )
    due = tuples.select("root", "source", "due")
    took = (sf.col("left") - sf.col("arrived")).alias("seconds")
    return came.join(left, ["root", "id"]).join(due, "root").select("source", "due", "task", took)


def _split_means(splits: pd.DataFrame, episodes: Episodes) -> Mapping[int, dict[str, float]]:
    """Return the mean of every split task in every episode, in milliseconds."""
    if splits.empty:
        return {}
    found = placed(splits.assign(latency=0.0), episodes)
    lengths = episodes.lengths
    found = found[(found["due_s"] >= lengths.settle) & (found["due_s"] < lengths.settle + lengths.counted)]
    means = found.pivot_table(index="episode", columns="task", values="seconds") / MILLISECOND
    names = [f"{task}_ms" for task in means.columns]
    rows = zip(means.index.tolist(), means.to_numpy().tolist(), strict=True)
    return {episode: dict(zip(names, values, strict=True)) for episode, values in rows}


def run_and_measure(trial: Trial, report: Report = silent, with_splits: bool = False) -> list[Row]:
    """Run a trial and return one row per choice and round, with the times of split tasks if requested."""
    with live_session() as spark, temporary() as folder:
        conducted = conduct(trial, Path(folder), report)
        report("reading telemetry")
        seen = read_trial(spark, conducted, trial, with_splits)
    return list(cell_rows(seen, conducted, trial))
