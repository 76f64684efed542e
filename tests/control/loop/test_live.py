"""The autopilot of a real run on embedded Spark, whose machines are emulated."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import enumerate as threads
from time import monotonic, sleep

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.control.loop.guard import Guard
from penstock.control.loop.ledger import LEDGER, read
from penstock.control.loop.pilot import attach
from penstock.control.loop.proposing import plan_of
from penstock.pipeline.session import session
from penstock.runtime import socket as control
from penstock.runtime.folder import load
from penstock.runtime.spark.executors import embedded_master, spark_settings
from tests.conftest import Ran
from tests.runtime.words import last_counts, truth, words

pytestmark = pytest.mark.spark

FAR = ps.Cluster(
    name="far",
    machines=tuple(ps.Machine(name=f"m{n}", cores=2, slots=2) for n in range(2)),
    distances=ps.Distances(other_host_ms=60.0),
)
TO_AND_FRO = {"lines": "m0/0", "split": "m1/0", "count": "m0/1", "out": "m1/1"}


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    with session("tests", embedded_master(2), settings=spark_settings(2, True), folder=tmp_path / "spark") as made:
        yield made


def wait_until(true: Callable[[], object]) -> None:
    deadline = monotonic() + 40
    while not true():
        assert monotonic() < deadline
        sleep(0.05)


@pytest.mark.usefixtures("spark")
def test_moves_the_tasks_of_a_run_to_a_better_placement_and_tells_of_it(
    penstock: Callable[..., Ran], tmp_path: Path
) -> None:
    flow = words(rate=100)
    tasks = [f"{c.name}[{n}]" for c in flow.application.components for n in range(c.parallelism)]
    bad = {task: TO_AND_FRO[task.partition("[")[0]] for task in tasks}  # every tuple crosses the network three times
    plan = plan_of(flow.application, FAR, bad, policy="to-and-fro", objective="delay", seed=0)
    run = ps.run(flow, emulate=FAR, plan=plan, runs=tmp_path / "runs", sample_tps=-1)
    try:
        pilot = attach(run, "local-search", guard=Guard(interval_s=0.5, cool_down_s=2.0))
        assert run.status().autopilot.startswith("local-search, ")
        wait_until(lambda: pilot.status().decisions >= 2)
        assert control.ask(load(run.folder), control.Steer("off")).policy is None
        first = read(run.folder / LEDGER).episodes[0]
        assert first.verdict == "kept"
        assert first.outcome is not None
        assert first.outcome.realised_s is not None
        assert first.outcome.realised_s < 0.5 * first.decision.before_s
        assert len({slot.partition("/")[0] for slot in run.status().placement.values()}) == 1
        run.drain()
    finally:
        run.stop()
    pilot.join()
    assert not [thread for thread in threads() if thread.name == "penstock autopilot"]
    assert run.status().error == ""
    assert last_counts(run.folder) == truth(run.status().emitted)
    found = json.loads(penstock("history", run.folder, "--json").out)
    assert found["decisions"][0]["verdict"] == "kept"
    assert "autopilot: decision 1 by local-search: kept" in run.info.log_path.read_text()
    assert json.loads(penstock("explain", 1, "--run", run.folder, "--json").out)["reproduced"] is True
