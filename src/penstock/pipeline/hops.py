"""Hops: one row per tuple and hop, on one clock, with the time spent in each place.

A hop is the path of a tuple over one stream and through one task: it waits in the sender's out-queue, is transferred,
waits in the receiver's in-queue and is processed.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind
from penstock.pipeline.clocks import on_controller_clock

SPANS = ("out_wait", "transfer", "wait", "processing")
"""The parts of a hop's time, in order."""

_KEY = ("run", "root", "id", "target")


def hops(good: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return the hops among the records, their times on the controller's clock.

    `transfer` compares two clocks and may be slightly negative. Also for streams if `clocks` is static, because each
    row is independent.
    """
    rows = good.where(sf.col("kind") == RecordKind.HOP.value)
    rows = on_controller_clock(rows, clocks, ("emitted", "sent"), "source_worker", "source_incarnation")
    rows = on_controller_clock(rows, clocks, ("arrived", "started", "finished"))
    return rows.select(
        "run", "epoch", "root", "id", "parent", "stream", "source",
        sf.col("task").alias("target"),
        component("source").alias("source_component"),
        component("task").alias("target_component"),
        "source_worker",
        sf.col("worker").alias("target_worker"),
        machine("source_worker").alias("source_machine"),
        machine("worker").alias("target_machine"),
        (machine("source_worker") != machine("worker")).alias("remote"),
        "emitted", "sent", "arrived", "started", "finished",
        (sf.col("sent") - sf.col("emitted")).alias("out_wait"),
        (sf.col("arrived") - sf.col("sent")).alias("transfer"),
        (sf.col("started") - sf.col("arrived")).alias("wait"),
        (sf.col("finished") - sf.col("started")).alias("processing"),
        sf.coalesce("bytes", sf.lit(0)).alias("bytes"),
    )  # fmt: skip


def each_once(rows: DataFrame) -> DataFrame:
    """Return every hop once, however often it was recorded, the hops of a root in one partition.

    For batches; a stream would drop duplicates within its watermark instead.
    """
    return rows.repartition("run", "root").dropDuplicates(list(_KEY))


def component(task: str) -> Column:
    """Return the component of a task's name, `component[number]`."""
    return sf.regexp_replace(task, r"\[\d+\]$", "")


def machine(worker: str) -> Column:
    """Return the machine of a worker's name: a machine, or one of its slots, `machine/number`."""
    return sf.substring_index(worker, "/", 1)
