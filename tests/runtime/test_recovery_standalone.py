"""Executors of a standalone cluster that are killed under a run: nothing is lost, and they are used again."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from benchmarks import faults
from benchmarks.faults import MOMENTS, below, kill, wait_until
from pyspark.sql import SparkSession

from penstock.pipeline.session import session
from penstock.runtime.spark import cores
from penstock.runtime.spark.executors import executors, spark_settings
from tests.patience import PATIENT
from tests.runtime.trial import Trial, trials
from tests.standalone import SETTINGS, another_worker, standalone

pytestmark = pytest.mark.spark

ME = os.getpid()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module", autouse=True)
def spark(folder: Path) -> Iterator[SparkSession]:
    with (
        standalone(folder / "spark") as master,
        session("tests", master, settings={**spark_settings(2, False), **SETTINGS}, folder=folder / "driver") as made,
    ):
        assert len(executors(made, cores=4)) == 2  # the second may be late
        yield made


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Trial]]:
    with trials(tmp_path, monkeypatch) as start:
        yield start


def test_killed_executors_are_replaced_and_used_again(trial: Callable[..., Trial]) -> None:
    one = trial(patience=PATIENT)

    def homes() -> dict[int, set[int]]:
        """Return the workers of every executor."""
        alive = set(one.alive().values())
        return {java: alive & set(below(java)) for java in faults.executors(ME)}

    def home(workers: dict[int, set[int]]) -> bool:
        """Whether both executors have a worker, and that a task."""
        return [len(pids) for pids in workers.values()] == [1, 1] and one.is_home()

    def kill_with_worker(java: int) -> None:
        kill(java)
        for pid in one.alive().values():
            kill(pid)

    def drawn() -> tuple[int, int]:
        """Return an executor, and the worker that it does not have."""
        found: dict[int, set[int]] = {}

        def there() -> bool:
            found.clear()
            found.update(homes())
            return home(found)

        wait_until(there, what="a worker on each executor")
        java, other = one.rng.sample(sorted(found.items()), 2)
        return java[0], min(other[1])

    for moment in MOMENTS:
        java, spared = drawn()
        one.do(partial(kill, java), moment, spared)
    one.do(partial(kill_with_worker, drawn()[0]))
    wait_until(lambda: home(homes()), what="a worker on each executor")
    assert any("replaces" in line.text for line in one.heard)
    one.end()


def test_an_executor_that_is_lost_costs_one_recovery(trial: Callable[..., Trial]) -> None:
    one = trial(patience=PATIENT)
    wait_until(lambda: len(one.alive()) == 2 and one.is_home(), what="a worker on each executor")
    placement = one.run.status().placement
    kill(one.rng.choice(faults.executors(ME)))

    def home() -> bool:
        alive = set(one.alive().values())
        spread = [len(alive & set(below(java))) for java in faults.executors(ME)]
        return spread == [1, 1] and one.run.status().placement == placement

    wait_until(lambda: one.recoveries[1] >= 1 and home(), what="its worker back on an executor of its own")
    assert one.recoveries == (1, 1)
    one.end()


def test_uses_an_executor_that_registered_during_planning(
    trial: Callable[..., Trial], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cores.need_cores
    monkeypatch.setattr(cores, "need_cores", lambda spark, workers: found(spark, workers)[:1])
    one = trial(patience=PATIENT)
    wait_until(lambda: len(one.alive()) == 2, what="a worker on the other executor")
    one.end()


def test_uses_a_new_executor_and_loses_nothing_with_it(
    trial: Callable[..., Trial], spark: SparkSession, folder: Path
) -> None:
    one = trial(cpu=0.02, patience=PATIENT)  # more than two machines could do, if it were true
    before = set(one.alive())
    with another_worker(folder / "spark", str(spark.sparkContext.master)):
        wait_until(lambda: len(one.alive()) == 3, what="a third worker")
        (slot,) = set(one.alive()) - before
        assert slot in one.run.cluster.slot_names
        wait_until(lambda: slot in one.run.status().placement.values(), what="a task on the new machine")
        assert one.run.move("count[0]", slot).after == slot
        one.wait_for_checkpoint()
    wait_until(lambda: one.recoveries[0] >= 1 and one.run.status().phase == "running", what="recovery without it")
    one.wait_for_checkpoint()
    one.end()
