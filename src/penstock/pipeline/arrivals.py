"""Arrivals: which sound records come too late, and which have come before.

Both are judged by the order in which files were written, so that a folder read at once and the same folder read as a
stream are judged alike. Records of one worker, incarnation and epoch have one clock, and are compared with each other
only: a record is *late* when it is older, by more than the lateness, than the newest that its worker had in files
written before its own; files of the same time do not make each other late. A record is a *duplicate* when its like came
in an earlier file, or earlier in its own. Late ones are not looked at further, so that a stream need not remember
longer than the lateness. Clock records are exempt from both: the same estimate is told over and over.
"""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind
from penstock.pipeline.ingest import reason

LATENESS_S = 600.0
LATE, DUPLICATE = "late", "duplicate"
KEYS = ("_key", "_other_key")
"""The identity of a record in twice 64 bits: too long for two records to have the same by chance."""

_CLOCK = ("run", "worker", "incarnation", "epoch")
_IDENTITY = ("kind", *_CLOCK, "at", "root", "id", "task", "event", "detail")


def judged(rows: DataFrame, arrived: DataFrame, known: DataFrame | None, lateness_s: float) -> DataFrame:
    """Return records with the reason why each cannot be used, null for those that can.

    rows: records with their origin. arrived: `newest` of these and of all files before. known: `identities` of records
    that were taken before, None where there are none. For batches; the rows of a micro-batch are one.
    """
    rows = rows.withColumn("reason", reason())
    late = _latecomers(arrived, lateness_s)
    same = [sf.col(name) == sf.col(f"_{name}") for name in (*_CLOCK, "written")]
    rows = rows.join(sf.broadcast(late), same, "left")
    behind = _judgeable() & (sf.col("at") < sf.col("_horizon"))
    rows = rows.withColumn("reason", sf.when(behind, LATE).otherwise(sf.col("reason"))).drop(*late.columns)
    return _without_doubles(rows, known)


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


def _latecomers(arrived: DataFrame, lateness_s: float) -> DataFrame:
    """Return the clocks and writing times in which something is late, and how old a record may be there."""
    merged = arrived.groupBy(*_CLOCK, "written").agg(sf.max("newest").alias("newest"), sf.min("oldest").alias("oldest"))
    earlier = Window.partitionBy(*_CLOCK).orderBy("written").rowsBetween(Window.unboundedPreceding, -1)
    horizon = sf.max("newest").over(earlier) - lateness_s
    found = merged.withColumn("_horizon", horizon).where(sf.col("oldest") < sf.col("_horizon"))
    return found.select(*(sf.col(name).alias(f"_{name}") for name in (*_CLOCK, "written")), "_horizon")


def _without_doubles(rows: DataFrame, known: DataFrame | None) -> DataFrame:
    """Name the records that have come before duplicates; the first by file and row is the one that counts."""
    itself = _hashes(("file", "row", "written"))  # what cannot be a double is like nothing else
    keys = {
        name: sf.when(_judgeable(), own).otherwise(other)
        for name, own, other in zip(KEYS, _hashes(), itself, strict=True)
    }
    rows = rows.withColumns(keys)
    again = sf.row_number().over(Window.partitionBy(*KEYS).orderBy("written", "file", "row")) > 1
    if known is not None:
        rows = rows.join(known.distinct().withColumn("_known", sf.lit(True)), list(KEYS), "left")
        again = again | sf.col("_known").isNotNull()
    told = rows.withColumn("_again", again)
    doubled = sf.when(_judgeable() & sf.col("_again"), DUPLICATE).otherwise(sf.col("reason"))
    return told.withColumn("reason", doubled).drop(*KEYS, "_again", "_known")


def _judgeable() -> Column:
    return sf.col("reason").isNull() & (sf.col("kind") != RecordKind.CLOCK.value)


def _hashes(columns: Sequence[str] = _IDENTITY) -> list[Column]:
    both = (sf.xxhash64(*columns), sf.xxhash64(sf.lit(1), *columns))
    return [column.alias(name) for column, name in zip(both, KEYS, strict=True)]
