"""Calibration of components and streams recovers what tuples were made to take."""

import msgspec
import numpy as np
import pandas as pd
import pytest

from penstock import testing
from penstock.api.dataflow import Dataflow
from penstock.calibration.calibrator import combine, seen_cluster
from penstock.calibration.components import Moments, fit_distribution, measure_scales, measure_work, moments
from penstock.calibration.observation import RunSummary
from penstock.model.cluster import Cluster, Machine
from penstock.model.topology import Application, Component, Distribution, Kind, ServiceTime, Stream
from penstock.workloads.dataflows import any_dataflow
from tests.calibration.observed import observed

APP = Application(
    name="known",
    components=(
        Component(name="in", kind=Kind.SOURCE, cpu=0.0005),
        Component(name="work", parallelism=2, cpu=0.004, service=ServiceTime(distribution=Distribution.EXPONENTIAL)),
        Component(name="left", kind=Kind.SINK, cpu=0.001),
        Component(name="right", kind=Kind.SINK, cpu=0.002),
    ),
    streams=(
        Stream(source="in", target="work", tuple_bytes=120.0),
        Stream(source="work", target="left", selectivity=2.0, tuple_bytes=60.0),
        Stream(source="work", target="right", selectivity=0.5, tuple_bytes=300.0),
    ),
    rate_tps={"in": 60.0},
)
PAIR = Cluster(
    name="pair",
    machines=(Machine(name="slow", cores=3, slots=3), Machine(name="fast", cores=3, slots=3, speed=2.0)),
)


def ran(flow: Dataflow, cluster: Cluster, placement: list[str], seconds: float = 25.0) -> testing.Result:
    run = testing.TestCluster(flow, emulate=cluster, placement=placement, capture=False).start()
    run.advance(seconds)
    return run.result()


@pytest.fixture(scope="module")
def found() -> "tuple[dict[str, float], Application]":
    flow = any_dataflow(APP)
    blurred = msgspec.structs.replace(
        flow.application,
        components=tuple(msgspec.structs.replace(one, cpu=9.0, service=ServiceTime()) for one in APP.components),
        streams=tuple(msgspec.structs.replace(one, selectivity=7.0, tuple_bytes=1.0) for one in APP.streams),
        rate_tps={},
    )
    result = ran(flow, PAIR, ["slow/0", "slow/1", "fast/0", "fast/1", "slow/2"])
    calibration = combine(blurred, PAIR, observed(result.records), None)
    return {one.what: one.value for one in calibration.measured}, calibration.application


@pytest.mark.slow
def test_recovers_what_components_take_whatever_the_speed_of_their_machines(
    found: tuple[dict[str, float], Application],
) -> None:
    measured, application = found
    assert measured["cpu of in"] == pytest.approx(0.0005, rel=1e-6)
    assert measured["cpu of left"] == pytest.approx(0.001, rel=1e-6)
    assert measured["cpu of right"] == pytest.approx(0.002, rel=1e-6)
    assert measured["cpu of work"] == pytest.approx(0.004, rel=0.12)  # of some 1400 exponential times
    assert application["work"].cpu == measured["cpu of work"]
    assert application["work"].service.distribution is Distribution.EXPONENTIAL
    assert application["left"].service == ServiceTime()


def test_recovers_what_streams_carry_and_sources_give(found: tuple[dict[str, float], Application]) -> None:
    measured, application = found
    assert measured["selectivity of in->work"] == pytest.approx(1.0)
    assert measured["selectivity of work->left"] == pytest.approx(2.0, rel=0.01)
    assert measured["selectivity of work->right"] == pytest.approx(0.5, rel=0.01)
    assert {stream.label: round(stream.tuple_bytes, -1) for stream in application.streams} == {
        "in->work": 120.0,
        "work->left": 60.0,
        "work->right": 300.0,
    }
    assert application.rate_tps["in"] == pytest.approx(60.0, rel=0.01)


def test_takes_out_the_sharing_of_cores() -> None:
    tight = Cluster(name="tight", machines=(Machine(name="only", cores=1, slots=2),))
    app = Application(
        name="tight",
        components=(
            Component(name="in", kind=Kind.SOURCE),
            Component(name="one", kind=Kind.SINK, cpu=0.004),
            Component(name="two", kind=Kind.SINK, cpu=0.004),
        ),
        streams=(Stream(source="in", target="one"), Stream(source="in", target="two")),
        rate_tps={"in": 80.0},
    )
    seen = observed(ran(any_dataflow(app), tight, ["only/0", "only/0", "only/1"], 10.0).records)
    assert 0.5 <= measure_scales(tight, seen)["only"] < 0.6  # both serve at nearly the same time
    calibration = combine(app, tight, seen, None)
    assert calibration.application["one"].cpu == pytest.approx(0.004, rel=0.02)


def test_derives_work_from_machines_if_tasks_share_cores() -> None:
    seen = observed(ran(any_dataflow(APP), PAIR, ["slow/0", "slow/1", "fast/0", "fast/1", "slow/2"], 5.0).records)
    known = measure_work(PAIR, seen, measure_scales(PAIR, seen))
    late = seen._replace(tasks=seen.tasks.assign(busy=seen.tasks["busy"] * [3.0, 1.0, 1.0, 2.0, 1.5]))
    found = measure_work(PAIR, late, measure_scales(PAIR, late))
    for worker, rows in seen.tasks.groupby("worker"):  # what was used comes out, however long tasks were busy
        totals = [float((rows["processed"] * rows["component"].map(cpu)).sum()) for cpu in (known, found)]
        assert totals[1] == pytest.approx(totals[0], rel=0.05), worker


def test_reports_what_was_not_measured() -> None:
    seen = observed(ran(any_dataflow(APP), PAIR, ["slow/0"] * 5, 5.0).records)
    other = seen._replace(services=seen.services[seen.services["component"] != "work"])
    left = {one.what: one.why for one in combine(APP, PAIR, other, None).left}
    assert left["variation of work"] == "only 0 tuples were traced"
    assert left["variation of in"] == "a source's tuples have none"
    assert "duration of a move" in left


@pytest.mark.parametrize(
    ("drawn", "distribution", "cv"),
    [
        (lambda rng: np.full(5000, 0.01), Distribution.CONSTANT, 0.0),
        (lambda rng: rng.exponential(0.01, 5000), Distribution.EXPONENTIAL, 0.0),
        (lambda rng: rng.gamma(4.0, 0.01, 5000), Distribution.GAMMA, 0.5),
        (lambda rng: rng.lognormal(-5.0, 0.6, 5000), Distribution.LOGNORMAL, 0.66),
    ],
)
def test_detects_the_distribution_of_times(drawn: object, distribution: Distribution, cv: float) -> None:
    times = drawn(np.random.default_rng(3))  # type: ignore[operator]
    logs = np.log(times)
    seen = Moments(5000, times.mean(), times.std() / times.mean(), logs.mean(), logs.std())
    service = fit_distribution(seen)
    assert service.distribution is distribution
    assert service.cv == pytest.approx(cv, rel=0.1)


def test_differences_between_machines_are_no_variation() -> None:
    rows = pd.DataFrame(
        {
            "worker": ["a", "b"],
            "count": [100, 300],
            "mean": [0.004, 0.002],
            "deviation": [0.0, 0.0],
            "log_mean": np.log([0.004, 0.002]),
            "log_deviation": [0.0, 0.0],
        }
    )
    seen = moments(rows, {"a": 1.0, "b": 2.0})
    assert seen.mean == pytest.approx(0.004)
    assert (seen.tuples, seen.cv) == (400, 0.0)


def on_real_machines(seen: RunSummary, cores: float | None) -> RunSummary:
    """Return what would be seen where the workers are two processes of one machine with this number of cores."""
    rename = {"slow": "host/0", "fast": "host/1"}
    share = seen.workers["used"] * 3 / (cores or 1.0)  # each took up to 3 cores
    workers = seen.workers.assign(used=share, capacity_cpu=cores, capacity_mb=None if cores is None else 2048.0)
    tasks, workers, services = (
        table.assign(worker=table["worker"].map(rename)) for table in (seen.tasks, workers, seen.services)
    )
    return seen._replace(emulated=False, tasks=tasks, workers=workers, services=services)


@pytest.fixture(scope="module")
def seen() -> RunSummary:
    return observed(ran(any_dataflow(APP), PAIR, ["slow/0", "slow/1", "fast/0", "fast/1", "slow/2"], 5.0).records)


@pytest.mark.parametrize("cores", [6.0, 24.0, None])
def test_what_tuples_take_does_not_depend_on_how_many_cores_the_machine_of_a_process_has(
    seen: RunSummary, cores: float | None
) -> None:
    real = on_real_machines(seen, cores)
    found = measure_scales(seen_cluster(real), real)
    assert found == pytest.approx({"host/0": 1.0, "host/1": 1.0}, rel=1e-3)


def test_machines_have_what_their_workers_tell(seen: RunSummary) -> None:
    (reported,) = seen_cluster(on_real_machines(seen, 6.0)).machines
    assert reported == Machine(name="host", cores=6, slots=2, processes=2, memory_mb=2048.0)
    (silent,) = seen_cluster(on_real_machines(seen, None)).machines
    assert (silent.cores, silent.slots, silent.processes) == (2, 2, 2)
    real = on_real_machines(seen, 6.0)
    left = {one.what: one.why for one in combine(APP, seen_cluster(real), real, None).left}
    assert left["cores and memory of machines"] == "as reported by the run's workers"
