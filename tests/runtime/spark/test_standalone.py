"""Slots on a standalone cluster of two workers: executors that are processes of their own."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.session import NoSpark, session
from penstock.runtime.spark.cores import need_cores
from penstock.runtime.spark.executors import executors, spark_settings
from penstock.runtime.spark.jobs import SlotJobs
from penstock.runtime.spark.shipping import ship
from tests.standalone import SETTINGS, standalone

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("cluster")
    with (
        standalone(folder / "spark") as master,
        session("tests", master, settings={**spark_settings(2, False), **SETTINGS}, folder=folder / "driver") as made,
    ):
        assert ship(made) == ["penstock"]
        yield made


@pytest.fixture
def jobs(spark: SparkSession) -> Iterator[SlotJobs]:
    made = SlotJobs(spark)
    yield made
    assert made.stop()


def wait_until(true: Callable[[], Any]) -> None:
    deadline = monotonic() + 30
    while not true():
        assert monotonic() < deadline
        sleep(0.02)


def test_every_worker_provides_an_executor_with_its_cores(spark: SparkSession) -> None:
    found = executors(spark, cores=4)
    assert [(executor.id, executor.cores) for executor in found] == [("0", 2), ("1", 2)]
    assert len({executor.location for executor in found}) == 2
    assert need_cores(spark, 2) == found
    with pytest.raises(NoSpark, match="offers 4 cores, the plan needs 5: 3 workers and one kept free on 2 executors"):
        need_cores(spark, 3)


def test_every_slot_runs_on_the_requested_executor(spark: SparkSession, jobs: SlotJobs, tmp_path: Path) -> None:
    def main(name: str) -> None:  # sent by value: the executors do not have this file
        (tmp_path / name).write_text(str(Path.cwd()))
        while not (tmp_path / "stop").exists():
            sleep(0.02)

    found = executors(spark, cores=4)
    slots = [jobs.launch(f"slot-{n}", main, f"slot-{n}", found[n % 2]) for n in (0, 1, 2, 3)]
    wait_until(lambda: all(slot.done.is_set() or (tmp_path / slot.name).exists() for slot in slots))
    assert not any(slot.done.is_set() for slot in slots), [slot.error for slot in slots]
    wait_until(lambda: all(slot.found_on() for slot in slots))
    for slot in slots:
        assert slot.executor is not None
        assert slot.found_on() == slot.executor.id
        assert Path((tmp_path / slot.name).read_text()).name == slot.executor.id  # a worker's folder for it
    (tmp_path / "stop").touch()
    assert all(slot.done.wait(30) for slot in slots)
    assert [slot.error for slot in slots] == [None] * 4


def _written(folder: Path) -> ModuleType:
    """Write and import an application of a module, one next to it, and a package that only a function imports."""
    (folder / "pump_parts").mkdir(parents=True)
    (folder / "pump_parts" / "__init__.py").write_text("")
    (folder / "pump_parts" / "valve.py").write_text("from . import sizes\nOPEN = sizes.WIDTH + 1\n")
    (folder / "pump_parts" / "sizes.py").write_text("WIDTH = 41\n")
    (folder / "pump_next.py").write_text("import msgspec\n\nclass Drop(msgspec.Struct):\n    size: int\n")
    (folder / "pump_app.py").write_text(
        "import json\n"
        "import penstock\n"
        "from pathlib import Path\n"
        "from pump_next import Drop\n\n"
        "def main(argument):\n"
        "    from pump_parts.valve import OPEN\n"
        "    reported = {'size': Drop(OPEN).size, 'penstock': penstock.__file__, 'file': __file__}\n"
        "    Path(argument).write_text(json.dumps(reported))\n"
    )
    return importlib.import_module("pump_app")


def test_user_code_and_penstock_reach_executors_that_have_neither(
    spark: SparkSession, jobs: SlotJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path / "code")
    monkeypatch.setattr(sys, "path", list(sys.path))  # Spark adds what is shipped to the driver's as well
    app = _written(tmp_path / "code")
    assert ship(spark, app) == ["penstock", "pump_app", "pump_next", "pump_parts"]
    assert ship(spark, app) == ["penstock", "pump_app", "pump_next", "pump_parts"]
    assert len(spark.sparkContext.listFiles) == 2
    for executor in executors(spark, cores=4):
        reported = tmp_path / f"reported-{executor.id}"
        job = jobs.launch("shipped", app.main, str(reported), executor)
        assert job.done.wait(30)
        assert job.error is None
        heard = json.loads(reported.read_text())
        assert heard["size"] == 42
        assert ".zip" in heard["penstock"]
        assert ".zip" in heard["file"]
