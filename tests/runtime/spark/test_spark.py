"""Slots on embedded Spark; these tests start one session for all of them."""

import importlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.session import NoSpark, session
from penstock.runtime.spark.cores import need_cores
from penstock.runtime.spark.executors import embedded_master, executors, spark_settings
from penstock.runtime.spark.jobs import SlotJobs
from penstock.runtime.spark.shipping import ship

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run") / "spark"


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[SparkSession]:
    with session("tests", embedded_master(3), settings=spark_settings(3, True), folder=folder) as made:
        yield made


@pytest.fixture
def jobs(spark: SparkSession) -> Iterator[SlotJobs]:
    made = SlotJobs(spark)
    yield made
    assert made.stop()


class Slots:
    """Slots that report their process, and run until a test stops them."""

    def __init__(self, jobs: SlotJobs, folder: Path, names: list[str]) -> None:
        def main(name: str) -> None:
            (folder / f"{name}.{os.getpid()}").touch()
            while not (folder / f"stop-{name}").exists():
                sleep(0.02)

        self.folder = folder
        self.jobs = {name: jobs.launch(name, main, name, None) for name in names}
        wait_until(lambda: all(self.processes(name) for name in names))

    def processes(self, name: str) -> set[int]:
        return {int(file.suffix[1:]) for file in self.folder.glob(f"{name}.*")}

    def end(self, name: str) -> None:
        (self.folder / f"stop-{name}").touch()
        assert self.jobs[name].done.wait(30)


def wait_until(true: Callable[[], Any]) -> None:
    deadline = monotonic() + 30
    while not true():
        assert monotonic() < deadline
        sleep(0.02)


def test_the_session_keeps_its_files_in_its_folder(spark: SparkSession, folder: Path) -> None:
    local = spark.conf.get("spark.local.dir")
    assert local == str(folder / "local")
    assert any((folder / "local").iterdir())


def test_the_embedded_executor_is_the_driver_with_threads_to_spare(spark: SparkSession) -> None:
    (found,) = executors(spark)
    assert found.id == "driver"
    assert found.cores >= 5
    assert need_cores(spark, 3) == [found]


def test_rejects_too_few_cores_with_both_numbers_and_a_remedy(spark: SparkSession) -> None:
    (found,) = executors(spark)
    with pytest.raises(NoSpark) as refused:
        need_cores(spark, 40)
    assert f"offers {found.cores} cores, the plan needs 41: 40 workers and one kept free" in str(refused.value)
    assert "use --master 'local[41]'" in str(refused.value)


def test_slots_run_in_processes_of_their_own_beside_other_jobs(
    spark: SparkSession, jobs: SlotJobs, tmp_path: Path
) -> None:
    slots = Slots(jobs, tmp_path, ["a", "b", "c"])
    assert len(slots.processes("a") | slots.processes("b") | slots.processes("c")) == 3
    assert spark.range(1000).selectExpr("sum(id)").first() == (499500,)
    wait_until(lambda: slots.jobs["a"].found_on() == "driver")
    slots.jobs["b"].cancel()
    assert slots.jobs["b"].done.wait(30)
    assert slots.jobs["b"].error is None
    assert slots.jobs["b"].found_on() is None
    assert not slots.jobs["a"].done.is_set()
    slots.end("a")
    slots.end("c")
    assert [slots.jobs[name].error for name in ("a", "c")] == [None, None]
    assert [slots.jobs[name].cancelled for name in ("a", "b", "c")] == [False, True, False]


def test_a_name_can_be_launched_again_after_it_was_cancelled(jobs: SlotJobs, tmp_path: Path) -> None:
    for turn in ("one", "two"):
        place = tmp_path / turn
        place.mkdir()
        slots = Slots(jobs, place, ["a"])
        slots.jobs["a"].cancel()
        assert slots.jobs["a"].done.wait(30)


def test_a_killed_process_is_replaced_and_the_job_continues(jobs: SlotJobs, tmp_path: Path) -> None:
    slots = Slots(jobs, tmp_path, ["a"])
    (first,) = slots.processes("a")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: len(slots.processes("a")) == 2)
    slots.end("a")
    assert slots.jobs["a"].error is None


def test_code_from_elsewhere_fails_at_once_unless_it_is_shipped(
    spark: SparkSession, jobs: SlotJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sluice_app.py").write_text(
        "from sluice_next import WORD\n\ndef main(argument):\n    open(argument, 'w').write(WORD)\n"
    )
    (tmp_path / "sluice_next.py").write_text("WORD = 'water'\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    app = importlib.import_module("sluice_app")
    early = jobs.launch("early", app.main, str(tmp_path / "early"), None)
    assert early.done.wait(30)
    assert early.error is not None
    assert early.error.endswith("No module named 'sluice_app'")
    assert ship(spark, app) == ["sluice_app", "sluice_next"]
    late = jobs.launch("late", app.main, str(tmp_path / "late"), None)
    assert late.done.wait(30)
    assert (late.error, (tmp_path / "late").read_text()) == (None, "water")


def test_what_is_installed_is_not_shipped(spark: SparkSession) -> None:
    assert ship(spark, pytest, signal) == []
