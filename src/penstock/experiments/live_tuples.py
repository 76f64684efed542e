"""Source tuples of a run, from its telemetry: when each was due, emitted and finished."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.clocks import clocks as clock_table
from penstock.pipeline.hops import each_once
from penstock.pipeline.hops import hops as make_hops
from penstock.pipeline.ingest import ingest, read_telemetry
from penstock.pipeline.tuples import tuples as make_tuples

COLUMNS = ("due", "emitted", "finished", "latency", "complete")


class Followed(NamedTuple):
    """Tuples of a run."""

    tuples: pd.DataFrame  # by source tuple: COLUMNS, in s on the controller's clock
    ends: pd.DataFrame  # by tuple that a sink processed: component, finished


class Traced(NamedTuple):
    """The pipeline's tables of traced tuples."""

    hops: DataFrame
    tuples: DataFrame


@contextmanager
def traced(spark: SparkSession, telemetry: Path) -> Iterator[Traced]:
    """Compute the tables of a run's telemetry; they are cached while they are used."""
    raw, _ = read_telemetry(spark, telemetry)
    good = ingest(raw).good.cache()
    clocks = clock_table(good).cache()
    hops = each_once(make_hops(good, clocks)).cache()
    tuples = make_tuples(hops, good, clocks).cache()
    try:
        yield Traced(hops, tuples)
    finally:
        for cached in (tuples, hops, clocks, good):
            cached.unpersist()


def followed(spark: SparkSession, telemetry: Path, sinks: Collection[str]) -> Followed:
    """Return the times of a run's source tuples, and when sinks processed tuples, from the pipeline."""
    with traced(spark, telemetry) as found:
        component = found.hops["target_component"]
        ends = found.hops.where(component.isin(*sinks)).select(component.alias("component"), "finished")
        return Followed(found.tuples.select(*COLUMNS).toPandas(), ends.toPandas())
