"""Windows: a run cut into equal spans, and what was true of every task and every edge in each.

These are the rows that latency models learn from: Li's features (`model/features.py`) beside what they are to predict.
Windows are counted from when the run's first tuple was due. A hop belongs to the window in which its tuple was taken
up, where its transfer ends and its processing begins; a record about an interval belongs to the one in which the middle
of the interval is. Latencies come from the hops of sampled tuples, loads from the tasks' own counts of all tuples.

A task that was seen on two machines in a window has no row there to learn from, nor has an edge that begins or ends in
it: features that are half of one machine and half of another would describe neither. So has none whose task told
nothing of itself. What a moved task did counts for both machines' loads, and its own load is kept without a machine: a
task's load is the same wherever it is. In `shares` every hop counts.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.features import EDGE_WINDOW, TASK_WINDOW, WINDOW_S
from penstock.model.telemetry import RecordKind
from penstock.pipeline.clocks import on_controller_clock
from penstock.pipeline.hops import component, machine

_WINDOW = ("run", "window")
_PAIR = ("stream", "source", "target")
_MACHINES = ("source_machine", "target_machine")
_AT_END = {
    "task": "", "machine": "_machine", "machine_cpu": "_cpu", "machine_memory": "_memory",
    "task_load": "_load", "machine_load": "_machine_load", "used_cpu": "_used_cpu",
}  # fmt: skip
"""What a task's column is called behind the end of an edge that the task is."""


def starts(good: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return a row a run: when its first tuple was due, by its sources or else by the controller.

    For batches, of whole runs, as is all here.
    """
    told = good.where(sf.col("kind").isin(RecordKind.ROOT.value, RecordKind.DONE.value)).select(
        "kind", "run", "worker", "incarnation", "due"
    )
    first = sf.min(sf.when(sf.col("kind") == RecordKind.ROOT.value, sf.col("due")))
    return (
        on_controller_clock(told, clocks, ("due",))
        .groupBy("run")
        .agg(sf.coalesce(first, sf.min("due")).alias("first_due"))
    )


def tuples_starts(tuples: DataFrame) -> DataFrame:
    """Return the same as `starts` from the table of tuples: only what a source told of has a `source`."""
    told = sf.min(sf.when(sf.col("source").isNotNull(), sf.col("due")))
    return tuples.groupBy("run").agg(sf.coalesce(told, sf.min("due")).alias("first_due"))


def features(good: DataFrame, clocks: DataFrame, begun: DataFrame, window_s: float = WINDOW_S) -> DataFrame:
    """Return a row a window and task, with its features; of one that was on several machines, its load alone.

    begun: the `starts`.
    """
    loads = _task_loads(good, clocks, begun, window_s)
    here = loads.groupBy(*_WINDOW, "machine").agg(
        sf.sum("processed").alias("machine_processed"),
        sf.max("seconds").alias("longest"),
        (sf.count("*") - 1).alias("colocated"),
    )
    here = here.join(_machines(good, clocks, begun, window_s), [*_WINDOW, "machine"], "left")
    # The machine's own seconds: those of a task that came or left in the window are fewer.
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


def task_windows(hops: DataFrame, features: DataFrame, begun: DataFrame, window_s: float = WINDOW_S) -> DataFrame:
    """Return a row a window and task, with the columns of `TASK_WINDOW`."""
    seen = hops.select(
        "run", "processing", "started", sf.col("target").alias("task"), sf.col("target_machine").alias("machine")
    )
    labels = (
        in_windows(seen, "started", begun, window_s)
        .groupBy(*_WINDOW, "task", "machine")
        .agg(sf.count("*").alias("count"), sf.avg("processing").alias("processing_s"))
    )
    rows = labels.join(features, [*_WINDOW, "task", "machine"])
    return rows.withColumn("component", component("task")).select(*TASK_WINDOW)


def edge_windows(hops: DataFrame, features: DataFrame, begun: DataFrame, window_s: float = WINDOW_S) -> DataFrame:
    """Return a row a window, stream and pair of tasks, with the columns of `EDGE_WINDOW`."""
    between = hops.withColumn("between", sf.col("started") - sf.col("emitted"))
    rows = (
        in_windows(between, "started", begun, window_s)
        .groupBy(*_WINDOW, *_PAIR, *_MACHINES)
        .agg(sf.count("*").alias("count"), sf.avg("between").alias("transfer_s"))
    )
    for end in ("source", "target"):
        there = features.drop("colocated").withColumnsRenamed({name: f"{end}{rest}" for name, rest in _AT_END.items()})
        rows = rows.join(there, [*_WINDOW, end, f"{end}_machine"])
    together = (sf.col("source_machine") == sf.col("target_machine")).cast("double")
    return rows.withColumn("same_machine", together).select(*EDGE_WINDOW)


def shares(hops: DataFrame, begun: DataFrame, window_s: float = WINDOW_S) -> DataFrame:
    """Return a row a window, stream and pair of tasks: the sampled tuples, and their share of the stream's.

    Shares are the weights of eqs. (2.2) and (2.3): over several windows they are those of the summed tuples.
    """
    placed = in_windows(hops, "started", begun, window_s)
    counted = placed.groupBy(*_WINDOW, *_PAIR).agg(sf.count("*").alias("tuples"))
    whole = sf.sum("tuples").over(Window.partitionBy(*_WINDOW, "stream"))
    return counted.select(*_WINDOW, *_PAIR, "tuples", (sf.col("tuples") / whole).alias("share"))


def in_windows(rows: DataFrame, time: str, begun: DataFrame, window_s: float) -> DataFrame:
    """Add to rows the number of the window that a time of theirs is in; what was before the first is left out."""
    number = sf.floor((sf.col(time) - sf.col("first_due")) / window_s).cast("int")
    placed = rows.join(sf.broadcast(begun), "run").withColumn("window", number)
    return placed.where(sf.col("window") >= 0).drop("first_due")


def _task_loads(good: DataFrame, clocks: DataFrame, begun: DataFrame, window_s: float) -> DataFrame:
    """Return a row a window, task and machine: the tuples processed there, and over how many seconds."""
    rows = _intervals(good, RecordKind.TASK, clocks, begun, window_s)
    return rows.groupBy(*_WINDOW, "task", "machine").agg(
        sf.sum("processed").alias("processed"), sf.sum("interval").alias("seconds")
    )


def _machines(good: DataFrame, clocks: DataFrame, begun: DataFrame, window_s: float) -> DataFrame:
    """Return a row a window and machine: what it has, and the share of its cpu that all of its workers used.

    Its workers share what it has, and each tells all of it, and which share it used itself. One that came or left in
    the window used nothing in the rest of the machine's own seconds.
    """
    rows = _intervals(good, RecordKind.MACHINE, clocks, begun, window_s)
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


def _intervals(good: DataFrame, kind: RecordKind, clocks: DataFrame, begun: DataFrame, window_s: float) -> DataFrame:
    rows = on_controller_clock(good.where(sf.col("kind") == kind.value), clocks, ("at",))
    rows = rows.withColumns({"middle": sf.col("at") - sf.col("interval") / 2, "machine": machine("worker")})
    return in_windows(rows, "middle", begun, window_s)
