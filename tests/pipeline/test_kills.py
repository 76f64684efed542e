"""A job whose process is killed, including Java, and restarted: no record is lost or duplicated."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.job import Summary, run_pipeline
from tests.pipeline.conftest import SMALL
from tests.pipeline.spoilt import LATENESS_S, Spoilt, arrive
from tests.pipeline.synthetic import Synthetic
from tests.pipeline.test_job import FILES, WINDOW_S, assert_same_tables

pytestmark = pytest.mark.spark
KILLS = {"stream": 2, "batch": 1}
FURTHEST = 15  # maximum number of steps until a kill: fewer than any job has
LONGEST_S = 0.5  # maximum time from the start of a step until the kill

JOB = f"""
import sys
from pathlib import Path
from penstock.pipeline.job import run_pipeline
from penstock.pipeline.session import session

came, output, mode = sys.argv[1:]
with session("killed", "local[2]", settings={SMALL!r}) as spark:
    run_pipeline(
        spark, Path(came), Path(output), window_s={WINDOW_S}, lateness_s={LATENESS_S}, stream=mode == "stream",
        files_per_batch={FILES}, step=lambda step: print(step, flush=True),
    )
print("ended", flush=True)
"""


def start_and_kill(came: Path, output: Path, mode: str, random: Random) -> list[str]:
    """Start a job in a process of its own, kill it during some step, and return the started steps.

    A job that continues where another was killed may have so few steps left that it ends by itself.
    """
    steps: list[str] = []
    until, late = random.randint(1, FURTHEST), random.uniform(0, LONGEST_S)
    place = output.parent / "temporary"  # what a killed session cannot delete
    place.mkdir(exist_ok=True)
    with subprocess.Popen(
        [sys.executable, "-c", JOB, came, output, mode],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(place)},
        start_new_session=True,  # a group, in which Java is too
    ) as job:
        assert job.stdout is not None
        try:
            while len(steps) < until and (line := job.stdout.readline()):
                steps.append(line.strip())
            time.sleep(late)
        finally:
            os.killpg(job.pid, signal.SIGKILL)
    assert len(steps) == until or "ended" in steps, f"it failed by itself after {steps}"
    return steps


@pytest.fixture(scope="module")
def came(truth: Synthetic, tmp_path_factory: pytest.TempPathFactory) -> Spoilt:
    return arrive(truth, tmp_path_factory.mktemp("came") / "of a run")


def run(spark: SparkSession, came: Spoilt, output: Path, mode: str) -> Summary:
    return run_pipeline(
        spark, came.folder, output, window_s=WINDOW_S, lateness_s=LATENESS_S, stream=mode == "stream",
        files_per_batch=FILES,
    )  # fmt: skip


@pytest.fixture(scope="module")
def undisturbed(spark: SparkSession, came: Spoilt, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("undisturbed") / "tables"
    run(spark, came, output, "batch")  # a stream gives the same
    return output


@pytest.mark.parametrize("mode", ["stream", "batch"])
def test_a_restarted_job_has_the_same_tables_after_its_process_was_killed(
    spark: SparkSession, came: Spoilt, undisturbed: Path, tmp_path: Path, mode: str
) -> None:
    seed = Random().randrange(10**6)
    print(f"seed {seed}")
    random = Random(seed)
    output = tmp_path / "tables"
    begun = [start_and_kill(came.folder, output, mode, random) for _ in range(KILLS[mode])]
    assert "ended" not in begun[0], f"seed {seed}: it ended by itself after {begun[0]}"
    summary = run(spark, came, output, mode)
    found = (summary.records, summary.quarantined)
    assert found == (came.records, came.quarantined), f"seed {seed}, killed after {begun}"
    assert_same_tables(spark, undisturbed, output)
