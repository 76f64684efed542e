import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle

from penstock import testing
from penstock.api.sources.generated import Generated
from penstock.model.errors import InvalidInput, UnknownName
from penstock.model.topology import Kind
from penstock.workloads.applications import application
from penstock.workloads.arrivals import Poisson, arrivals
from penstock.workloads.clusters import cluster
from penstock.workloads.dataflows import DATAFLOWS, dataflow

SPECS = [
    *DATAFLOWS,
    "word-count:sources=2,splitters=2",
    "word-count-large:databases=3",
    "word-count-two-sources:sources=1,second_sources=4",
    "log-processing:rules=2,databases=1",
    "synthetic-communication:operators=2,tasks=3",
    "top-speed-windowing:sources=3,windows=5",
]


def test_the_papers_applications_run_in_every_size() -> None:
    assert set(DATAFLOWS) == {
        "word-count",
        "word-count-large",
        "word-count-two-sources",
        "log-processing",
        "log-processing-large",
        "throughput-test",
        "top-speed-windowing",
        "synthetic-communication",
    }


@pytest.mark.parametrize(
    ("name", "count", "received"),  # tuples of the sources, and the least number at each sink
    [
        ("throughput-test", 60, 60),
        ("word-count", 60, 300),
        ("top-speed-windowing", 1200, 10),
        ("log-processing", 60, 60),
        ("synthetic-communication", 60, 60),
    ],
)
def test_the_applications_of_tata_run_on_emulated_unequal_machines(name: str, count: int, received: int) -> None:
    flow = dataflow(name, rate=count, count=count, output=False)
    ran = testing.TestCluster(flow, emulate=cluster("tata-3"), telemetry=False).start().finish()
    assert ran.status.emitted == count
    sinks = [component.name for component in flow.application.components if component.kind is Kind.SINK]
    assert all(len(ran[sink]) >= received for sink in sinks)


@pytest.mark.parametrize("spec", SPECS)
def test_has_the_topology_of_the_same_name(spec: str) -> None:
    found = dataflow(spec).application
    assert msgspec.structs.replace(found, rate_tps={}) == application(spec)
    assert found.offered_tps == pytest.approx(100.0)


@pytest.mark.parametrize("spec", SPECS)
def test_can_be_shipped_to_workers(spec: str) -> None:
    flow = dataflow(spec)
    there = cloudpickle.loads(cloudpickle.dumps(flow))  # type: ignore[no-untyped-call]
    assert there.application == flow.application


def test_every_type_of_tuple_is_known() -> None:
    for name in DATAFLOWS:
        flow = dataflow(name)
        assert Any not in [flow.stream_type(outlet) for outlet, _ in flow.inputs()]


def test_a_rate_is_divided_among_sources_by_their_tasks() -> None:
    found = dataflow("word-count-two-sources:sources=1,second_sources=3", rate=500).application
    assert found.rate_tps == {"queue-source": 125.0, "file-source": 375.0}


def test_parameters_of_the_run_may_be_in_the_text() -> None:
    flow = dataflow("word-count:sources=2,rate=40,seed=3,output=false")
    assert flow.name == "word-count:sources=2"
    assert flow.application.rate_tps == {"source": 40.0}
    assert type(flow.parts["database"].logic()).__name__ == "Discard"


@pytest.mark.parametrize("process", ["poisson:rate=70", Poisson(rate=70)])
def test_tuples_may_follow_an_arrival_process(process: Any) -> None:
    flow = dataflow("log-processing", arrivals=process)
    source = flow.parts["source"].logic()
    assert isinstance(source, Generated)
    assert source.pace.arrivals == arrivals("poisson:rate=70")
    assert flow.application.rate_tps == {"source": 70.0}


def test_other_seeds_give_other_tuples() -> None:
    made = []
    for seed in (0, 1):
        source = dataflow("word-count", seed=seed).parts["source"].logic()
        assert isinstance(source, Generated)
        made.append(source.make(0))
    assert made[0] != made[1]


def test_an_input_replaces_generated_tuples(tmp_path: Path) -> None:
    file = tmp_path / "some.log"
    file.write_text("a line\n")
    source = dataflow("log-processing", input=file).parts["source"].logic()
    assert type(source).__name__ == "Lines"


@pytest.mark.parametrize(
    ("spec", "settings", "message"),
    [
        ("wordcount", {}, r"^application: 'wordcount' is unknown; did you mean word-count"),
        ("layered", {}, r"^application: 'layered' can be planned but has no code to run; those that run are log-proc"),
        ("word-count:splitters=0", {}, r"^application\.word-count\.splitters: expected a whole number ≥ 1, got '0'"),
        ("word-count:rate=0", {}, r"^application\.word-count\.rate: expected a number > 0, got '0'"),
        (
            "word-count:spliters=3",
            {},
            r"^application\.word-count: no parameter is named 'spliters'; did you mean splitters",
        ),
        ("word-count", {"rate": -3}, r"^application\.word-count\.rate: expected a number > 0.*, got -3"),
        ("word-count", {"rate": 5, "arrivals": "poisson:rate=5"}, r"expected rate or arrivals"),
        ("word-count", {"arrivals": "poison:rate=5"}, r"arrivals: unknown name 'poison'"),
        ("word-count", {"count": 5, "input": "x"}, r"count: expected no count with the input 'x'"),
        ("word-count:repeat=true", {}, r"repeat: expected an input as well"),
    ],
)
def test_invalid_settings_are_rejected_by_name(spec: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        dataflow(spec, **settings)
    if "did you mean word-count" in message or "those that run" in message:
        assert isinstance(caught.value, UnknownName)


def test_needs_neither_spark_nor_pandas() -> None:
    program = (
        "import sys, penstock.workloads.dataflows\n"
        "print([name for name in ('pyspark', 'pandas', 'numba', 'scipy', 'matplotlib') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
