"""Every block of Python in the documentation is executed: here, or by the test of its page."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.files import load_application, load_cluster, load_plan
from tests.conftest import Ran
from tests.docs.markdown import PAGES, blocks

PLANNING = "docs/guides/planning.md"
ELSEWHERE = {  # page -> the test that executes its blocks
    "README.md": "test_readme",
    "CONTRIBUTING.md": "test_contributing",
    "docs/tutorial.md": "test_readme",
    "docs/guides/applications.md": "test_applications",
    "docs/guides/admission.md": "test_admission",
    "docs/guides/several-runs.md": "test_readme",
    PLANNING: "below and test_readme",
}
PRINTED = {  # page -> what its code prints
    "docs/guides/tuple-scheduling.md": r"shuffle .*\npotus:v=3 .*\npotus-plus .*\n",
    "docs/guides/autopilot.md": r"(?:kept|held|rolled) .*\n",
    "docs/guides/twin.md": r"[\d.]+ ms, then [\d.]+ ms\n",
    "docs/guides/scaling.md": r"4 machines, 14 tasks: 21,\d+/s\n",
    "docs/guides/forecasting.md": r"MSE [\d.]+, bias [+-][\d.]+, phantoms \d+%, misses \d+%\n",
}


@pytest.mark.parametrize("page", PRINTED)
def test_the_code_of_a_page_runs_and_prints(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(page, "python")
    exec(compile(code, page, "exec"), {})
    assert re.fullmatch(PRINTED[page], capsys.readouterr().out)


def test_every_page_with_code_is_executed() -> None:
    assert {page for page in PAGES if blocks(page, "python")} == ELSEWHERE.keys() | PRINTED.keys()


def test_the_files_of_the_guide_to_planning_are_read_and_planned(penstock: Callable[..., Ran], tmp_path: Path) -> None:
    application, cluster, network = blocks(PLANNING, "toml")
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
def test_the_planning_in_python_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = [block for block in blocks(PLANNING, "python") if not block.startswith("#")]
    exec(compile(code, PLANNING, "exec"), {})
    assert "optimal" in capsys.readouterr().out
    assert load_plan("plan.toml").application == "log-processing"
