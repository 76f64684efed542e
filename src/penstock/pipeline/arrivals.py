"""Find records that arrive too late, and duplicates.

Both depend on the order in which files were written, so reading a folder at once or as a stream gives the same result.
Records of one worker, incarnation and epoch share a clock and are compared only with each other. A record is *late* if
it is older, by more than the allowed lateness, than the newest record of its clock in earlier files; files of the same
time do not make each other late. A record is a *duplicate* if an equal one is in an earlier file, or earlier in its
own. Late records are dropped, so a stream need not remember more than the lateness. Clock records are exempt from both,
because the same estimate is repeated.
"""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind
from penstock.pipeline.ingest import FARTHEST, ORIGIN, rejection_reason
from penstock.pipeline.windows import MOST_WINDOWS

LATENESS_S = 600.0
LATE, DUPLICATE, FAR = "late", "duplicate", "time is too far from others"
KEYS = ("_key", "_other_key")
"""Identity of a record in 128 bits: enough to exclude equal ones by chance."""

_CLOCK = ("run", "worker", "incarnation", "epoch")
_IDENTITY = ("kind", *_CLOCK, "at", "root", "id", "task", "event", "detail")
_PLACE = ("path", "row")


def check_records(rows: DataFrame, arrived: DataFrame, lateness_s: float, window_s: float) -> DataFrame:
    """Return records with the reason why each cannot be used, except for duplicates; null if it can.

    rows: records with their origin. arrived: `find_newest` of these and all earlier files. For batches; a micro-batch
    is one.
    """
    rows = rows.withColumn("reason", rejection_reason())
    if 2 * FARTHEST / window_s > MOST_WINDOWS:  # numbers of windows could overflow
        rows = _without_far(rows, MOST_WINDOWS // 2 * window_s)
    late = _latecomers(arrived, lateness_s)
    same = [sf.col(name) == sf.col(f"_{name}") for name in (*_CLOCK, "written")]
    rows = rows.join(sf.broadcast(late), same, "left")
    behind = _judgeable() & (sf.col("at") < sf.col("_horizon"))
    return rows.withColumn("reason", sf.when(behind, LATE).otherwise(sf.col("reason"))).drop(*late.columns)


def find_newest(rows: DataFrame) -> DataFrame:
    """Return one row per clock and writing time: the newest and the oldest record in the files of that time."""
    known = [sf.col(name).isNotNull() for name in (*_CLOCK, "kind", "at")]
    fit = rows.where(sf.col("kind") != RecordKind.CLOCK.value).where(
        reduce(and_, known) & (sf.abs("at") < float("inf"))
    )
    return fit.groupBy(*_CLOCK, "written").agg(sf.max("at").alias("newest"), sf.min("at").alias("oldest"))


def list_identities(records: DataFrame, since: float) -> DataFrame:
    """Return the identities of accepted records since a time, on any clock."""
    return records.where((sf.col("at") >= since) & (sf.col("kind") != RecordKind.CLOCK.value)).select(*_hashes())


def find_shared(rows: DataFrame, known: DataFrame | None) -> DataFrame:
    """Return the identities that several records have, and whether one of them was accepted before.

    known: `identities` of records accepted before, None if there are none. Only identities are compared, so whole
    records need not be sorted to find the few duplicates.
    """
    own = rows.where(sf.col("kind") != RecordKind.CLOCK.value).select(*_hashes(), sf.lit(False).alias("_known"))
    both = own if known is None else own.unionByName(known.withColumn("_known", sf.lit(True)))
    found = both.groupBy(*KEYS).agg(sf.count("*").alias("_records"), sf.max("_known").alias("_known"))
    return found.where(sf.col("_records") > 1).drop("_records")


def find_duplicates(rows: DataFrame, shared: DataFrame) -> DataFrame:
    """Return the positions of duplicates; the first record by file and row is the original.

    rows: see `check_records`. shared: see `find_shared`, as a written table, so that Spark knows its small size.
    """
    alike = rows.where(_judgeable()).select(*_hashes(), *ORIGIN).join(shared, list(KEYS))
    again = sf.row_number().over(Window.partitionBy(*KEYS).orderBy("written", "file", "row", "path")) > 1
    found = alike.withColumn("_again", again | sf.col("_known")).where("_again")
    return found.select(*(sf.col(name).alias(f"_{name}") for name in _PLACE))


def mark_duplicates(rows: DataFrame, doubles: DataFrame) -> DataFrame:
    """Mark the records among the duplicates, which are a written table, too."""
    same = [sf.col(name) == sf.col(f"_{name}") for name in _PLACE]
    marked = rows.join(doubles, same, "left")
    reason = sf.when(sf.col("_path").isNotNull(), DUPLICATE).otherwise(sf.col("reason"))
    return marked.withColumn("reason", reason).drop(*doubles.columns)


def _latecomers(arrived: DataFrame, lateness_s: float) -> DataFrame:
    """Return the clocks and writing times with late records, and the age limit of each."""
    merged = arrived.groupBy(*_CLOCK, "written").agg(sf.max("newest").alias("newest"), sf.min("oldest").alias("oldest"))
    earlier = Window.partitionBy(*_CLOCK).orderBy("written").rowsBetween(Window.unboundedPreceding, -1)
    horizon = sf.max("newest").over(earlier) - lateness_s
    found = merged.withColumn("_horizon", horizon).where(sf.col("oldest") < sf.col("_horizon"))
    return found.select(*(sf.col(name).alias(f"_{name}") for name in (*_CLOCK, "written")), "_horizon")


def _without_far(rows: DataFrame, span_s: float) -> DataFrame:
    """Reject records with a time that differs by more than a span from the median of their clock."""
    middles = rows.where(sf.col("reason").isNull()).groupBy(*_CLOCK).agg(sf.percentile_approx("at", 0.5).alias("_at"))
    middles = middles.withColumnsRenamed({name: f"_{name}" for name in _CLOCK})
    same = [sf.col(name) == sf.col(f"_{name}") for name in _CLOCK]
    times = (sf.col("at"), sf.col("at") - sf.col("interval"), sf.col("due"), sf.col("started"))
    far = sf.greatest(*(sf.abs(time - sf.col("_at")) for time in times)) > span_s
    rows = rows.join(sf.broadcast(middles), same, "left")
    return rows.withColumn("reason", sf.when(sf.col("reason").isNull() & far, FAR).otherwise(sf.col("reason"))).drop(
        *middles.columns
    )


def _judgeable() -> Column:
    return sf.col("reason").isNull() & (sf.col("kind") != RecordKind.CLOCK.value)


def _hashes() -> list[Column]:
    both = (sf.xxhash64(*_IDENTITY), sf.xxhash64(sf.lit(1), *_IDENTITY))
    return [column.alias(name) for column, name in zip(both, KEYS, strict=True)]
