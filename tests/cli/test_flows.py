import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.flows import arrival_process, find_flow, flow_names
from penstock.cli.inputs import application
from penstock.model.errors import InvalidInput, PenstockError, UnknownName
from penstock.workloads.arrivals import Poisson, Replay

MODULE = """
import penstock as ps
from penstock.api.contracts import Sink, Source
from penstock.api.dataflow import Dataflow

def make(rate=5.0, input=None):
    flow = Dataflow(f"mine-{rate:g}")
    flow.sink("out", Sink(), flow.source("in", Source(), cpu=1 / rate))
    return flow

class Box:
    flow = make(2.0)

whole = make()
number = 3
def wrong():
    return 3
def fails():
    return 1 / 0
def needs(rate, size):
    return make(rate)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_flows.py").write_text(MODULE)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]


def test_a_built_in_name_takes_parameters_and_a_rate() -> None:
    application = find_flow("word-count:sources=2,splitters=3", rate=70.0).application
    assert application.offered_tps == pytest.approx(70)
    assert application["split"].parallelism == 3


def test_what_can_be_run_is_completed() -> None:
    assert flow_names("log") == ["log-processing", "log-processing-large"]


def test_a_module_of_the_current_folder_gives_a_dataflow_or_makes_one(module: Path) -> None:
    assert find_flow("my_flows:whole").name == "mine-5"
    assert find_flow("my_flows:Box.flow").name == "mine-2"
    assert find_flow("my_flows:make", rate=7.0).name == "mine-7"


def test_what_is_only_described_runs_as_it_says() -> None:
    flow = find_flow("face-detection", rate=2.0)
    assert flow.application.offered_tps == pytest.approx(2)
    assert set(flow.parts) == set(application("face-detection").index)


def test_what_is_only_described_takes_no_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="input: face-detection is only described, its tuples are made up"):
        find_flow("face-detection", input=tmp_path)


def test_a_dataflow_of_ones_own_can_be_planned(module: Path) -> None:
    assert application("my_flows:whole") == find_flow("my_flows:whole").application


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("my_flows:none", "app: 'my_flows' has no 'none'; it has the dataflows whole"),
        ("my_flows:number", "app: expected my_flows:number to be a Dataflow or a function that returns one, got 3"),
        ("my_flows:wrong", "app: expected my_flows:wrong to be a Dataflow or a function that returns one, got 3"),
        ("my_flows:fails", r"app: my_flows:fails failed, ZeroDivisionError: division by zero \(my_flows.py:19\); mend"),
        ("my_flows:needs", "rate: my_flows:needs has no default for its parameter 'rate'; give --rate"),
        ("my_nothing:flow", "app: no module 'my_nothing' is in .* or installed; go to its folder, or choose one of"),
        ("my_flows.py", r"app: expected module:object, got 'my_flows.py'; write my_flows:NAME"),
        ("my-app.toml", "my-app.toml: cannot be read"),
        ("word-cuont", "app: nothing that can be run is named 'word-cuont'; there are word-count"),
        ("word-cuont:sources=2", "app: nothing that can be run is named 'word-cuont'"),
        ("my_flows:", "app: nothing that can be run is named 'my_flows'"),
        ("word-count:sauces=2", "no parameter is named 'sauces'"),
    ],
)
def test_what_cannot_be_run_is_said_in_one_line(module: Path, text: str, problem: str) -> None:
    with pytest.raises(PenstockError, match=problem) as raised:
        find_flow(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1 +", r"'my_broken' cannot be imported, SyntaxError: .* \(my_broken.py:1\); mend it there"),
        ("\nimport my_missing", r"'my_broken' cannot be imported, ModuleNotFoundError: .*my_missing.*; install what"),
        ("raise OSError('a\\nb')", r"'my_broken' cannot be imported, OSError: a b \(my_broken.py:1\); mend it there"),
        ("exit()", "'my_broken' exits when it is imported; put that under __main__"),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_line(module: Path, code: str, problem: str) -> None:
    (module / "my_broken.py").write_text(code)
    with pytest.raises(InvalidInput, match=problem):
        find_flow("my_broken:flow")


def test_options_that_nothing_takes_are_refused(module: Path) -> None:
    with pytest.raises(InvalidInput, match="rate: my_flows:whole is a Dataflow and takes no --rate; give a function"):
        find_flow("my_flows:whole", rate=2.0)
    with pytest.raises(
        InvalidInput, match="arrivals: my_flows:make takes no --arrivals; give it a parameter 'arrivals'"
    ):
        find_flow("my_flows:make", arrivals=Poisson(rate=1.0))
    with pytest.raises(InvalidInput, match=r"size: my_flows:needs has no default .*; give it a default"):
        find_flow("my_flows:needs", rate=2.0)


def test_arrivals_take_their_rate_from_either_place() -> None:
    assert arrival_process(None, 5.0) is None
    assert arrival_process("poisson", 5.0) == Poisson(rate=5.0)
    assert arrival_process("poisson:slot=2", 5.0) == Poisson(rate=5.0, slot=2.0)
    assert arrival_process("poisson:rate=5", None) == Poisson(rate=5.0)
    with pytest.raises(InvalidInput, match="expected one rate, got 4 and another in --arrivals poisson:rate=5"):
        arrival_process("poisson:rate=5", 4.0)
    with pytest.raises(InvalidInput, match=r"arrivals\.poisson\.rate: missing"):
        arrival_process("poisson", None)
    with pytest.raises(UnknownName, match="nothing here is named 'fish'"):
        arrival_process("fish:rate=1", None)


def test_a_recording_is_looked_at_and_found_from_everywhere(module: Path) -> None:
    (module / "trace.txt").write_text("3\n4\n5\n")
    process = arrival_process("replay:path=trace.txt", None)
    assert isinstance(process, Replay)
    assert Path(process.path) == module / "trace.txt"
    with pytest.raises(PenstockError, match=r"none\.txt"):
        arrival_process("replay:path=none.txt", None)
