"""Arrivals: which sound records come too late, and which have come before.

Both are judged by the order in which files were written, so that a folder read at once and the same folder read as a
stream are judged alike. Records of one worker, incarnation and epoch have one clock, and are compared with each other
only: a record is *late* when it is older, by more than the lateness, than the newest that its worker had in files
written before its own; files of the same time do not make each other late. A record is a *duplicate* when its like came
in an earlier file, or earlier in its own. Late ones are not looked at further, so that a stream need not remember
longer than the lateness. Clock records are exempt from both: the same estimate is told over and over.
"""

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind
from penstock.pipeline.ingest import ORIGIN, reason

LATENESS_S = 600.0
LATE, DUPLICATE = "late", "duplicate"
KEYS = ("_key", "_other_key")
"""The identity of a record in twice 64 bits: too long for two records to have the same by chance."""

_CLOCK = ("run", "worker", "incarnation", "epoch")
_IDENTITY = ("kind", *_CLOCK, "at", "root", "id", "task", "event", "detail")
_PLACE = ("path", "row")


def judged(rows: DataFrame, arrived: DataFrame, lateness_s: float) -> DataFrame:
    """Return records with the reason why each cannot be used, doubles apart; null for those that can.

    rows: records with their origin. arrived: `newest` of these and of all files before. For batches; the rows of a
    micro-batch are one.
    """
    rows = rows.withColumn("reason", reason())
    late = _latecomers(arrived, lateness_s)
    same = [sf.col(name) == sf.col(f"_{name}") for name in (*_CLOCK, "written")]
    rows = rows.join(sf.broadcast(late), same, "left")
    behind = _judgeable() & (sf.col("at") < sf.col("_horizon"))
    return rows.withColumn("reason", sf.when(behind, LATE).otherwise(sf.col("reason"))).drop(*late.columns)


def newest(rows: DataFrame) -> DataFrame:
    """Return a row a clock and writing time: the newest and the oldest record in the files of that time."""
    known = [sf.col(name).isNotNull() for name in (*_CLOCK, "kind", "at")]
    fit = rows.where(sf.col("kind") != RecordKind.CLOCK.value).where(
        reduce(and_, known) & (sf.abs("at") < float("inf"))
    )
    return fit.groupBy(*_CLOCK, "written").agg(sf.max("at").alias("newest"), sf.min("at").alias("oldest"))


def identities(records: DataFrame, since: float) -> DataFrame:
    """Return the identities of records that were taken, those from `since` on by whatever clock."""
    return records.where((sf.col("at") >= since) & (sf.col("kind") != RecordKind.CLOCK.value)).select(*_hashes())


def shared(rows: DataFrame, known: DataFrame | None) -> DataFrame:
    """Return the identities that more than one record has, and whether one of them was taken before.

    known: `identities` of records that were taken before, None where there are none. Only identities are compared, so
    that whole records need not be sorted to find the few that came twice.
    """
    own = rows.where(sf.col("kind") != RecordKind.CLOCK.value).select(*_hashes(), sf.lit(False).alias("_known"))
    both = own if known is None else own.unionByName(known.withColumn("_known", sf.lit(True)))
    found = both.groupBy(*KEYS).agg(sf.count("*").alias("_records"), sf.max("_known").alias("_known"))
    return found.where(sf.col("_records") > 1).drop("_records")


def doubles(rows: DataFrame, shared: DataFrame) -> DataFrame:
    """Return where the records are that have come before; the first by file and row is the one that counts.

    rows: as `judged`; shared: as `shared`, kept as a table, for it is small and Spark sees that.
    """
    alike = rows.where(_judgeable()).select(*_hashes(), *ORIGIN).join(shared, list(KEYS))
    again = sf.row_number().over(Window.partitionBy(*KEYS).orderBy("written", "file", "row", "path")) > 1
    found = alike.withColumn("_again", again | sf.col("_known")).where("_again")
    return found.select(*(sf.col(name).alias(f"_{name}") for name in _PLACE))


def without_doubles(rows: DataFrame, doubles: DataFrame) -> DataFrame:
    """Name the records duplicates that are among the doubles, which are kept as a table too."""
    same = [sf.col(name) == sf.col(f"_{name}") for name in _PLACE]
    told = rows.join(doubles, same, "left")
    reason = sf.when(sf.col("_path").isNotNull(), DUPLICATE).otherwise(sf.col("reason"))
    return told.withColumn("reason", reason).drop(*doubles.columns)


def _latecomers(arrived: DataFrame, lateness_s: float) -> DataFrame:
    """Return the clocks and writing times in which something is late, and how old a record may be there."""
    merged = arrived.groupBy(*_CLOCK, "written").agg(sf.max("newest").alias("newest"), sf.min("oldest").alias("oldest"))
    earlier = Window.partitionBy(*_CLOCK).orderBy("written").rowsBetween(Window.unboundedPreceding, -1)
    horizon = sf.max("newest").over(earlier) - lateness_s
    found = merged.withColumn("_horizon", horizon).where(sf.col("oldest") < sf.col("_horizon"))
    return found.select(*(sf.col(name).alias(f"_{name}") for name in (*_CLOCK, "written")), "_horizon")


def _judgeable() -> Column:
    return sf.col("reason").isNull() & (sf.col("kind") != RecordKind.CLOCK.value)


def _hashes() -> list[Column]:
    both = (sf.xxhash64(*_IDENTITY), sf.xxhash64(sf.lit(1), *_IDENTITY))
    return [column.alias(name) for column, name in zip(both, KEYS, strict=True)]
