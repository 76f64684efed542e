"""Exceptions and crashes of an author's code in real workers: each ends the run and names the task, exit code 1."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.pipeline.session import session
from penstock.runtime.spark.executors import embedded_master, spark_settings
from penstock.runtime.storage.run_folder import latest
from tests.conftest import Ran

pytestmark = pytest.mark.spark

HERE = "tests.runtime.test_author_errors_spark"


class Faulty(ps.Operator[Any, Any]):
    """Does something in one of its calls."""

    def __init__(self, at: str, what: Callable[[], Any]) -> None:
        self.at, self.what = at, what

    def open(self, context: ps.TaskContext) -> None:
        self._do("open")

    def process(self, value: Any) -> Iterable[Any]:
        if value["n"] == 50:
            self._do("process")
        return (value,)

    def snapshot(self) -> int:
        self._do("snapshot")
        return 1

    def _do(self, call: str) -> None:
        if call == self.at:
            self.what()


def boom() -> None:
    raise ValueError("boom")


def flow(at: str = "", what: Callable[[], Any] = boom, key: Any = "page", lacks: int = -1) -> ps.Dataflow:
    made = ps.Dataflow("faulty")
    pages = made.source("pages", ps.Generated(lambda n: {"n": n} if n == lacks else {"n": n, "page": n % 5}, rate=200))
    passed = made.operator("pass", lambda: Faulty(at, what), pages.fields(key), parallelism=2)
    made.sink("out", ps.Discard(), passed.fields("page"))
    return made


def by_key() -> ps.Dataflow:
    return flow(lacks=70)


def in_snapshot() -> ps.Dataflow:
    return flow("snapshot")


def by_exit() -> ps.Dataflow:
    return flow("process", lambda: sys.exit(3))


def by_crash() -> ps.Dataflow:
    return flow("process", lambda: os._exit(9))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("session")
    with session("tests", embedded_master(2), settings=spark_settings(2, True), folder=folder) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "says", "recoveries"),
    [
        ("by_key", r"pages\[0\]: .*no field 'page'; it has n in the key page of pages->pass on tuple \{'n': 70\}", 0),
        ("in_snapshot", r"pass\[[01]\]: ValueError: boom in snapshot", 0),
        ("by_exit", r"pass\[1\]: SystemExit: 3 on tuple \{'n': 50, 'page': 0\}", 0),
        (
            "by_crash",
            r"task pass\[1\] was running when worker .* lost.*; the restart limit of 1 in 600 s is reached",
            1,
        ),
    ],
)
def test_it_fails_names_the_task_and_exits_1(
    penstock: Callable[..., Ran], spark: SparkSession, tmp_path: Path, name: str, says: str, recoveries: int
) -> None:
    runs = tmp_path / "runs"
    ran = penstock("run", f"{HERE}:{name}", "--runs", runs, "--duration", 30, "--restarts", 1)
    assert ran.code == 1
    assert re.search(f"error: {says}", ran.err.splitlines()[-1])
    restarts = len(re.findall("going back to", latest(runs).log_path.read_text()))
    assert recoveries <= restarts <= 2 * recoveries  # workers that are lost together restart once
