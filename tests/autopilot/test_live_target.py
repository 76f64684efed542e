"""The autopilot of a real run on embedded Spark, whose machines are emulated."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import enumerate as threads
from time import monotonic, sleep

import pytest
from pyspark.sql import SparkSession

import penstock as ps
from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import LEDGER, Inputs, TaskMove, read_ledger
from penstock.autopilot.live_target import LiveTarget
from penstock.autopilot.pilot import attach
from penstock.autopilot.proposal import Proposal, make_plan
from penstock.model.cluster import Cluster
from penstock.model.topology import Application
from penstock.pipeline.session import session
from penstock.runtime import control_socket as control
from penstock.runtime.run import Run
from penstock.runtime.spark.executors import embedded_master, spark_settings
from penstock.runtime.storage.run_folder import load
from tests.conftest import Ran
from tests.runtime.words import last_counts, truth, words
from tests.settings import changes

pytestmark = pytest.mark.spark

FAR = ps.Cluster(
    name="far",
    machines=tuple(ps.Machine(name=f"m{n}", cores=2, slots=2) for n in range(2)),
    distances=ps.Distances(other_host_ms=500.0),  # far beyond what a busy host adds
)
TO_AND_FRO = {"lines": "m0/0", "split": "m1/0", "count": "m0/1", "out": "m1/1"}


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    with session("tests", embedded_master(2), settings=spark_settings(2, True), folder=tmp_path / "spark") as made:
        yield made


def wait_until(true: Callable[[], object]) -> None:
    deadline = monotonic() + 90
    while not true():
        assert monotonic() < deadline
        sleep(0.05)


@pytest.mark.usefixtures("spark")
def test_moves_tasks_to_a_better_placement_and_reports_it(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    flow = words(rate=100)
    tasks = [f"{c.name}[{n}]" for c in flow.application.components for n in range(c.parallelism)]
    bad = {task: TO_AND_FRO[task.partition("[")[0]] for task in tasks}  # every tuple crosses the network three times
    plan = make_plan(flow.application, FAR, bad, policy="to-and-fro", objective="delay", seed=0)
    run = ps.run(flow, emulate=FAR, plan=plan, runs=tmp_path / "runs", config=changes(sample_tps=-1.0))
    try:
        pilot = attach(run, "local-search", guard=Guard(interval_s=0.5, cool_down_s=2.0))
        assert run.status().autopilot.startswith("local-search, ")
        wait_until(lambda: pilot.status().decisions >= 2)
        assert control.ask(load(run.folder), control.Steer("off")).policy is None
        first = read_ledger(run.folder / LEDGER).episodes[0]
        assert first.verdict == "kept"
        seen = first.decision.inputs.readings[-1].tasks
        assert list(seen) == list(first.decision.inputs.placement)
        assert sum(seen[task] for task in tasks if task.startswith("count")) > seen["lines[0]"] > 0
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
    found = json.loads(penstock("autopilot", "history", run.folder, "--json").out)
    assert found["decisions"][0]["verdict"] == "kept"
    assert "autopilot: decision 1 by local-search: kept" in run.info.log_path.read_text()
    assert json.loads(penstock("autopilot", "explain", 1, "--run", run.folder, "--json").out)["reproduced"] is True


class Failing(LiveTarget):
    """A run of which a process is killed, once, at a time that a test chooses."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.fails: Callable[[], bool] = lambda: False

    def wait(self, seconds: float) -> None:
        if self.fails():
            self.fails = lambda: False
            os.kill(self._run.status().machines[0].pid, signal.SIGKILL)
            wait_until(lambda: self._run.status().recoveries)
        super().wait(seconds)


@pytest.mark.usefixtures("spark")
def test_rolls_back_a_bad_change_and_voids_a_measurement_with_a_failure(tmp_path: Path) -> None:
    flow = words(rate=100)
    tasks = [f"{c.name}[{n}]" for c in flow.application.components for n in range(c.parallelism)]
    good = {task: f"m0/{number % 2}" for number, task in enumerate(tasks)}
    split = next(task for task in tasks if task.startswith("split"))
    plan = make_plan(flow.application, FAR, good, policy="near", objective="delay", seed=0)
    goes = {split: "m1/0"}  # to the other machine and back takes a second more
    meddles = {split: next(slot for slot in ("m0/0", "m0/1") if slot != good[split])}  # once, while it is decided

    def propose(_: Application, __: Cluster, inputs: Inputs) -> Proposal:
        while meddles:
            run.move(*meddles.popitem())
        steps = [TaskMove(task, inputs.placement[task], slot) for task, slot in goes.items()]
        return Proposal(moves=steps, weights=[0.0], gain=0.9)  # which holds nobody up, however long it takes here

    run = ps.run(flow, emulate=FAR, plan=plan, runs=tmp_path / "runs", config=changes(sample_tps=-1.0))
    try:
        guard = Guard(interval_s=0.5, cool_down_s=0.5)
        target = Failing(run)
        loop = Autopilot(target, AutopilotSettings(policy="any"), guard=guard, propose=propose)
        overtaken = loop.step()
        assert overtaken is not None
        assert overtaken.verdict == "void"
        good = run.status().placement
        assert good != overtaken.decision.inputs.placement

        bad = loop.step()
        assert bad is not None
        assert bad.verdict == "rolled back"
        assert run.status().placement == good
        assert run.status().policy == "near"

        goes[split] = next(slot for slot in ("m0/0", "m0/1") if slot != good[split])  # no better, no worse
        target.fails = lambda: loop.state.startswith("settling")
        again = loop.step()
        assert again is not None
        assert again.outcome is not None
        assert again.outcome.voided >= 1
        assert run.status().recoveries >= 1
        run.drain()
    finally:
        run.stop()
    assert run.status().error == ""
    counts = last_counts(run.folder)
    assert counts == truth(sum(counts.values()) // 5)  # sentences that came again after the failure count once
