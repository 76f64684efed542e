"""What the pipeline's tables say of a stretch of time of a run."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.clocks import clocks as clock_table
from penstock.pipeline.hops import each_once
from penstock.pipeline.hops import hops as make_hops
from penstock.pipeline.ingest import ingest, read_telemetry
from penstock.pipeline.tuples import tuples as make_tuples

MILLISECOND = 1e-3
COLUMNS = ("due", "finished", "latency", "complete")


class Stretch(NamedTuple):
    """The source tuples that were due from one time to another."""

    mean_ms: float
    p99_ms: float
    halves_ms: tuple[float, float]  # the means of its two halves, which differ by chance
    tuples: int
    unfinished: int


def source_tuples(spark: SparkSession, telemetry: Path) -> pd.DataFrame:
    """Return when each source tuple of a run was due and finished, by the pipeline."""
    raw, _ = read_telemetry(spark, telemetry)
    good = ingest(raw).good.cache()
    clocks = clock_table(good).cache()
    frame: DataFrame = make_tuples(each_once(make_hops(good, clocks)), good, clocks)
    try:
        return frame.select(*COLUMNS).toPandas()
    finally:
        clocks.unpersist()
        good.unpersist()


def latencies(tuples: pd.DataFrame, start: float, end: float) -> Stretch:
    """Return the latencies of the source tuples that were due between two times."""
    own = tuples[(tuples["due"] >= start) & (tuples["due"] < end)]
    done = own[own["complete"] & own["latency"].notna()]
    latency = done["latency"] / MILLISECOND
    early = done["due"] < (start + end) / 2
    return Stretch(
        mean_ms=float(latency.mean()),
        p99_ms=float(latency.quantile(0.99)) if len(done) else float("nan"),
        halves_ms=(float(latency[early].mean()), float(latency[~early].mean())),
        tuples=len(own),
        unfinished=len(own) - len(done),
    )


def throughput_tps(tuples: pd.DataFrame, start: float, end: float) -> float:
    """Return the source tuples a second whose whole tree ended between two times."""
    ended = tuples["complete"] & (tuples["finished"] >= start) & (tuples["finished"] < end)
    return float(np.count_nonzero(ended)) / (end - start)
