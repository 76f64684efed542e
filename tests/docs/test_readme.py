"""The README is short and true: its application runs, and its commands print what it shows."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import penstock as ps
from penstock import testing
from penstock.pipeline.session import session
from penstock.runtime.emulation import Fidelity
from tests import ROOT
from tests.conftest import Ran
from tests.docs.markdown import blocks, output_of, text_of

README = "README.md"
DECIDED = r" +[\d.]+ (?:µs|ms|s)(?= *$)"  # in the last column of a plan: differs from run to run


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The README's application, as the module that it is shown as."""
    module = ModuleType("words")
    monkeypatch.setitem(sys.modules, "words", module)
    (code,) = blocks(README, "python")
    exec(compile(code, "words.py", "exec"), module.__dict__)
    return module


def test_it_is_short() -> None:
    assert len(text_of(README).splitlines()) <= 150


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


@pytest.mark.slow
def test_its_plan_is_what_the_command_prints(penstock: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    command = next(line for line in text_of(README).splitlines() if line.startswith("$ penstock plan"))
    shown = output_of(README, command.removeprefix("$ "))
    printed = penstock(*command.split()[2:]).out
    assert comparable(printed) == comparable(shown)


def comparable(text: str) -> list[str]:
    return [re.sub(DECIDED, "", line).rstrip() for line in text.strip().splitlines()]


@pytest.mark.slow
def test_its_rejection_is_what_the_command_prints(
    penstock: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    files = blocks("docs/guides/admission.md", "toml")
    for name, text in zip(("edge", "faces"), files, strict=True):
        Path(f"{name}.toml").write_text(text)
    command = next(line for line in text_of(README).splitlines() if line.startswith("$ penstock cluster admit"))
    shown = output_of(README, command.removeprefix("$ "))
    assert comparable(penstock(*command.split()[2:]).out) == comparable(shown)


def test_the_tutorial_has_the_same_application_and_its_test_passes(words: ModuleType) -> None:
    code, test = blocks("docs/tutorial.md", "python")
    assert code == blocks(README, "python")[0]
    scope: dict[str, Any] = {}
    exec(compile(test, "test_words.py", "exec"), scope)
    scope["test_every_word_is_counted"]()


@pytest.mark.spark
def test_the_runs_of_the_guides_run_on_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with session("readme"):  # a process keeps its Java process, and so where that began: not in a folder of this test
        pass
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "words", raising=False)
    (tmp_path / "words.py").write_text(blocks(README, "python")[0])
    (script,) = [code for code in blocks("docs/guides/planning.md", "python") if code.startswith("# better.py")]
    scope: dict[str, Any] = {}
    exec(compile(script, "better.py", "exec"), scope)
    printed = capsys.readouterr().out
    assert "Latency(" in printed
    assert "->" in printed
    run = scope["run"]
    assert run.status().phase == "stopped"
    assert f"stopped {run.folder}" in printed
    listed = set(re.findall(r"^  ([\w.-]+)/? ", text_of("docs/reference/run-folder.md"), re.MULTILINE))
    assert {path.name for path in run.folder.iterdir()} - listed == set()
    assert list((run.folder / "output/counts").glob("part-store-0-*.jsonl"))

    (shared,) = blocks("docs/guides/several-runs.md", "python")
    scope = {}
    exec(compile(shared, "several-runs.md", "exec"), scope)
    assert scope["first"].status().phase == scope["second"].status().phase == "stopped"


def test_the_warning_of_the_page_on_emulation_is_the_one_that_is_printed() -> None:
    fidelity = Fidelity("m0", host_cores=2)
    for _ in range(200):
        fidelity.record_lag(7.1e-3)
    given = fidelity.verdict()
    assert given is not None
    page = text_of("docs/explanations/emulation.md")
    shown = next(line for line in page.splitlines() if line.startswith("emulation: "))
    assert re.sub(r"[\d.]+ ms", "", shown) == re.sub(r"[\d.]+ ms", "", given)


def test_its_pictures_are_there() -> None:
    for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text_of(README)):
        assert (ROOT / picture).stat().st_size < 200_000
