"""Every example prints the content of the file beside it, on any number of workers."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import testing
from tests import ROOT

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_prints_what_is_expected(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out == script.with_suffix(".out").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
@pytest.mark.parametrize("seed", [1, 2])
def test_gives_the_same_on_more_workers_in_another_order(script: Path, seed: int) -> None:
    flow = runpy.run_path(str(script))["flow"]
    alone, spread = testing.run(flow, workers=1), testing.run(flow, workers=4, seed=seed)
    for sink in alone.outputs:
        assert sorted(map(repr, alone[sink])) == sorted(map(repr, spread[sink]))


def test_windows_of_the_alerts_survive_a_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "alerts", raising=False)
    import alerts  # type: ignore[import-not-found]

    expected = testing.run(alerts.flow)["store"]
    cluster = testing.TestCluster(alerts.flow, workers=2).start()
    for slot in ("w1/0", "w0/0", "w1/0"):
        cluster.advance(1.25)
        cluster.move("means[0]", slot)
        cluster.move("means[1]", slot)
    moved: Any = cluster.finish()["store"]
    assert sorted(moved, key=repr) == sorted(expected, key=repr)


def test_every_output_and_script_belong_together() -> None:
    assert SCRIPTS
    assert {script.stem for script in SCRIPTS} == {output.stem for output in EXAMPLES.glob("*.out")}
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"({script.name})" in listed for script in SCRIPTS)
