"""Collect small tables together, so that Spark plans, runs and transfers only once."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

PARTITION_BYTES = 4_000_000  # of telemetry in Parquet, some 50,000 records: enough to be worth a task

SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",  # it costs a job per shuffle, and pays from 0.4 million records on
    "spark.sql.codegen.wholeStage": "false",  # compiling a query takes longer than running it
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for so few rows that they fit into one partition."""


def collect_tables(frames: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    """Collect several small tables in one job, as Arrow; rows keep the order of their frame.

    Every frame becomes one column of a union: a list of one struct in its own rows, null in the rows of others.
    """
    packed = [frame.select(sf.array(sf.struct(*frame.columns)).alias(name)) for name, frame in frames.items()]
    union = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), packed)
    whole = union.toArrow()
    return {name: pa.Table.from_struct_array(whole[name].combine_chunks().flatten()) for name in frames}


def as_literal(spark: SparkSession, table: pa.Table, like: DataFrame) -> DataFrame:
    """Return a collected table as a literal frame, which Spark joins without a separate job."""
    return spark.createDataFrame(table, like.schema)


@contextmanager
def partitions_for(spark: SparkSession, files: Sequence[Path]) -> Iterator[int]:
    """Yield a number of partitions that suits the files; if it is one, configure Spark for that in the meantime."""
    count = max(1, -(-sum(path.stat().st_size for path in files) // PARTITION_BYTES))
    wanted = SMALL if count == 1 else {}
    before = {name: spark.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    try:
        yield count
    finally:
        for name, earlier in before.items():
            if earlier is not None:
                spark.conf.set(name, earlier)
