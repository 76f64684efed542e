"""Tables of a report: hops, tuples and task records summarised by phase.

Percentiles are exact (interpolated between neighbours). Times are in seconds. Rows outside of every phase, such as
those of the settling time, count only if a table says so.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind
from penstock.pipeline.clocks import on_controller_clock
from penstock.pipeline.hops import SPANS, component
from penstock.pipeline.phases import Phase, phase_of
from penstock.pipeline.tuples import PARTS

STRAGGLES = 2.0  # times the median of the others
FEWEST = 20  # minimum number of hops of a task for its tail to be meaningful
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def quarantine_reasons(quarantined: DataFrame) -> DataFrame:
    """Return one row per reason: the number of records."""
    return quarantined.groupBy("reason").agg(sf.count("*").alias("count")).orderBy(sf.desc("count"), "reason")


def component_times(hops: DataFrame, phases: Sequence[Phase]) -> DataFrame:
    """Return one row per phase and component: waiting, processing and total time of its tuples, and their transfer."""
    total = sf.col("wait") + sf.col("processing")
    rows = hops.withColumns({"phase": phase_of("arrived", phases), "total": total, "transfer": _clipped("transfer")})
    columns = [sf.count("*").alias("count")]
    for name in ("wait", "processing", "total"):
        columns += _quantiles(name)
    columns += [sf.avg(name).alias(f"{name}_mean") for name in (*SPANS, "total")]
    kept = rows.where(sf.col("phase").isNotNull())
    return kept.groupBy("phase", sf.col("target_component").alias("component")).agg(*columns)


def edge_times(hops: DataFrame, phases: Sequence[Phase]) -> DataFrame:
    """Return one row per phase, stream and pair of machines, and one per phase and stream, its machines null.

    Transfers that are negative because of clock errors count as zero and are counted separately.
    """
    rows = hops.withColumns(
        {
            "phase": phase_of("arrived", phases),
            "negative": (sf.col("transfer") < 0).cast("int"),
            "transfer": _clipped("transfer"),
            "far": sf.when(sf.col("remote"), _clipped("transfer")),
        }
    ).where(sf.col("phase").isNotNull())
    pair = ("source_machine", "target_machine")
    keys = [sf.col(name) for name in ("phase", "stream", *pair)]
    return rows.groupingSets([keys, keys[:2]], *keys).agg(
        sf.count("*").alias("count"),
        sf.avg(sf.col("remote").cast("double")).alias("remote_share"),
        sf.avg("bytes").alias("bytes_mean"),
        *_quantiles("transfer"),
        *_quantiles("far"),
        sf.percentile("out_wait", 0.99).alias("out_wait_p99"),
        sf.sum("negative").alias("negative"),
    )


def latencies(tuples: DataFrame, phases: Sequence[Phase]) -> DataFrame:
    """Return one row per phase, by when tuples were due, and one with phase null for the whole run including settling.

    `count` is the number of complete tuples, which alone are measured; `roots` that of all.
    """
    rows = tuples.withColumn("phase", phase_of("due", phases))
    done = sf.col("complete")
    measured = rows.withColumns({name: sf.when(done, sf.col(name)) for name in ("latency", *PARTS)})
    summed = measured.cube("phase").agg(
        sf.grouping("phase").alias("whole"),
        sf.count("*").alias("roots"),
        sf.count("latency").alias("count"),
        *_quantiles("latency", ""),
        sf.max("latency").alias("worst"),
        sf.avg("latency").alias("mean"),
        *(sf.avg(name).alias(name) for name in PARTS),
        sf.avg(sf.when(done, sf.col("hops"))).alias("hops"),
        sf.avg(sf.when(done, sf.col("remote_hops"))).alias("remote_hops"),
        sf.avg(sf.when(done, sf.col("remote_bytes"))).alias("remote_bytes"),
    )
    return summed.where((sf.col("whole") == 1) | sf.col("phase").isNotNull()).drop("whole")


def task_rates(good: DataFrame, clocks: DataFrame, phases: Sequence[Phase]) -> DataFrame:
    """Return one row per phase, task and worker: tuples per second processed and emitted, and until when.

    A record counts for the phase in which the middle of its interval is.
    """
    rows = _task_records(good, clocks).withColumn("phase", phase_of("middle", phases))
    kept = rows.where(sf.col("phase").isNotNull())
    return kept.groupBy("phase", component("task").alias("component"), "task", "worker").agg(
        *(sf.sum(name).alias(name) for name in ("processed", "given", "interval", "busy")), sf.max("at").alias("until")
    )


def source_seconds(good: DataFrame, clocks: DataFrame, sources: Sequence[str], start: float) -> DataFrame:
    """Return a row a second since `start`: the tuples that sources gave in it."""
    rows = _task_records(good, clocks).where(component("task").isin(*sources))
    return rows.groupBy(_second("middle", start).alias("second")).agg(sf.sum("given").alias("given"))


def latency_seconds(tuples: DataFrame, start: float) -> DataFrame:
    """Return a row a second since `start`: the latency of the tuples that were due in it."""
    done = tuples.where("complete and latency is not null")
    return done.groupBy(_second("due", start).alias("second")).agg(
        sf.count("*").alias("count"), *_quantiles("latency", "")
    )


def task_tails(hops: DataFrame, phases: Sequence[Phase]) -> DataFrame:
    """Return one row per phase, task and machine: 95th percentile of waiting and processing, and its component's."""
    rows = hops.withColumn("phase", phase_of("arrived", phases)).where(sf.col("phase").isNotNull())
    tails = rows.groupBy(
        "phase",
        sf.col("target_component").alias("component"),
        sf.col("target").alias("task"),
        sf.col("target_machine").alias("machine"),
    ).agg(sf.count("*").alias("count"), sf.percentile(sf.col("wait") + sf.col("processing"), 0.95).alias("p95"))
    return beside_fellows(tails, "phase")


def beside_fellows(tails: DataFrame, by: str) -> DataFrame:
    """Add the usual tail of its component to the tail of each task; `by` names the groups that are kept apart.

    `usual` is the median of the component's tasks (the lower of the two in the middle, so that one of two tasks can be
    slow), `ratio` the task's tail relative to that. Tasks with few hops are left out.
    """
    others = Window.partitionBy(by, "component")
    seen = tails.where(sf.col("count") >= FEWEST)
    compared = seen.withColumn("usual", _lower_median(sf.collect_list("p95").over(others)))
    return compared.withColumn("ratio", sf.try_divide("p95", "usual"))


def stragglers(tails: DataFrame, by: str = "phase") -> DataFrame:
    """Return the tasks whose tail is more than twice the usual one of their component, the slowest first."""
    return tails.where(sf.col("ratio") > STRAGGLES).orderBy(by, sf.desc("ratio"), "task")


def slow_machines(tails: DataFrame, by: str = "phase") -> DataFrame:
    """Return the machines whose tasks, by the median of their ratios, are more than twice as slow as usual."""
    machines = tails.groupBy(by, "machine").agg(
        sf.count("*").alias("tasks"), _lower_median(sf.collect_list("ratio")).alias("ratio")
    )
    return machines.where(sf.col("ratio") > STRAGGLES).orderBy(by, sf.desc("ratio"), "machine")


def worst_lags(good: DataFrame, clocks: DataFrame, phases: Sequence[Phase]) -> DataFrame:
    """Return one row per phase: the maximum delay of any worker's loop, whatever the cause."""
    rows = on_controller_clock(good.where(sf.col("kind") == RecordKind.MACHINE.value), clocks, ("at",))
    placed = rows.withColumn("phase", phase_of("at", phases)).where(sf.col("phase").isNotNull())
    return placed.groupBy("phase").agg(sf.max("lag").alias("lag"))


def _task_records(good: DataFrame, clocks: DataFrame) -> DataFrame:
    rows = on_controller_clock(good.where(sf.col("kind") == RecordKind.TASK.value), clocks, ("at",))
    return rows.withColumn("middle", sf.col("at") - sf.col("interval") / 2)


def _quantiles(column: str, prefix: str | None = None) -> list[Column]:
    before = f"{column}_" if prefix is None else prefix
    return [sf.percentile(column, share).alias(f"{before}{name}") for name, share in QUANTILES.items()]


def _lower_median(values: Column) -> Column:
    ordered = sf.sort_array(values)
    return sf.element_at(ordered, ((sf.size(ordered) + 1) / 2).cast("int"))


def _second(time: str, start: float) -> Column:
    return sf.floor(sf.col(time) - start)


def _clipped(column: str) -> Column:
    return sf.greatest(sf.col(column), sf.lit(0.0))
