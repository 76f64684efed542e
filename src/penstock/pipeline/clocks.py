"""Clocks: every worker has its own, and all times are compared on the controller's.

A worker's clock records say, from time to time, how far its clock is ahead and how fast it drifts. A time is corrected
by the latest record before it; by the first one where none is before; not at all where the worker has none, which
means that it shares the controller's clock.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind

_KEYS = ("run", "worker", "incarnation")


def clocks(good: DataFrame) -> DataFrame:
    """Return a row a clock record with the span of worker's time, from `since` up to `until`, that it corrects.

    For batches only: it looks along each worker's records. A stream is corrected by the table of those so far.
    """
    records = good.where(sf.col("kind") == RecordKind.CLOCK.value).select(*_KEYS, "at", "offset", "drift")
    own = Window.partitionBy(*_KEYS).orderBy("at", "offset", "drift")
    first = sf.row_number().over(own) == 1
    return records.select(
        *_KEYS,
        sf.when(first, float("-inf")).otherwise(sf.col("at")).alias("since"),
        sf.coalesce(sf.lead("at").over(own), sf.lit(float("inf"))).alias("until"),
        *(sf.col(name).alias(f"clock_{name}") for name in ("at", "offset", "drift")),
    )


def on_controller_clock(
    rows: DataFrame, table: DataFrame, times: tuple[str, ...], worker: str = "worker", incarnation: str = "incarnation"
) -> DataFrame:
    """Replace times of one worker by the controller's; the first of `times` chooses the record for them all.

    One record for all of them keeps the spans between them as they were measured. Also for streams, `table` being
    static: it is a left join to a small table.
    """
    spans = table.select(*(sf.col(name).alias(f"_{name}") for name in table.columns))
    chosen = (
        (sf.col("run") == sf.col("_run"))
        & (sf.col(worker) == sf.col("_worker"))
        & (sf.col(incarnation) == sf.col("_incarnation"))
        & (sf.col(times[0]) >= sf.col("_since"))
        & (sf.col(times[0]) < sf.col("_until"))
    )
    joined = rows.join(sf.broadcast(spans), chosen, "left")
    return joined.withColumns({name: _corrected(sf.col(name)) for name in times}).drop(*spans.columns)


def _corrected(time: Column) -> Column:
    ahead = sf.col("_clock_offset") + sf.col("_clock_drift") * (time - sf.col("_clock_at"))
    return time - sf.coalesce(ahead, sf.lit(0.0))
