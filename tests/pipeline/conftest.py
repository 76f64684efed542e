"""A synthetic run, and the result of each step of the pipeline.

All modules here share a session; other packages start their own.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.pipeline.clocks import clocks
from penstock.pipeline.hops import each_once, hops
from penstock.pipeline.ingest import ingest, read_telemetry
from penstock.pipeline.session import session
from penstock.pipeline.tuples import tuples
from tests.pipeline.synthetic import Synthetic

SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings for tables of a few rows: to compile a query takes longer than to run it."""


class Steps(NamedTuple):
    """The tables that each step of the pipeline produces."""

    good: DataFrame
    quarantined: DataFrame
    clocks: DataFrame
    hops: DataFrame
    tuples: DataFrame


def steps(spark: SparkSession, telemetry: Path) -> Steps:
    good, quarantined = ingest(read_telemetry(spark, telemetry).good)
    good = good.cache()
    table = clocks(good).cache()
    made = each_once(hops(good, table)).cache()
    return Steps(good, quarantined, table, made, tuples(made, good, table))


@pytest.fixture(scope="package")
def spark() -> Iterator[SparkSession]:
    with session("tests", "local[2]", settings=SMALL) as made:
        yield made


@pytest.fixture(scope="session")
def truth() -> Synthetic:
    return Synthetic()


@pytest.fixture(scope="session")
def run(truth: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return truth.write(tmp_path_factory.mktemp("runs") / "r1")


@pytest.fixture(scope="package")
def made(spark: SparkSession, run: Path) -> Steps:
    return steps(spark, run / "telemetry")
