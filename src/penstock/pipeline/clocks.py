"""Clocks: every worker has its own, and all times are compared on the controller's.

A worker's clock records say, from time to time, how far its clock is ahead and how fast it drifts. A time is corrected
by the latest record before it; by the first one where none is before; not at all where the worker has none, which
means that it shares the controller's clock.

A long run has many such records. So that a time is compared with a few of them and not with all, a worker's records are
laid out on a grid with as many cells as there are records, and a time is looked up in its own cell only.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind

_KEYS = ("run", "worker", "incarnation")
_INF = float("inf")


def clocks(good: DataFrame) -> DataFrame:
    """Return a row a worker whose clock is ever off: its grid, each cell with the corrections that apply in it.

    `low` is where the grid begins, `wide` how wide a cell is, `cells` the cells. For batches only: it looks along each
    worker's records. A stream is corrected by the table of those so far.
    """
    records = good.where(sf.col("kind") == RecordKind.CLOCK.value).select(*_KEYS, "at", "offset", "drift").distinct()
    own = Window.partitionBy(*_KEYS)
    following = own.orderBy("at", "offset", "drift")
    spans = records.withColumns(
        {
            "since": sf.when(sf.row_number().over(following) == 1, -_INF).otherwise(sf.col("at")),
            "until": sf.coalesce(sf.lead("at").over(following), sf.lit(_INF)),
        }
    ).where("since < until")  # of records of one time only the last has a span
    low = sf.min(sf.when(sf.col("until") < _INF, sf.col("until"))).over(own)
    high = sf.max(sf.when(sf.col("since") > -_INF, sf.col("since"))).over(own)
    count = sf.count("*").over(own)
    off = sf.max((sf.col("offset") != 0) | (sf.col("drift") != 0)).over(own)
    grid = {"off": off, "count": count, "low": sf.coalesce(low, sf.lit(0.0))}
    grid["wide"] = sf.coalesce((high - low) / count, sf.lit(0.0))
    laid = spans.withColumns(grid).where("off")
    reach = sf.sequence(_cell(sf.col("since"), sf.col("count")), _cell(sf.col("until"), sf.col("count")))
    celled = laid.withColumn("cell", sf.explode(reach))
    one = sf.struct("since", "until", "at", "offset", "drift")
    cells = celled.groupBy(*_KEYS, "low", "wide", "cell").agg(sf.collect_list(one).alias("here"))
    whole = cells.groupBy(*_KEYS, "low", "wide").agg(
        sf.sort_array(sf.collect_list(sf.struct("cell", "here"))).alias("all")
    )
    return whole.select(*_KEYS, "low", "wide", sf.col("all.here").alias("cells"))


def on_controller_clock(
    rows: DataFrame, table: DataFrame, times: tuple[str, ...], worker: str = "worker", incarnation: str = "incarnation"
) -> DataFrame:
    """Replace times of one worker by the controller's; the first of `times` chooses the record for them all.

    One record for all of them keeps the spans between them as they were measured. Also for streams, `table` being
    static: it is a left join to a small table.
    """
    own = (sf.col("run"), sf.col(worker), sf.col(incarnation))
    grids = table.select(*(sf.col(name).alias(f"_{name}") for name in table.columns))
    same = [column == sf.col(f"_{key}") for column, key in zip(own, _KEYS, strict=True)]
    time = sf.col(times[0])
    cell = _cell(time, sf.size("_cells"), "_").cast("int")
    chosen = sf.filter(sf.get("_cells", cell), lambda span: (time >= span["since"]) & (time < span["until"]))
    joined = rows.join(sf.broadcast(grids), same, "left").withColumn("_span", sf.get(chosen, 0))
    return joined.select(
        *((_corrected(sf.col(name)).alias(name) if name in times else sf.col(name)) for name in rows.columns)
    )


def _cell(time: Column, count: Column, prefix: str = "") -> Column:
    """Return the cell that a time is in; what is beyond the grid counts to its ends."""
    low, wide, last = sf.col(f"{prefix}low"), sf.col(f"{prefix}wide"), (count - 1).cast("double")
    far = sf.try_divide(time - low, wide)
    inside = sf.greatest(sf.lit(0.0), sf.least(far, last))
    beyond = sf.when(time < low, 0.0).otherwise(last)
    return sf.floor(sf.when(wide > 0, inside).otherwise(beyond))


def _corrected(time: Column) -> Column:
    span = sf.col("_span")
    ahead = span["offset"] + span["drift"] * (time - span["at"])
    return time - sf.coalesce(ahead, sf.lit(0.0))
