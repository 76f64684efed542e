"""`penstock sim calibrate`: what it refuses, and that it recovers the costs of emulated machines."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from penstock.calibration.network import VARIATION
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.files import load_application, load_cluster, load_costs, save
from penstock.model.topology import Application, Component, Kind, Stream
from penstock.pipeline.session import session
from penstock.runtime.spark.executors import embedded_master, spark_settings
from tests.calibration.test_observation import SMALL
from tests.conftest import Ran
from tests.fake_run import Served

APP = Application(  # a component a machine: so its core-seconds tell what it takes, however late a busy host is
    name="known",
    components=(
        Component(name="in", kind=Kind.SOURCE, cpu=0.001),
        Component(name="work", cpu=0.005),
        Component(name="out", kind=Kind.SINK, cpu=0.002),
    ),
    streams=(Stream(source="in", target="work", tuple_bytes=500.0), Stream(source="work", target="out")),
    rate_tps={"in": 40.0},
)
CLUSTER = Cluster(
    name="three",
    machines=tuple(
        Machine(name=f"m{n}", cores=2, slots=2, speed=1.0 + n, network_mbps=100.0 * (n + 1)) for n in range(3)
    ),
    distances=Distances(other_host_ms=3.0),
)


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    """A session for three machines, in which small tables are quick."""
    settings = {**spark_settings(3, True), **SMALL}
    with session("test", embedded_master(3), settings=settings, folder=tmp_path / "spark") as made:
        yield made


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_gives_back_what_emulated_machines_take(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    app, cluster, out = tmp_path / "app.toml", tmp_path / "cluster.toml", tmp_path / "out"
    save(APP, app)
    save(CLUSTER, cluster)
    ran = penstock(
        "sim", "calibrate", app, "--emulate", cluster, "--duration", 6, "--settle", 1, "--output", out, "--json"
    )
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert answer["emulated"] is True
    application, machines, costs = (
        load_application(out / "application.toml"),
        load_cluster(out / "cluster.toml"),
        load_costs(out / "costs.toml"),
    )
    for component in APP.components:
        assert application[component.name].cpu == pytest.approx(component.cpu, rel=0.03), component.name
    assert application.rate_tps["in"] == pytest.approx(40.0, rel=0.25)  # of five seconds, on a host that may be busy
    assert application.streams[0].tuple_bytes == pytest.approx(500.0, rel=0.02)
    for machine, known in zip(machines.machines, CLUSTER.machines, strict=True):
        assert machine.network_mbps == pytest.approx(known.network_mbps, rel=0.05)
    assert machines.distances.other_host_ms == pytest.approx(3.0, rel=0.05)
    assert (costs.hop_cpu, costs.send_cpu, costs.delay_variation) == (0.0, 0.0, 0.0)
    assert 0 < costs.move_s < 5
    assert costs.applied(APP) == msgspec.structs.replace(application, rate_tps=APP.rate_tps)
    assert {"the engine's own costs", VARIATION} <= {one["what"] for one in answer["left"]}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing-of-that-name"], "app: nothing that can be run is named 'nothing-of-that-name'"),
        (["word-count", "--emulate", "nowhere"], "'nowhere'"),
        (
            ["word-count", "--emulate", "li-10", "--duration", 1],
            "duration: expected more than the settling time of 2 s",
        ),
        (["word-count", "--duration", "nan"], "duration: expected a number > 0, got nan; choose another --duration"),
        (["word-count", "--duration", "inf"], "duration: expected a number > 0, got inf; choose another --duration"),
        (["word-count", "--rate", 0], "rate: expected a number > 0, got 0; choose another --rate"),
        (
            ["word-count", "--master", "here"],
            "master: expected local[n], spark://host:port, yarn or k8s://…, got 'here'",
        ),
        (["word-count", "--policy", "best"], "'best'"),
        (["word-count", "--set", "colour=red"], "no parameter is named 'colour'"),
        (["word-count", "--application", "other"], "application: has no meaning for an application"),
        ([], "run: there is none in "),
    ],
)
def test_refuses_in_one_line(
    penstock: Callable[..., Ran], tmp_path: Path, arguments: list[object], problem: str
) -> None:
    ran = penstock("sim", "calibrate", *arguments, "--output", tmp_path / "out", "--runs", tmp_path / "runs")
    assert ran.code == 2
    assert problem in ran.err
    assert len(ran.err.splitlines()) == 1


def test_refuses_runs_that_tell_nothing(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with Served(runs) as served:
        name = served.info.run
        without = penstock("sim", "calibrate", name, "--output", tmp_path / "out", "--runs", runs)
        assert f"run {name} was started by a program; name its application" in without.err
        beside = penstock("sim", "calibrate", name, "--rate", 5, "--output", tmp_path / "out", "--runs", runs)
        assert "rate: has no meaning for a run that is there, got 5.0; leave --rate out" in beside.err
        empty = penstock(
            "sim", "calibrate", name, "--application", "word-count", "--output", tmp_path / "out", "--runs", runs
        )
        assert "holds no telemetry (*.parquet); name a run that kept some" in empty.err
        assert {without.code, beside.code, empty.code} == {2}
