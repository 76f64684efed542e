import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.app_spec import find_target, flow_of, portable
from penstock.cli.flows import arrival_process, find_application, find_flow, with_parameters
from penstock.cli.inputs import chosen_parameters, completing
from penstock.model.errors import InvalidInput, PenstockError, UnknownName
from penstock.model.topology import Application
from penstock.runtime.config import AppSpec, RunConfig
from penstock.runtime.storage.run_folder import create
from penstock.workloads.arrivals import Poisson, Replay
from penstock.workloads.dataflows import DATAFLOWS

MODULE = """
from pathlib import Path
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
def typed(size: int, share: float = 0.5, names: list[str] = [], where: Path | None = None, *, quick=False, label="x"):
    flow = make()
    flow.seen = [size, share, names, where, quick, label]
    return flow
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
    assert completing(*DATAFLOWS)("log") == ["log-processing", "log-processing-large"]


def test_a_module_of_the_current_folder_gives_a_dataflow_or_makes_one(module: Path) -> None:
    assert find_flow("my_flows:whole").name == "mine-5"
    assert find_flow("my_flows:Box.flow").name == "mine-2"
    assert find_flow("my_flows:make", rate=7.0).name == "mine-7"


@pytest.mark.parametrize("find", [lambda text: find_flow(text).application, find_application])
def test_accepts_all_forms_of_a_file_name(
    module: Path, monkeypatch: pytest.MonkeyPatch, find: Callable[[str], Application]
) -> None:
    for text in ("my_flows.py:whole", "./my_flows:whole", "./my_flows.py", "my_flows.py", str(module / "my_flows.py")):
        assert find(text).name == "mine-5", text
    (module / "below").mkdir()
    monkeypatch.chdir(module / "below")
    assert find("../my_flows:Box.flow").name == "mine-2"


def test_a_file_with_several_dataflows_or_none_requires_the_name(module: Path) -> None:
    (module / "my_two.py").write_text(MODULE.replace("number = 3", "other = make(3.0)"))
    with pytest.raises(InvalidInput, match=r"it has the dataflows other, whole; name one of them, my_two.py:whole"):
        find_flow("my_two.py")
    (module / "my_none.py").write_text(MODULE.replace("whole = make()", ""))
    with pytest.raises(InvalidInput, match=r"it has no Dataflow; name a function that makes one, my_none.py:FUNCTION"):
        find_flow("my_none.py")


def test_a_described_application_runs_as_described() -> None:
    flow = find_flow("face-detection", rate=2.0)
    assert flow.application.offered_tps == pytest.approx(2)
    assert set(flow.parts) == set(find_application("face-detection").index)


def test_what_is_only_described_takes_no_input(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="input: face-detection is only described, its tuples are made up"):
        find_flow("face-detection", input=tmp_path)


def test_a_dataflow_of_ones_own_can_be_planned(module: Path) -> None:
    assert find_application("my_flows:whole") == find_flow("my_flows:whole").application


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("my_flows:none", "app: 'my_flows' has no 'none'; it has the dataflows whole"),
        ("my_flows:number", "app: expected my_flows:number to be a Dataflow or a function that returns one, got 3"),
        ("my_flows:wrong", "app: expected my_flows:wrong to be a Dataflow or a function that returns one, got 3"),
        ("my_flows:fails", r"app: my_flows:fails failed, ZeroDivisionError: division by zero \(my_flows.py:20\); fix"),
        ("my_flows:needs", "rate: my_flows:needs has no default for its parameter 'rate'; give --rate"),
        ("my_nothing:flow", "app: no module 'my_nothing' is in .* or installed; name its file, or choose one of"),
        ("my_flowz.py", "app: my_flowz.py cannot be read; did you mean my_flows.py?"),
        ("./my_flow:whole", r"app: my_flow.py cannot be read; did you mean my_flows.py\?"),
        ("my_flows.py:whol", r"app: 'my_flows.py' has no 'whol'; did you mean whole\?"),
        ("./tests:flow", r"app: tests.py has the name of another module, .*; rename the file"),
        ("my-app.toml", "my-app.toml: cannot be read"),
        ("word-cuont", r"app: nothing that can be run is named 'word-cuont'; did you mean word-count"),
        ("word-cuont:sources=2", "app: nothing that can be run is named 'word-cuont'"),
        ("my_flows:", "app: nothing that can be run is named 'my_flows'"),
        ("word-count:sauces=2", "no parameter is named 'sauces'"),
    ],
)
def test_reports_an_invalid_application_in_one_line(module: Path, text: str, problem: str) -> None:
    (module / "tests.py").write_text("")
    with pytest.raises(PenstockError, match=problem) as raised:
        find_flow(text)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("1 +", r"'my_broken' cannot be imported, SyntaxError: .* \(my_broken.py:1\); fix it there"),
        ("\nimport my_missing", r"'my_broken' cannot be imported, ModuleNotFoundError: .*my_missing.*; install what"),
        ("raise OSError('a\\nb')", r"'my_broken' cannot be imported, OSError: a b \(my_broken.py:1\); fix it there"),
        ("exit()", "'my_broken' exits when it is imported; put that under __main__"),
    ],
)
def test_reports_a_failed_import_with_its_line(module: Path, code: str, problem: str) -> None:
    (module / "my_broken.py").write_text(code)
    with pytest.raises(InvalidInput, match=problem):
        find_flow("my_broken:flow")


def test_options_that_nothing_takes_are_refused(module: Path) -> None:
    with pytest.raises(InvalidInput, match="rate: my_flows:whole is a Dataflow and takes no --rate; name a function"):
        find_flow("my_flows:whole", rate=2.0)
    with pytest.raises(
        InvalidInput, match="arrivals: my_flows:make takes no --arrivals; give it a parameter 'arrivals'"
    ):
        find_flow("my_flows:make", arrivals=Poisson(rate=1.0))
    with pytest.raises(InvalidInput, match=r"size: my_flows:needs has no default .*; give --set size=VALUE"):
        find_flow("my_flows:needs", rate=2.0)


def test_parameters_of_ones_own_function_have_the_types_that_it_states(module: Path) -> None:
    texts = {"size": "3", "share": "0.25", "names": '["a", "b"]', "where": "here", "quick": "true", "label": "7"}
    flow: Any = find_flow("my_flows:typed", parameters=texts)
    assert flow.seen == [3, 0.25, ["a", "b"], Path("here"), True, "7"]
    values = {"size": 3, "share": 1, "names": ["a"], "quick": True}
    flow = find_flow("my_flows:typed", parameters=values)
    assert flow.seen == [3, 1.0, ["a"], None, True, "x"]
    flow = find_flow("my_flows.py:typed:size=4,label=none", parameters={"share": "1"})
    assert flow.seen == [4, 1.0, [], None, False, "none"]
    assert find_flow("my_flows:make", parameters={"rate": "7"}).name == "mine-7"


def test_built_in_applications_take_the_same_parameters() -> None:
    flow = find_flow("word-count:sources=2", parameters={"splitters": "3"})
    assert flow.name == "word-count:sources=2,splitters=3"
    assert find_application("word-count:sources=2", {"splitters": 3}) == find_application(
        "word-count:sources=2,splitters=3"
    )


@pytest.mark.parametrize(
    ("text", "parameters", "problem"),
    [
        ("my_flows:typed", {"sise": "3"}, r"^set: my_flows:typed has no parameter 'sise'; did you mean size\?"),
        ("my_flows:typed", {"size": "x"}, r"^set\.size: expected a whole number, got 'x'"),
        ("my_flows:typed", {"size": "3", "share": []}, r"^set\.share: expected a number, got \[\]"),
        ("my_flows:whole", {"size": "3"}, r"^size: my_flows:whole is a Dataflow and takes no parameter 'size'; name a"),
        ("my_flows:typed", {}, r"^size: my_flows:typed has no default for its parameter 'size'; give --set size=VALUE"),
        ("my-app.toml", {"size": "3"}, r"^set: my-app.toml describes an application and has no parameter 'size'"),
    ],
)
def test_wrong_parameters_are_named(module: Path, text: str, parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        find_flow(text, parameters=parameters)


def test_a_rate_is_given_once(module: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^set: expected one rate, got --rate and --set rate=…; leave one out"):
        find_flow("my_flows:make", rate=1.0, parameters={"rate": "2"})


def test_options_override_a_file_of_parameters(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('size = 3\nlabel = "a"\n')
    assert chosen_parameters(["label=b=c"], tmp_path / "p.toml") == {"size": 3, "label": "b=c"}
    for wrong, problem in ((["size"], "expected KEY=VALUE, got 'size'"), (["a=1", "a=2"], "'a' is given twice")):
        with pytest.raises(InvalidInput, match=problem):
            chosen_parameters(wrong, None)
    (tmp_path / "p.json").write_text("[1]")
    with pytest.raises(PenstockError, match=r"p\.json: expected a table of names and values"):
        chosen_parameters(None, tmp_path / "p.json")


def test_arrivals_take_their_rate_from_either_place() -> None:
    assert arrival_process(None, 5.0) is None
    assert arrival_process("poisson", 5.0) == Poisson(rate=5.0)
    assert arrival_process("poisson:slot=2", 5.0) == Poisson(rate=5.0, slot=2.0)
    assert arrival_process("poisson:rate=5", None) == Poisson(rate=5.0)
    with pytest.raises(InvalidInput, match="expected one rate, got 4 and another in --arrivals poisson:rate=5"):
        arrival_process("poisson:rate=5", 4.0)
    with pytest.raises(InvalidInput, match=r"arrivals\.poisson\.rate: missing"):
        arrival_process("poisson", None)
    with pytest.raises(UnknownName, match="unknown name 'fish'; there are"):
        arrival_process("fish:rate=1", None)


def test_a_recording_is_looked_at_and_found_from_everywhere(module: Path) -> None:
    (module / "trace.txt").write_text("3\n4\n5\n")
    process = arrival_process("replay:path=trace.txt", None)
    assert isinstance(process, Replay)
    assert Path(process.path) == module / "trace.txt"
    with pytest.raises(PenstockError, match=r"none\.txt"):
        arrival_process("replay:path=none.txt", None)


@pytest.mark.parametrize("text", ["my_flows.py", "./my_flows:typed", "my_flows.py:typed:size=4"])
def test_a_run_keeps_where_its_code_is_and_its_parameters(module: Path, text: str) -> None:
    named = text.partition(":")[2]
    spec = portable(AppSpec(app=text, parameters={"size": "3"}))
    assert spec.app == f"{module / 'my_flows.py'}{f':{named}' if named else ''}"
    assert spec.parameters == {"size": "3"}
    assert portable(AppSpec(app="my_flows:typed")).app == "my_flows:typed"


def test_a_run_that_is_resumed_has_the_parameters_that_it_was_started_with(module: Path) -> None:
    spec = portable(AppSpec(app="./my_flows:typed", parameters={"size": "3", "label": "a"}))
    info = create("mine", module / "runs", config=RunConfig(application=spec))
    found = find_target({"application": {"parameters": {"label": "b"}}}, info.run, module / "runs")
    flow: Any = flow_of(found.spec)
    assert flow.seen == [3, 0.5, [], None, False, "b"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("word-count", "word-count:size=3,fast=true"),
        ("word-count:sources=2", "word-count:sources=2,size=3,fast=true"),
        ("words:make", "words:make:size=3,fast=true"),
        ("words.py:make:a=b", "words.py:make:a=b,size=3,fast=true"),
    ],
)
def test_parameters_become_part_of_the_name(text: str, expected: str) -> None:
    assert with_parameters(text, {"size": 3, "fast": True}) == expected


@pytest.mark.parametrize("value", ["1,2", ["a"], {"a": 1}])
def test_values_that_a_name_cannot_hold_are_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="expected a plain value of 'size' without commas"):
        with_parameters("words:make", {"size": value})
