"""Summaries of many runs: latencies by run, component and edge, stragglers, and load balance.

`tables` compares the phases of one run with exact percentiles, which keep every value in memory. Here there may be any
number of tuples, so values are first counted in bins of equal ratio: a percentile is accurate to half a percent, needs
memory for the bins only, and does not depend on the order of values.
"""

import math

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind
from penstock.pipeline.hops import SPANS, component
from penstock.pipeline.tables import QUANTILES, beside_fellows, slow_machines, stragglers
from penstock.pipeline.tuples import PARTS

BIN = 1.01  # ratio of a bin's ends
LEAST_S = 1e-9  # minimum; shorter times, or negative ones from clock errors, count as this


def spreads(rows: DataFrame, by: tuple[str, ...], spans: tuple[str, ...]) -> DataFrame:
    """Return one row per group and part of a time: count, mean, percentiles and maximum; nulls are left out."""
    pairs = sf.array(*(sf.struct(sf.lit(name).alias("span"), sf.col(name).alias("value")) for name in spans))
    long = rows.select(*by, sf.explode(pairs).alias("one")).select(*by, "one.span", "one.value")
    number = sf.floor(sf.log(sf.greatest(sf.col("value"), sf.lit(LEAST_S))) / math.log(BIN))
    bins = (
        long.where(sf.col("value").isNotNull())
        .groupBy(*by, "span", number.alias("bin"))
        .agg(sf.count("*").alias("count"), sf.sum("value").alias("sum"), sf.max("value").alias("worst"))
    )
    group = Window.partitionBy(*by, "span")
    sofar = sf.sum("count").over(group.orderBy("bin").rowsBetween(Window.unboundedPreceding, Window.currentRow))
    ranked = bins.withColumns({"sofar": sofar, "total": sf.sum("count").over(group)})
    return ranked.groupBy(*by, "span").agg(
        sf.sum("count").alias("count"),
        (sf.sum("sum") / sf.sum("count")).alias("mean"),
        *(_quantile(share).alias(name) for name, share in QUANTILES.items()),
        sf.max("worst").alias("worst"),
    )


def run_reports(hops: DataFrame, tuples: DataFrame, good: DataFrame, tails: DataFrame) -> dict[str, DataFrame]:
    """Return the reports by name: latencies by run, component and edge, what is over twice as slow as usual, balance.

    A hop's time has parts: waiting, processing and so on; an edge has those before processing. Complete tuples have
    `latency`, from due to done.
    """
    by_component = hops.select("run", sf.col("target_component").alias("component"), *SPANS)
    return {
        "latency": spreads(tuples.where("complete"), ("run",), ("latency", *PARTS)),
        "components": spreads(by_component, ("run", "component"), SPANS),
        "edges": spreads(hops, ("run", "stream", "source_machine", "target_machine"), SPANS[:-1]),
        "stragglers": stragglers(tails, "run"),
        "slow_machines": slow_machines(tails, "run"),
        "skew": skew(good),
    }


def task_tails(hops: DataFrame) -> DataFrame:
    """Return one row per run, task and machine: the 95th percentile of waiting and processing, and its component's."""
    rows = hops.select(
        "run",
        sf.col("target_component").alias("component"),
        sf.col("target").alias("task"),
        sf.col("target_machine").alias("machine"),
        (sf.col("wait") + sf.col("processing")).alias("both"),
    )
    tails = spreads(rows, ("run", "component", "task", "machine"), ("both",))
    return beside_fellows(tails.select("run", "component", "task", "machine", "count", "p95"), "run")


def skew(good: DataFrame) -> DataFrame:
    """Return one row per run and component: mean and maximum tuples per second of its tasks, and their ratio."""
    rows = good.where(sf.col("kind") == RecordKind.TASK.value)
    rates = rows.groupBy("run", component("task").alias("component"), "task").agg(
        sf.try_divide(sf.sum("processed"), sf.sum("interval")).alias("tps")
    )
    found = rates.groupBy("run", "component").agg(
        sf.count("*").alias("tasks"),
        sf.avg("tps").alias("mean_tps"),
        sf.max("tps").alias("most_tps"),
        sf.max_by("task", sf.struct("tps", "task")).alias("most"),
    )
    return found.withColumn("ratio", sf.try_divide("most_tps", "mean_tps"))


def _quantile(share: float) -> Column:
    reached = sf.min(sf.when(sf.col("sofar") >= share * sf.col("total"), sf.col("bin")))
    return sf.pow(sf.lit(BIN), reached + 0.5)
