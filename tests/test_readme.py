"""What the README shows is true: its files plan, its Python runs, its tables name what there is."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

import penstock as ps
from penstock import testing
from penstock.api.dataflow import Outlet
from penstock.cli.tree import TREE, Section
from penstock.model.files import load_application, load_cluster, load_plan
from penstock.model.telemetry import REQUIRED, Record
from penstock.model.topology import Grouping
from penstock.pipeline.session import session
from penstock.policies.registry import REGISTRY
from penstock.runtime.emulation import Fidelity
from tests import ROOT
from tests.conftest import Ran

PAGES = ("docs/exactly-once.md", "docs/tuple-scheduling.md", "docs/forecasting.md", "docs/twin.md", "docs/autopilot.md",
         "docs/pipeline.md")  # fmt: skip
NAMED = rf"(?:{'|'.join(node.name for node in TREE if isinstance(node, Section))}) \w+|\w+"
TEXT = (ROOT / "README.md").read_text()
ALWAYS = {"kind", "run", "worker", "incarnation", "version", "at", "epoch", "emulated"}


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the rows, below their heading, of the table that begins so."""
    table = TEXT.partition(f"\n| {heading}")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The README's application, as the module that it is shown as."""
    module = ModuleType("words")
    monkeypatch.setitem(sys.modules, "words", module)
    (code,) = [block for block in blocks("python") if block.startswith("# words.py")]
    exec(compile(code, "words.py", "exec"), module.__dict__)
    return module


def test_its_files_are_read_and_planned(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    application, cluster, network = blocks("toml")
    (tmp_path / "my-network.toml").write_text(network)
    assert load_cluster(tmp_path / "my-network.toml").routed
    (tmp_path / "my-app.toml").write_text(application)
    (tmp_path / "my-cluster.toml").write_text(cluster)
    assert load_application(tmp_path / "my-app.toml").offered_tps == 2000
    assert load_cluster(tmp_path / "my-cluster.toml").slot_count == 10
    plan = tmp_path / "plan.toml"
    ran = penstock("plan", tmp_path / "my-app.toml", tmp_path / "my-cluster.toml", "--policy", "r-storm",
                   "--policy", "t-storm", "--explain", "--save", plan)  # fmt: skip
    assert ran.code == 0, ran.err
    assert load_plan(plan).tasks["store"][0].startswith("big/")


@pytest.mark.slow
def test_its_planning_in_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = [block for block in blocks("python") if not block.startswith("#")]
    exec(compile(code, "README", "exec"), {})
    assert "optimal" in capsys.readouterr().out
    assert load_plan("plan.toml").application == "log-processing"


def test_its_application_counts_words_and_its_tasks_move(words: ModuleType) -> None:
    cluster = testing.TestCluster(words.flow, emulate=ps.cluster("hetero-small")).start()
    cluster.advance(1.0)
    moved = cluster.move("count[1]", "m3/0")
    assert moved.after == "m3/0"
    cluster.advance(1.0)
    latest: dict[str, int] = {}
    result = cluster.drain()
    for word, count in result["store"]:
        latest[word] = max(count, latest.get(word, 0))
    assert latest["text"] == latest["line"] == result.status.emitted > 100
    assert sum(latest.values()) == 5 * result.status.emitted


@pytest.mark.spark
def test_its_run_in_python_runs_on_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with session("readme"):  # a process keeps its Java process, and so where that began: not in a folder of this test
        pass
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "words", raising=False)
    module, script = (block for block in blocks("python") if block.startswith("#"))
    (tmp_path / "words.py").write_text(module)
    scope: dict[str, Any] = {}
    exec(compile(script, "better.py", "exec"), scope)
    printed = capsys.readouterr().out
    assert "Latency(" in printed
    assert "->" in printed
    run = scope["run"]
    assert run.status().phase == "stopped"
    assert f"stopped {run.folder}" in printed
    assert {"run.json", "plan.toml", "run.log", "output", "telemetry", "spark"} <= {
        path.name for path in run.folder.iterdir()
    }
    assert list((run.folder / "output/counts").glob("part-store-0-*.jsonl"))


def test_its_table_of_policies_is_the_registry() -> None:
    section = TEXT.partition("## Policies")[2].partition("\n## ")[0]
    named = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)
    }
    assert named == {name for table in REGISTRY.values() for name in table}


def test_the_commands_it_lists_are_those_there_are(penstock: Callable[..., Ran]) -> None:
    listed = set(re.findall(r"^\| `penstock (\w+)", TEXT, re.MULTILINE))
    offered = set(re.findall(r"^│ (\w+) {2,}", penstock("--help").out, re.MULTILINE))
    assert listed == offered


@pytest.mark.slow
def test_every_option_of_a_command_that_it_names_is_one(penstock: Callable[..., Ran]) -> None:
    named = {"run": {option for row in rows("option") for option in re.findall(r"`(--[\w-]+)", row[0])}}
    assert len(named["run"]) > 10
    for command, text in re.findall(rf"penstock ({NAMED})((?: [^\n`]*)?)", TEXT):
        named.setdefault(command, set()).update(re.findall(r"(?<!\w)--[a-z][a-z-]+", text.partition("#")[0]))
    for command, options in named.items():
        offered = set(re.findall(r"--[a-z][a-z-]+", penstock(*command.split(), "--help").out)) if options else set()
        assert options <= offered, command


def test_every_option_in_the_page_on_failures_is_one(penstock: Callable[..., Ran]) -> None:
    page = (ROOT / "docs" / "exactly-once.md").read_text()
    changeable = page.partition("**What may change**")[2].partition("\n- **")[0]
    named: dict[str, set[str]] = {"run": set(re.findall(r"`(--[a-z-]+)", changeable))}
    for command, text in re.findall(rf"penstock ({NAMED})((?: [^\n`]*)?)", page):
        named.setdefault(command, set()).update(re.findall(r"(?<!\w)--[a-z][a-z-]+", text.partition("#")[0]))
    assert {"run", "runs checkpoints", "status", "stop"} <= named.keys()
    for command, options in named.items():
        offered = set(re.findall(r"--[a-z][a-z-]+", penstock(*command.split(), "--help").out)) if options else set()
        assert options <= offered, command


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_on_other_pages_has_the_options_that_it_is_shown_with(
    penstock: Callable[..., Ran], page: str
) -> None:
    shown: dict[str, set[str]] = {}
    for command, text in re.findall(rf"^penstock ({NAMED})([^\n`#]*)", (ROOT / page).read_text(), re.MULTILINE):
        shown.setdefault(command, set()).update(re.findall(r"(?<!\w)--[a-z][a-z-]+", text))
    assert shown
    for command, options in shown.items():
        told = penstock(*command.split(), "--help")
        assert told.code == 0, command
        assert options <= set(re.findall(r"--[a-z][a-z-]+", told.out)), command


def test_the_page_on_tuple_scheduling_has_code_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/tuple-scheduling.md").read_text(), re.DOTALL)
    exec(compile(code, "tuple-scheduling.md", "exec"), {})
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines()] == ["shuffle", "potus:v=3", "potus-plus"]


def test_the_page_on_the_twin_has_code_that_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/twin.md").read_text(), re.DOTALL)
    exec(compile(code, "twin.md", "exec"), {})
    assert re.fullmatch(r"[\d.]+ ms, then [\d.]+ ms\n", capsys.readouterr().out)


def test_its_tables_of_sources_and_sinks_name_what_can_be_made() -> None:
    for row in [*rows("source"), *rows("sink")]:
        name, given = re.findall(r"^`(\w+)\((.*)\)`", row[0])[0]
        made = getattr(ps, name)
        assert name in ps.__all__
        for keyword in re.findall(r"(\w+)=", given):
            assert keyword in made.__init__.__code__.co_varnames, f"{name}: {keyword}"
    for row in rows("source"):
        made = getattr(ps, re.findall(r"^`(\w+)", row[0])[0])
        assert row[3].startswith("yes") == made.rewinds, row


def test_its_table_of_groupings_is_the_models() -> None:
    found = {row[0]: re.findall(r"\w+\.(\w+)\(", row[1])[0] for row in rows("grouping")}
    assert {Grouping(name) for name in found} == set(Grouping)
    for name, method in found.items():
        assert getattr(Outlet("words"), method)().grouping is Grouping(name)


def test_its_table_of_telemetry_is_the_schema() -> None:
    columns = {field.name for field in msgspec.structs.fields(Record)}
    listed = {row[0].strip("`"): set(re.findall(r"`(\w+)`", row[2])) for row in rows("kind")}
    assert listed.keys() == REQUIRED.keys()
    for kind, required in REQUIRED.items():
        assert set(required) <= listed[kind] <= columns, kind
    assert set().union(ALWAYS, *listed.values()) == columns


def test_the_warning_that_it_shows_is_the_one_that_is_given() -> None:
    truth = Fidelity("m0", host_cores=2)
    for _ in range(200):
        truth.record_lag(7.1e-3)
    given = truth.verdict()
    assert given is not None
    shown = next(line for line in TEXT.splitlines() if line.startswith("emulation: "))
    assert re.sub(r"[\d.]+ ms", "", shown) == re.sub(r"[\d.]+ ms", "", given)


def test_links_lead_to_files() -> None:
    for document in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "examples/README.md", *PAGES):
        folder = (ROOT / document).parent
        for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / document).read_text()):
            assert (folder / target).exists(), f"{document}: {target}"
