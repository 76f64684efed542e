"""Windows: a run divided into equal intervals, with the features of every task and edge in each.

Latency models are trained on these rows: Li's features (`model/features.py`) and the labels to predict. Windows are
counted from when the run's first tuple was due. A hop belongs to the window in which its transfer ends and its
processing starts; a record about an interval belongs to the window that contains the interval's middle. Latencies come
from the hops of sampled tuples, loads from the tasks' own counts of all tuples.

A task that was on two machines in a window has no row to train on, nor has an edge that starts or ends in it: features
that mix two machines would describe neither. A task without records of its own has none either. The work of a moved
task counts for the loads of both machines, and its own load is kept without a machine, because a task's load does not
depend on the machine. In `shares` every hop counts.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.features import EDGE_WINDOW, TASK_WINDOW, WINDOW_S
from penstock.model.telemetry import RecordKind
from penstock.pipeline.clocks import on_controller_clock
from penstock.pipeline.hops import component, machine

MOST_WINDOWS = 2**31 - 1
"""Maximum number of a window."""

_WINDOW = ("run", "window")
_PAIR = ("stream", "source", "target")
_MACHINES = ("source_machine", "target_machine")
_AT_END = {
    "task": "", "machine": "_machine", "machine_cpu": "_cpu", "machine_memory": "_memory",
    "task_load": "_load", "machine_load": "_machine_load", "used_cpu": "_used_cpu",
}  # fmt: skip
"""Suffix of a task's column at one end of an edge."""


def find_starts(good: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return one row per run: when its first tuple was due, according to its sources or else to the controller.

    For batches of whole runs, like all functions here.
    """
    rows = good.where(sf.col("kind").isin(RecordKind.ROOT.value, RecordKind.DONE.value)).select(
        "kind", "run", "worker", "incarnation", "due"
    )
    first = sf.min(sf.when(sf.col("kind") == RecordKind.ROOT.value, sf.col("due")))
    return (
        on_controller_clock(rows, clocks, ("due",))
        .groupBy("run")
        .agg(sf.coalesce(first, sf.min("due")).alias("first_due"))
    )


def find_tuple_starts(tuples: DataFrame) -> DataFrame:
    """Return the same as `find_starts` from the table of tuples; only tuples recorded by a source have a `source`."""
    rows = sf.min(sf.when(sf.col("source").isNotNull(), sf.col("due")))
    return tuples.groupBy("run").agg(sf.coalesce(rows, sf.min("due")).alias("first_due"))


def compute_features(good: DataFrame, clocks: DataFrame, starts: DataFrame, window_s: float = WINDOW_S) -> DataFrame:
    """Return one row per window and task, with its features; if it was on several machines, only its load.

    starts: see `find_starts`.
    """
    loads = _task_loads(good, clocks, starts, window_s)
    here = loads.groupBy(*_WINDOW, "machine").agg(
        sf.sum("processed").alias("machine_processed"),
        sf.max("seconds").alias("longest"),
        (sf.count("*") - 1).alias("colocated"),
    )
    here = here.join(_machines(good, clocks, starts, window_s), [*_WINDOW, "machine"], "left")
    # The machine's own seconds: a task that arrived or left in the window has fewer.
    load = sf.try_divide("machine_processed", sf.coalesce("machine_seconds", "longest"))
    places = sf.count("*").over(Window.partitionBy(*_WINDOW, "task"))
    placed = loads.withColumn("places", places)
    own = sf.try_divide("processed", "seconds").alias("task_load")
    stayed = placed.where(sf.col("places") == 1).join(here.withColumn("machine_load", load), [*_WINDOW, "machine"])
    whole = placed.where(sf.col("places") > 1).groupBy(*_WINDOW, "task")
    moved = whole.agg(sf.sum("processed").alias("processed"), sf.sum("seconds").alias("seconds"))
    return stayed.select(
        *_WINDOW, "task", "machine", "machine_cpu", "machine_memory", own, "machine_load",
        sf.col("colocated").cast("double").alias("colocated"), "used_cpu",
    ).unionByName(moved.select(*_WINDOW, "task", own), allowMissingColumns=True)  # fmt: skip


def task_windows(hops: DataFrame, features: DataFrame, starts: DataFrame, window_s: float = WINDOW_S) -> DataFrame:
    """Return one row per window and task, with the columns of `TASK_WINDOW`."""
    seen = hops.select(
        "run", "processing", "started", sf.col("target").alias("task"), sf.col("target_machine").alias("machine")
    )
    labels = (
        in_windows(seen, "started", starts, window_s)
        .groupBy(*_WINDOW, "task", "machine")
        .agg(sf.count("*").alias("count"), sf.avg("processing").alias("processing_s"))
    )
    rows = labels.join(features, [*_WINDOW, "task", "machine"])
    return rows.withColumn("component", component("task")).select(*TASK_WINDOW)


def edge_windows(hops: DataFrame, features: DataFrame, starts: DataFrame, window_s: float = WINDOW_S) -> DataFrame:
    """Return one row per window, stream and pair of tasks, with the columns of `EDGE_WINDOW`."""
    between = hops.withColumn("between", sf.col("started") - sf.col("emitted"))
    rows = (
        in_windows(between, "started", starts, window_s)
        .groupBy(*_WINDOW, *_PAIR, *_MACHINES)
        .agg(sf.count("*").alias("count"), sf.avg("between").alias("transfer_s"))
    )
    for end in ("source", "target"):
        there = features.drop("colocated").withColumnsRenamed({name: f"{end}{rest}" for name, rest in _AT_END.items()})
        rows = rows.join(there, [*_WINDOW, end, f"{end}_machine"])
    together = (sf.col("source_machine") == sf.col("target_machine")).cast("double")
    return rows.withColumn("same_machine", together).select(*EDGE_WINDOW)


def compute_shares(hops: DataFrame, starts: DataFrame, window_s: float = WINDOW_S) -> DataFrame:
    """Return one row per window, stream and pair of tasks: the sampled tuples, and their share of the stream's.

    Shares are the weights of eqs. (2.2) and (2.3): over several windows they follow from the summed tuples.
    """
    placed = in_windows(hops, "started", starts, window_s)
    counted = placed.groupBy(*_WINDOW, *_PAIR).agg(sf.count("*").alias("tuples"))
    whole = sf.sum("tuples").over(Window.partitionBy(*_WINDOW, "stream"))
    return counted.select(*_WINDOW, *_PAIR, "tuples", (sf.col("tuples") / whole).alias("share"))


def in_windows(rows: DataFrame, time: str, starts: DataFrame, window_s: float) -> DataFrame:
    """Add the number of the window that contains a time; rows before the first window are left out."""
    number = sf.floor((sf.col(time) - sf.col("first_due")) / window_s)
    placed = rows.join(sf.broadcast(starts), "run").withColumn("window", number)
    placed = placed.where(sf.col("window").between(0, MOST_WINDOWS))
    return placed.withColumn("window", sf.col("window").cast("int")).drop("first_due")


def _task_loads(good: DataFrame, clocks: DataFrame, starts: DataFrame, window_s: float) -> DataFrame:
    """Return one row per window, task and machine: the tuples processed there, and over how many seconds."""
    rows = _intervals(good, RecordKind.TASK, clocks, starts, window_s)
    return rows.groupBy(*_WINDOW, "task", "machine").agg(
        sf.sum("processed").alias("processed"), sf.sum("interval").alias("seconds")
    )


def _machines(good: DataFrame, clocks: DataFrame, starts: DataFrame, window_s: float) -> DataFrame:
    """Return one row per window and machine: its capacity, and the share of its cpu that all of its workers used.

    Its workers share the machine; each reports its whole capacity and the share used by itself. A worker that arrived
    or left in the window used nothing in the rest of the machine's own seconds.
    """
    rows = _intervals(good, RecordKind.MACHINE, clocks, starts, window_s)
    workers = rows.groupBy(*_WINDOW, "machine", "worker").agg(
        sf.sum(sf.col("busy") * sf.col("interval")).alias("used"),
        sf.sum("interval").alias("seconds"),
        sf.max("capacity_cpu").alias("capacity_cpu"),
        sf.max("capacity_mb").alias("capacity_mb"),
    )
    return workers.groupBy(*_WINDOW, "machine").agg(
        sf.max("capacity_cpu").alias("machine_cpu"),
        sf.max("capacity_mb").alias("machine_memory"),
        sf.try_divide(sf.sum("used"), sf.max("seconds")).alias("used_cpu"),
        sf.max("seconds").alias("machine_seconds"),
    )


def _intervals(good: DataFrame, kind: RecordKind, clocks: DataFrame, starts: DataFrame, window_s: float) -> DataFrame:
    rows = on_controller_clock(good.where(sf.col("kind") == kind.value), clocks, ("at",))
    rows = rows.withColumns({"middle": sf.col("at") - sf.col("interval") / 2, "machine": machine("worker")})
    return in_windows(rows, "middle", starts, window_s)
