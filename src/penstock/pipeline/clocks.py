"""Convert all times to the controller's clock; every worker has its own.

A worker's clock records contain the offset and drift of its clock. A time is corrected with the latest record before
it, or with the first one if none is before; it is unchanged if the worker has none, because then it shares the
controller's clock.

A long run has many such records. To compare a time with a few of them only, a worker's records are laid out on a grid
with as many cells as there are records, and a time is looked up in its cell.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as sf

from penstock.model.telemetry import RecordKind

_KEYS = ("run", "worker", "incarnation")
_INF = float("inf")


def clocks(good: DataFrame) -> DataFrame:
    """Return one row per worker with a clock offset: its grid, each cell with the corrections that apply in it.

    `low` is the start of the grid, `wide` the width of a cell, `cells` the cells. For batches only, because it needs
    all records of a worker. A stream is corrected with the table so far.
    """
    records = good.where(sf.col("kind") == RecordKind.CLOCK.value).select(*_KEYS, "at", "offset", "drift").distinct()
    own = Window.partitionBy(*_KEYS)
    following = own.orderBy("at", "offset", "drift")
    spans = records.withColumns(
        {
            "since": sf.when(sf.row_number().over(following) == 1, -_INF).otherwise(sf.col("at")),
            "until": sf.coalesce(sf.lead("at").over(following), sf.lit(_INF)),
        }
    ).where("since < until")  # of records with equal times, only the last has an interval
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
    """Convert times of one worker to the controller's clock; the first of `times` selects the record for all.

    One record for all of them preserves the differences between them. Also for streams if `table` is static: it is a
    left join to a small table.
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
    """Return the cell of a time; times beyond the grid belong to its ends."""
    low, wide, last = sf.col(f"{prefix}low"), sf.col(f"{prefix}wide"), (count - 1).cast("double")
    far = sf.try_divide(time - low, wide)
    inside = sf.greatest(sf.lit(0.0), sf.least(far, last))
    beyond = sf.when(time < low, 0.0).otherwise(last)
    return sf.floor(sf.when(wide > 0, inside).otherwise(beyond))


def _corrected(time: Column) -> Column:
    span = sf.col("_span")
    ahead = span["offset"] + span["drift"] * (time - span["at"])
    return time - sf.coalesce(ahead, sf.lit(0.0))
