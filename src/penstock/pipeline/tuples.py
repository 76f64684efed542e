"""Tuples: the hops of one source tuple joined into one row, with its slowest path and the parts of its latency.

The tree of a tuple ends with the hop that finishes last; from there parents lead back to the source. This path
determines the latency: each hop contributes its time in the out-queue, on the network and in the in-queue, and the time
from its start until the next hop of the path was emitted. The parts add up to the latency.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind
from penstock.pipeline.clocks import on_controller_clock
from penstock.pipeline.hops import SPANS

PARTS = ("source_wait", *SPANS)
"""The parts of a tuple's latency, in order."""

CLOCK_ERROR_S = 1e-3  # controller and pipeline correct the same time slightly differently

_KEY = ("run", "root")
_STEP = (
    "finished", "id", "parent", "stream", "source", "target", "source_component", "target_component", "source_machine",
    "target_machine", "emitted", "sent", "arrived", "started",
)  # fmt: skip
"""Fields of a hop on a path; hops are compared by the first one."""


def tuples(hops: DataFrame, good: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return one row per root: when it was due and finished, whether all of it was seen, and its slowest path.

    `complete` means that the controller recorded it as done; in a run without such records, that no hop lacks its
    parent and every path ends in a component that emits nothing. The parts of the latency are null if hops are missing,
    so that the path does not lead from the source to the end. For batches: it needs all hops of a tuple, each once.
    """
    gathered = _with_run_facts(_gathered(hops, good, clocks), hops, good)
    way = gathered.withColumn("path", _path()).withColumns(
        {
            "due": sf.coalesce("due", "done_due"),
            "finished": _finished(),
            "complete": sf.when(sf.col("tracked"), sf.col("done_finished").isNotNull()).otherwise(_closes()),
        }
    )
    ends = sf.element_at("path", -1)["finished"] == sf.col("finished")
    whole = (sf.col("path")[0]["parent"] == sf.col("root_id")) & ends
    parts = {name: sf.when(whole, part) for name, part in _parts().items()}
    timed = way.withColumn("latency", sf.col("finished") - sf.col("due")).withColumns(_queues())
    return timed.select(
        *_KEY, "source", "due", "emitted", "finished", "latency", "complete",
        sf.coalesce(sf.size("tree"), sf.lit(0)).cast("long").alias("hops"),
        sf.coalesce("remote_hops", sf.lit(0)).alias("remote_hops"),
        sf.coalesce("remote_bytes", sf.lit(0)).alias("remote_bytes"),
        *(part.alias(name) for name, part in parts.items()), "path",
    )  # fmt: skip


def _gathered(hops: DataFrame, good: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return one row per root: the records of its source and of the controller, its hops as an array, null if none.

    All records of a root are collected at once, because joins would sort them several times.
    """
    rows = _ends(good, clocks).unionByName(_steps(hops), allowMissingColumns=True)
    least = ("root_id", "source", "due", "emitted", "done_due", "done_finished")
    together = rows.repartition(*_KEY).groupBy(*_KEY)
    found = together.agg(
        sf.collect_list("step").alias("tree"),
        *(sf.min(name).alias(name) for name in least),
        *(sf.sum(name).alias(name) for name in ("remote_hops", "remote_bytes")),
    )
    found = found.withColumn("tree", sf.when(sf.size("tree") > 0, sf.col("tree")))
    found = found.withColumn("last", sf.array_max("tree"))
    return found.withColumn("finished", sf.col("last")["finished"])


def _ends(good: DataFrame, clocks: DataFrame) -> DataFrame:
    """Return the records of sources and the controller about roots, in separate columns."""
    root, done = (sf.col("kind") == kind.value for kind in (RecordKind.ROOT, RecordKind.DONE))
    reported = good.where(root | done).select(
        *_KEY, "worker", "incarnation",
        sf.when(root, sf.col("id")).alias("root_id"),
        sf.when(root, sf.col("task")).alias("source"),
        sf.when(root, sf.col("due")).alias("due"),
        sf.when(root, sf.col("emitted")).alias("emitted"),
        sf.when(done, sf.col("due")).alias("done_due"),
        sf.when(done, sf.col("finished")).alias("done_finished"),
    )  # fmt: skip
    return on_controller_clock(reported, clocks, ("emitted", "due")).drop("worker", "incarnation")


def _steps(hops: DataFrame) -> DataFrame:
    remote = sf.col("remote").cast("long")
    return hops.select(
        *_KEY,
        sf.struct(*_STEP).alias("step"),
        remote.alias("remote_hops"),
        (remote * sf.col("bytes")).alias("remote_bytes"),
    )


def _finished() -> Column:
    """Return when the last hop finished: according to the hops, or to the controller if it knew of a later one."""
    unseen = sf.col("done_finished") - sf.col("finished") > CLOCK_ERROR_S
    return sf.when(unseen, sf.col("done_finished")).otherwise(sf.coalesce("finished", "done_finished"))


def _with_run_facts(rows: DataFrame, hops: DataFrame, good: DataFrame) -> DataFrame:
    """Add facts about a whole run: whether trees were tracked, and which components emit."""
    sent = hops.select("run", "source_component", sf.lit(False).alias("tracked"))
    done = good.where(sf.col("kind") == RecordKind.DONE.value).select("run", sf.lit(True).alias("tracked"))
    facts = (
        sent.unionByName(done, allowMissingColumns=True)
        .groupBy("run")
        .agg(sf.collect_set("source_component").alias("sending"), sf.max("tracked").alias("tracked"))
    )
    joined = rows.join(sf.broadcast(facts), "run", "left")
    return joined.withColumn("tracked", sf.coalesce("tracked", sf.lit(False)))


def _path() -> Column:
    """Return the hops from the source to the hop that finished last.

    A path visits a component at most once, so the number of components limits the steps back.
    """
    components = sf.array_distinct(sf.transform("tree", lambda hop: hop["target_component"]))

    def step_back(path: Column, _: Column) -> Column:
        first = path[0]
        parent = sf.filter("tree", lambda hop: (hop["id"] == first["parent"]) & (hop["target"] == first["source"]))
        return sf.concat(parent, path)

    return sf.when(
        sf.col("tree").isNotNull(),
        sf.reduce(sf.sequence(sf.lit(1), sf.size(components)), sf.array("last"), step_back),
    )


def _queues() -> dict[str, Column]:
    """Return the total waiting and transfer times of the path's hops."""

    def total(end: str, start: str) -> Column:
        return sf.reduce("path", sf.lit(0.0), lambda sofar, hop: sofar + hop[end] - hop[start])

    spans = {"out_wait": ("sent", "emitted"), "transfer": ("arrived", "sent"), "wait": ("started", "arrived")}
    return {name: total(*ends) for name, ends in spans.items()}


def _parts() -> dict[str, Column]:
    first, last = sf.col("path")[0], sf.element_at("path", -1)
    queues = {name: sf.col(name) for name in _queues()}
    spent = queues["out_wait"] + queues["transfer"] + queues["wait"]
    rest = last["finished"] - first["emitted"] - spent
    return {"source_wait": first["emitted"] - sf.col("due"), **queues, "processing": rest}


def _closes() -> Column:
    parents = sf.transform("tree", lambda hop: hop["parent"])
    ids = sf.transform("tree", lambda hop: hop["id"])
    orphans = sf.array_except(parents, sf.array_append(ids, sf.col("root_id")))
    cut = sf.exists(
        "tree",
        lambda hop: (
            ~sf.array_contains(parents, hop["id"]) & sf.array_contains(sf.col("sending"), hop["target_component"])
        ),
    )
    return sf.coalesce((sf.size(orphans) == 0) & ~cut & sf.col("root_id").isNotNull(), sf.lit(False))
