"""Summarise telemetry on Spark for calibration: the result is a few small tables, however long a run was.

Times are on the controller's clock. Records before a run has settled, or after it was asked to drain, do not count.
"""

from pathlib import Path
from typing import NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf

from penstock.model.errors import FileProblem
from penstock.model.telemetry import RecordKind
from penstock.pipeline.clocks import clocks, on_controller_clock
from penstock.pipeline.hops import component, each_once, hops
from penstock.pipeline.ingest import ingest, read_telemetry

SHORTEST_S = 1e-9  # minimum time, for its logarithm
LOW = 0.05  # quantile that stands for the fastest hops
KEPT = 64  # maximum number of single times kept per pair of tasks


class RunSummary(NamedTuple):
    """Summary of one run's telemetry."""

    run: str
    emulated: bool
    seconds: float  # that count
    tasks: pd.DataFrame  # by task and worker: component, processed, given, busy, blocked, interval
    workers: pd.DataFrame  # by worker: used (s of all its machine's cpu), interval, lag (maximum, s), capacities
    services: pd.DataFrame  # by component and worker: count, mean, deviation, log_mean, log_deviation; s
    streams: pd.DataFrame  # by stream: count, bytes (mean of those that have any), remote (share)
    trees: pd.DataFrame  # of complete trees, by stream or component: followed (tuples)
    ways: pd.DataFrame  # by pair of tasks, their workers and number of bytes: count; median, low, times in s


def process_seconds(observed: RunSummary) -> dict[str, float]:
    """Return the core-seconds of each worker that is a process of its own on a machine that reports its cpu.

    A machine that does not report its speed counts as one core.
    """
    workers = observed.workers
    taken = workers["used"] * workers["capacity_cpu"].astype(float).fillna(1.0)
    return dict(zip(workers["worker"], taken.tolist(), strict=True))


def summarise_run(
    spark: SparkSession, folder: Path, run: str | None = None, settle_s: float = 2.0, until: str = "drain"
) -> RunSummary:
    """Summarise the telemetry in a folder; raises if there is nothing to calibrate with.

    run: its name, if the folder has several. until: an event that ends what counts, in addition to the drain.
    """
    good = ingest(read_telemetry(spark, folder).good).good
    if run is not None:
        good = good.where(sf.col("run") == run)
    good = good.cache()
    table = clocks(good).cache()
    whole = each_once(hops(good, table)).cache()
    try:
        span = _span(on_controller_clock(good, table, ("at",)), folder, settle_s, until)
        return _summed(span, good, table, whole, folder)
    finally:
        for cached in (whole, table, good):
            cached.unpersist()


class _Span(NamedTuple):
    """The part of a run that counts."""

    run: str
    emulated: bool
    begin: float
    end: float


def _span(rows: DataFrame, folder: Path, settle_s: float, until: str) -> _Span:
    """Return the interval in which a run's records count; `rows` are on the controller's clock."""
    is_task = _is(RecordKind.TASK)
    ends = _is(RecordKind.EVENT) & sf.col("event").isin("drain", until)
    found = rows.agg(
        sf.sort_array(sf.collect_set("run")).alias("runs"),
        sf.max("emulated").alias("emulated"),
        sf.min(sf.when(is_task, sf.col("at") - sf.col("interval"))).alias("begin"),
        sf.max(sf.when(is_task, sf.col("at"))).alias("last"),
        sf.min(sf.when(ends, sf.col("at"))).alias("drained"),
    ).first()
    if found is None or found.begin is None:
        raise FileProblem(f"{folder}: has no records of tasks; let the application run longer, or use another run")
    if len(found.runs) > 1:
        several = f"has the telemetry of {len(found.runs)} runs, {found.runs[0]} and others"
        raise FileProblem(f"{folder}: {several}; select one run")
    end = found.last if found.drained is None else min(found.last, found.drained)
    if end - found.begin <= settle_s:
        lasted = f"the run lasted {max(end - found.begin, 0.0):.3g} s, but the first {settle_s:g} s do not count"
        raise FileProblem(f"{folder}: {lasted}; let it run longer")
    return _Span(found.runs[0], found.emulated, found.begin + settle_s, end)


def _summed(span: _Span, good: DataFrame, table: DataFrame, whole: DataFrame, folder: Path) -> RunSummary:
    timed = on_controller_clock(good.where(_is(RecordKind.TASK) | _is(RecordKind.MACHINE)), table, ("at",))
    timed = timed.where((sf.col("at") - sf.col("interval") >= span.begin) & (sf.col("at") <= span.end))
    done = good.where(_is(RecordKind.DONE)).select("root").distinct()
    counted = whole.where(sf.col("started").between(span.begin, span.end))
    observed = RunSummary(
        run=span.run,
        emulated=span.emulated,
        seconds=span.end - span.begin,
        tasks=_tasks(timed.where(_is(RecordKind.TASK))).toPandas(),
        workers=_workers(timed.where(_is(RecordKind.MACHINE))).toPandas(),
        services=_services(counted).toPandas(),
        streams=_streams(counted).toPandas(),
        trees=_trees(whole.join(sf.broadcast(done), "root", "left_semi"), good, done).toPandas(),
        ways=_split_times(counted).toPandas(),
    )
    if not len(observed.tasks) or observed.tasks["processed"].sum() == 0:
        raise FileProblem(f"{folder}: its tasks processed nothing; let the application run longer, or at a higher rate")
    if not len(observed.services):
        raise FileProblem(f"{folder}: it has no traced tuple; run the application with --sample")
    return observed


def _is(kind: RecordKind) -> Column:
    return sf.col("kind") == kind.value


def _tasks(rows: DataFrame) -> DataFrame:
    names = ("processed", "given", "busy", "blocked", "interval")
    return rows.groupBy(component("task").alias("component"), "task", "worker").agg(
        *(sf.sum(sf.coalesce(name, sf.lit(0))).cast("double").alias(name) for name in names)
    )


def _workers(rows: DataFrame) -> DataFrame:
    return rows.groupBy("worker").agg(
        sf.sum(sf.col("busy") * sf.col("interval")).alias("used"),
        sf.sum("interval").alias("interval"),
        sf.max(sf.coalesce("lag", sf.lit(0.0))).alias("lag"),
        sf.max("capacity_cpu").alias("capacity_cpu"),
        sf.max("capacity_mb").alias("capacity_mb"),
    )


def _services(rows: DataFrame) -> DataFrame:
    logarithm = sf.log(sf.greatest(sf.col("processing"), sf.lit(SHORTEST_S)))
    return rows.groupBy(sf.col("target_component").alias("component"), sf.col("target_worker").alias("worker")).agg(
        sf.count("*").alias("count"),
        sf.avg("processing").alias("mean"),
        sf.stddev_pop("processing").alias("deviation"),
        sf.avg(logarithm).alias("log_mean"),
        sf.stddev_pop(logarithm).alias("log_deviation"),
    )


def _streams(rows: DataFrame) -> DataFrame:
    other = (sf.col("source_worker") != sf.col("target_worker")).cast("double")
    return rows.groupBy("stream").agg(
        sf.count("*").alias("count"),
        sf.avg(sf.when(sf.col("bytes") > 0, sf.col("bytes"))).alias("bytes"),
        sf.stddev_pop(sf.when(sf.col("bytes") > 0, sf.col("bytes"))).alias("bytes_deviation"),
        sf.avg(other).alias("remote"),
    )


def _trees(whole: DataFrame, good: DataFrame, done: DataFrame) -> DataFrame:
    """Count the tuples of complete trees by stream and by the component that processed them, sources included."""
    roots = good.where(_is(RecordKind.ROOT)).join(sf.broadcast(done), "root", "left_semi").dropDuplicates(["root"])
    empty = sf.lit(None).cast("string")
    counted = (
        whole.select("stream", empty.alias("component"))
        .unionByName(whole.select(empty.alias("stream"), sf.col("target_component").alias("component")))
        .unionByName(roots.select(empty.alias("stream"), component("task").alias("component")))
    )
    return counted.groupBy("stream", "component").agg(sf.count("*").alias("followed"))


def _split_times(rows: DataFrame) -> DataFrame:
    return rows.groupBy("source", "target", "source_worker", "target_worker", "bytes").agg(
        sf.count("*").alias("count"),
        sf.percentile("transfer", 0.5).alias("median"),
        sf.percentile("transfer", LOW).alias("low"),
        sf.slice(sf.collect_list("transfer"), 1, KEPT).alias("times"),
    )
