"""Cores that runs of one process hold, on executors of a session that is only described."""

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.session import NoSpark
from penstock.runtime.spark.cores import hold
from penstock.runtime.spark.executors import Executor, registered


class Listed:
    """An executor as Spark's status store has it."""

    def __init__(self, name: str, cores: int) -> None:
        self.name, self.cores = name, cores

    def hostPort(self) -> str:  # noqa: N802
        return "host:1"

    def id(self) -> str:
        return self.name

    def totalCores(self) -> int:  # noqa: N802
        return self.cores


class Described:
    """A session, its context, and what leads to its executors, all in one."""

    master = "spark://host:7077"

    def __init__(self, name: str, **cores: int) -> None:
        self.applicationId = name
        self.rows = [Listed(*one) for one in cores.items()]
        self.sparkContext = self._jsc = self

    def sc(self) -> "Described":
        return self

    def statusStore(self) -> "Described":  # noqa: N802
        return self

    def executorList(self, _: bool) -> "Described":  # noqa: N802
        return self

    def size(self) -> int:
        return len(self.rows)

    def apply(self, row: int) -> Listed:
        return self.rows[row]


def session(name: str, **cores: int) -> tuple[SparkSession, dict[str, Executor]]:
    made: Any = Described(name, **cores)
    return cast(SparkSession, made), {executor.id: executor for executor in registered(made)}


def test_two_starts_that_saw_the_same_core_do_not_both_get_it() -> None:
    spark, there = session("same", small=2, large=8)
    with hold(spark, [there["small"]]), pytest.raises(NoSpark) as refused, hold(spark, [there["small"]]):
        pass
    assert "executor small has room for 1 worker, of which other runs of this process hold 1" in str(refused.value)


def test_holds_all_cores_but_one_of_an_executor_and_again_after_a_release() -> None:
    spark, there = session("full", small=2, large=4)
    for _ in range(2):
        with (
            hold(spark, [there["small"], *[there["large"]] * 2]),
            hold(spark, [there["large"]]),
            pytest.raises(NoSpark, match="has room for 4 workers"),
            hold(spark, [there["large"]]),
        ):
            pass


def test_one_core_alone_may_be_held() -> None:
    spark, there = session("single", small=1, large=4)
    held = []
    with hold(spark, [there["small"], there["large"]]):
        held.append(True)
    assert held
