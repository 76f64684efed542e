"""What the README shows is true: its files plan, its Python runs, its tables name what there is."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.model.files import load_application, load_cluster, load_plan
from penstock.policies.registry import REGISTRY
from tests.conftest import Ran

TEXT = (Path(__file__).resolve().parents[1] / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


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


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("python")
    exec(compile(code, "README", "exec"), {})
    assert "optimal" in capsys.readouterr().out
    assert load_plan("plan.toml").application == "log-processing"


def test_its_table_of_policies_is_the_registry() -> None:
    section = TEXT.partition("## Policies")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    assert named == set(REGISTRY)


def test_the_commands_it_lists_are_those_there_are(penstock: Callable[..., Ran]) -> None:
    listed = set(re.findall(r"^\| `penstock (\w+)", TEXT, re.MULTILINE))
    offered = set(re.findall(r"^│ (\w+) {2,}", penstock("--help").out, re.MULTILINE))
    assert listed == offered


def test_links_lead_to_files() -> None:
    root = Path(__file__).resolve().parents[1]
    for document in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (root / document).read_text()):
            assert (root / target).exists(), f"{document}: {target}"
