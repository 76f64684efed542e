"""What runs live, and how it is measured."""

import numpy as np
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.experiments.figure import Case
from penstock.model.taskgraph import expand_tasks
from penstock.papers.tata.live.applications import LOAD, planned, predicted, run_application
from penstock.papers.tata.live.estimator import COMPONENTS, MOST_TASKS, draw, run_topology
from penstock.papers.tata.live.runs import Counts, Placed
from penstock.papers.tata.live.settings import APPLICATIONS, BUSY_TPS, EmulatedApplication
from penstock.papers.tata.live.stepped import Part, stepped
from penstock.papers.tata.policies import FLINK
from penstock.runtime.config import ALL
from penstock.workloads.flink_applications import CLUSTER_CPU
from penstock.workloads.running.synthetic import any_dataflow


@pytest.mark.parametrize("name", APPLICATIONS)
def test_all_machines_together_process_as_many_tuples_per_second_in_every_application(name: str) -> None:
    tasks = expand_tasks(EmulatedApplication(name).application)
    rate_tps = CLUSTER_CPU / float(tasks.cpu @ tasks.gain)
    assert rate_tps * float(tasks.gain.sum()) == pytest.approx(BUSY_TPS)


@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_load_is_the_same_for_every_policy_and_what_the_weaker_baseline_carries(name: str) -> None:
    flink, i_storm = (planned(name, policy, 0) for policy in (FLINK, "i-storm"))
    assert flink.load_tps == i_storm.load_tps
    rates = [one.decision.evaluation.throughput_tps for one in (flink, i_storm) if one.decision.evaluation]
    assert flink.load_tps == pytest.approx(LOAD * min(rates))


def test_random_topologies_are_as_the_paper_says() -> None:
    drawn = [draw(number) for number in range(100)]
    sizes = [len(one.application.components) for one in drawn]
    assert (min(sizes), max(sizes)) == COMPONENTS
    widths = {component.parallelism for one in drawn for component in one.application.components}
    assert widths == set(range(1, MOST_TASKS + 1))
    assert all(len(one.application.sources) == 1 for one in drawn)
    assert {len(set(one.placement.slots)) for one in drawn} == {1, 2, 3, 4, 5, 6}
    assert all(expand_tasks(one.application).memory_mb.sum() < 1024.0 for one in drawn)  # they fit in any one slot
    assert draw(7) == drawn[7] != draw(7, seed=1)


def test_every_source_tuple_is_one_tuple_at_the_sinks() -> None:
    for number in range(20):
        application = draw(number).application
        tasks = expand_tasks(application)
        assert float(tasks.gain[tasks.sink].sum()) == pytest.approx(1.0)


def test_a_rate_is_taken_from_report_to_report() -> None:
    counts = Counts()
    for step in range(100):
        now = 0.1 * step
        reports = int((now + 0.07) / 0.25)  # a report every quarter of a second, at another time than the readings
        counts.see(now, {("sink", 0): 10 * reports, ("sink", 1): 20 * reports, ("source", 0): 5 * reports})
    assert counts.rate("sink") == pytest.approx(30 / 0.25, rel=0.02)
    assert counts.rate("source") == pytest.approx(5 / 0.25, rel=0.02)


def test_a_task_that_does_nothing_has_no_rate() -> None:
    counts = Counts()
    for now, count in ((0.0, 3), (1.0, 3), (2.0, 4), (3.0, 4)):
        counts.see(now, {("sink", 0): count})
    assert counts.rate("sink") == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", APPLICATIONS)
def test_the_twin_predicts_what_the_estimate_does_and_delays_under_the_load(name: str) -> None:
    found = predicted(name, planned(name, "i-storm", 0), 0)
    assert found["twin_tps"] == pytest.approx(found["estimate_tps"], rel=0.1)
    assert found["delay_ms"] < found["twin_p95_ms"] <= found["twin_p98_ms"] <= found["twin_p99_ms"] < 2000.0


@pytest.mark.slow
def test_a_topology_is_run_on_a_manual_clock_and_estimated() -> None:
    told: list[str] = []
    case: Case = {"number": 2, "runs": False, "settle_s": 6.0, "hold_s": 8.0, "seed": 0}
    [row] = run_topology(case, told.append)
    assert told == ["topology 2"]
    assert float(row["plan_tps"]) == pytest.approx(float(row["twin_tps"]), rel=0.05)
    assert float(row["run_tps"]) == pytest.approx(float(row["twin_tps"]), rel=0.05)
    assert np.isnan(float(row["live_tps"]))


@pytest.mark.slow
def test_on_a_manual_clock_a_load_is_carried_and_an_overload_is_not() -> None:
    drawn = draw(4)
    capacity = Evaluator(drawn.application, drawn.cluster).evaluate(drawn.placement).throughput_tps
    for share, carried_share in ((0.5, 0.5), (2.0, 0.9)):
        flow = any_dataflow(drawn.application, share * capacity)
        [found] = stepped(Placed(flow, drawn.cluster, drawn.placement, 0, 0.0), Part(4.0, 10.0)).parts
        assert found.emitted_tps == pytest.approx(share * capacity, rel=0.05)
        assert found.received_tps == pytest.approx(carried_share * capacity, rel=0.15)


@pytest.mark.slow
def test_runs_on_a_manual_clock_trace_every_source_tuple() -> None:
    drawn = draw(16)
    flow = any_dataflow(drawn.application, 10.0, count=50)
    tuples = stepped(Placed(flow, drawn.cluster, drawn.placement, 0, ALL), Part(0.0, 8.0)).tuples
    assert len(tuples) == 50
    assert tuples["complete"].all()
    assert (tuples["finished"] > tuples["emitted"]).all()
    assert tuples["emitted"].max() == pytest.approx(5.0, abs=0.5)


def test_an_application_whose_host_is_busy_does_not_run_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.papers.tata.live.applications.host_is_busy", lambda: True)
    case: Case = {"application": "throughput-test", "policy": "flink", "repetition": 0, "settle_s": 1.0,
                  "hold_s": 2.0, "seed": 0}  # fmt: skip
    [row] = run_application(case)
    assert row["skipped"] == ""
    assert 0 < float(row["run_tps"]) < 1.2 * float(row["twin_tps"])
    assert np.isnan(float(row["live_tps"]))
    assert np.isnan(float(row["live_late"]))


@pytest.mark.spark
def test_an_application_runs_live_as_on_a_manual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.papers.tata.live.applications.LATE", 1.0)  # a busy host is no failure of the code
    monkeypatch.setattr("penstock.papers.tata.live.applications.host_is_busy", lambda: False)
    case: Case = {"application": "throughput-test", "policy": "local-search", "repetition": 0, "settle_s": 1.0,
                  "hold_s": 3.0, "seed": 0}  # fmt: skip
    [row] = run_application(case)
    assert 0 < float(row["live_tps"]) < 1.5 * float(row["run_tps"])
    assert 0 < float(row["live_p95_ms"]) <= float(row["live_p99_ms"])
    assert float(row["live_tuples"]) > 20


@pytest.mark.spark
def test_a_topology_runs_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.papers.tata.live.estimator.LATE", 1.0)
    monkeypatch.setattr("penstock.papers.tata.live.estimator.host_is_busy", lambda: False)
    [row] = run_topology({"number": 2, "runs": True, "settle_s": 1.0, "hold_s": 3.0, "seed": 0})
    assert 0 < float(row["live_tps"]) < 1.5 * float(row["twin_tps"])
