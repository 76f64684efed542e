"""Small tables, collected together: Spark plans, runs and hands over once, whatever their number."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

PARTITION_BYTES = 4_000_000  # of telemetry in Parquet, some 50,000 records: a partition is then worth a task

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For so few rows that compiling what is to be done with them takes longer than doing it."""


def collect_together(frames: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    """Collect several small tables in one job, as Arrow; rows keep the order of their frame.

    Every frame becomes one column of a union, a list of one struct in its own rows and null in the rows of others.
    """
    packed = [frame.select(sf.array(sf.struct(*frame.columns)).alias(name)) for name, frame in frames.items()]
    union = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), packed)
    whole = union.toArrow()
    return {name: pa.Table.from_struct_array(whole[name].combine_chunks().flatten()) for name in frames}


def local(spark: SparkSession, table: pa.Table, like: DataFrame) -> DataFrame:
    """Return a collected table as a frame that is part of every plan: Spark joins it without a job of its own."""
    return spark.createDataFrame(table, like.schema)


@contextmanager
def partitions_for(spark: SparkSession, files: Sequence[Path]) -> Iterator[int]:
    """Give the number of partitions that fit files, and have Spark work accordingly meanwhile.

    Shuffles make the same number. It is known beforehand, so that Spark need not find one while it runs: that costs a
    job per shuffle. Where one partition will do, Spark compiles nothing.
    """
    count = max(1, -(-sum(path.stat().st_size for path in files) // PARTITION_BYTES))
    wanted = {"spark.sql.shuffle.partitions": str(count), "spark.sql.adaptive.enabled": "false"}
    if count == 1:
        wanted |= INTERPRETED
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield count
    finally:
        for name, earlier in before.items():
            if earlier is not None:
                spark.conf.set(name, earlier)
