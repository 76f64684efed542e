"""Real runs on a standalone cluster of two workers: executors that are processes of their own."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.pipeline.hops import machine
from penstock.pipeline.ingest import read_telemetry
from penstock.pipeline.session import NoSpark, session
from penstock.runtime.spark.executors import executors, spark_settings
from tests.runtime.words import last_counts, truth, words
from tests.settings import changes
from tests.standalone import SETTINGS, standalone

pytestmark = pytest.mark.spark

PAIR = ps.Cluster(name="pair", machines=tuple(ps.Machine(name=f"m{n}", cores=2, slots=2) for n in range(2)))


@pytest.fixture(scope="module", autouse=True)
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("cluster")
    with (
        standalone(folder / "spark") as master,
        session("tests", master, settings={**spark_settings(2, False), **SETTINGS}, folder=folder / "driver") as made,
    ):
        assert len(executors(made, cores=4)) == 2  # the second may be late
        yield made


def test_tasks_run_and_move_on_both_executors_and_counts_are_the_truth(spark: SparkSession, tmp_path: Path) -> None:
    with ps.run(words(rate=500), runs=tmp_path) as run:
        jobs = run._jobs.jobs
        assert [job.executor and job.executor.id for job in jobs] == ["0", "1"]
        assert [job.found_on() for job in jobs] == ["0", "1"]
        assert run.cluster.name == "spark"
        slots = run.cluster.slot_names
        assert [slot.rpartition("-")[2] for slot in slots] == ["0/0", "1/0"]
        members = run._driver.controller.members
        parents = {Path(f"/proc/{member.pid}/cwd").resolve() for member in members}
        assert len(parents) == 2  # each in the folder of its own executor
        assert os.getpid() not in {member.pid for member in members}
        rng = random.Random(3)
        tasks = sorted(run.status().placement)
        for _ in range(100):
            run.move(rng.choice(tasks), rng.choice(slots))
    status = run.status()
    assert (status.phase, status.error) == ("stopped", "")
    assert status.master == spark.sparkContext.master
    assert last_counts(run.folder) == truth(status.emitted)
    records = read_telemetry(spark, run.folder / "telemetry").good.where("kind = 'machine'")
    reported = records.select(machine("worker"), "capacity_cpu", "capacity_mb").distinct().collect()
    assert {tuple(row) for row in reported} == {(one.name, one.cpu, one.memory_mb) for one in run.cluster.machines}


def test_emulated_machines_are_spread_over_the_executors(tmp_path: Path) -> None:
    run = ps.run(words(count=200), emulate=PAIR, runs=tmp_path)
    assert [job.executor and job.executor.id for job in run._jobs.jobs] == ["0", "1"]
    assert run.wait(60)
    assert last_counts(run.folder) == truth(200)


def test_a_run_can_use_fewer_slots_than_exist_but_not_more(tmp_path: Path) -> None:
    run = ps.run(words(count=50), config=changes(slots=1), runs=tmp_path / "one")
    assert len(run.cluster.slot_names) == 1
    assert run.wait(60)
    assert last_counts(run.folder) == truth(50)
    with pytest.raises(NoSpark, match="offers 4 cores, the plan needs 5: 3 workers and one kept free on 2 executors"):
        ps.run(words(count=50), config=changes(slots=3), runs=tmp_path / "three")
    assert list((tmp_path / "three").iterdir()) == []
