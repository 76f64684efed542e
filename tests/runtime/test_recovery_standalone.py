"""Executors of a standalone cluster that are killed under a run: nothing is lost, and they are used again."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from benchmarks.faults import executors, kill, wait_until, workers
from pyspark.sql import SparkSession

from penstock.pipeline.session import session
from penstock.runtime.spark.executors import spark_settings
from tests.runtime.trial import MOMENTS, Trial, trials
from tests.standalone import SETTINGS, standalone

pytestmark = pytest.mark.spark

ME = os.getpid()


@pytest.fixture(scope="module", autouse=True)
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("cluster")
    with (
        standalone(folder / "spark") as master,
        session("tests", master, settings={**spark_settings(2, False), **SETTINGS}, folder=folder / "driver") as made,
    ):
        yield made


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trial]]:
    with trials(tmp_path, monkeypatch) as start:
        yield start


def test_killed_executors_come_back_and_are_used_again(trial: Callable[..., Trial]) -> None:
    one = trial()

    def home() -> bool:
        """Whether both executors have a worker again."""
        found = [job.found_on() for job in one.run._jobs.jobs if not job.done.is_set()]
        return len(one.alive()) == 2 and len(set(found)) == 2 and None not in found

    def kill_with_worker(java: int) -> None:
        kill(java)
        for pid in one.alive().values():
            kill(pid)

    for moment in MOMENTS:
        wait_until(home, what="a worker on each executor")
        java = one.rng.choice(executors(ME))
        (spared,) = set(one.alive().values()) - set(workers(java))
        one.do(partial(kill, java), moment, spared)
    wait_until(home, what="a worker on each executor")
    one.do(partial(kill_with_worker, one.rng.choice(executors(ME))))
    wait_until(home, what="a worker on each executor")
    assert any("takes the place of" in line.text for line in one.heard)
    one.end()
