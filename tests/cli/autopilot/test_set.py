"""`penstock autopilot`, and the options of `penstock run` that set one up, on a run that only pretends."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.cli.autopilot.control import pilot_line
from penstock.cli.autopilot.options import AutopilotOptions, check_autopilot
from penstock.estimate.latency import Loads, save_models
from penstock.model.instance import Instance
from penstock.model.status import PilotStatus
from penstock.runtime.config import RunConfig
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster
from tests.conftest import Ran
from tests.estimate.latency_cases import random_models
from tests.fake_run import Served
from tests.kept_run import kept_run

Penstock = Callable[..., Ran]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "runs") as served:
        yield served


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Latency models of word count, with random coefficients."""
    instance = Instance(application("word-count"), cluster("hetero-small"))
    loads = Loads.declared(instance, {"source": 100.0})
    save_models(random_models(np.random.default_rng(0), instance, loads, kind="linear"), tmp_path / "wc.npz")
    return tmp_path / "wc.npz"


def test_asks_and_steers_the_autopilot_of_a_run(penstock: Penstock, run: Served) -> None:
    where = ("--run", run.info.path)
    assert penstock("autopilot", "status", run.info.path).out == "autopilot off\n"
    ran = penstock("autopilot", "set", "local-search:seconds=1", *where, "--shadow")
    assert ran.out == "autopilot local-search:seconds=1 in shadow, observing\n"
    assert penstock("autopilot", "off", run.info.path).code == 0
    assert json.loads(penstock("autopilot", "status", run.info.path, "--json").out)["policy"] is None
    asked = [(None, None), ("local-search:seconds=1", True), ("off", None), (None, None)]
    assert run.handle.steered == [(policy, shadow, None) for policy, shadow in asked]


def test_says_of_one_that_is_put_off_what_it_still_ends() -> None:
    still = PilotStatus(policy=None, state="measuring after decision 2")
    assert pilot_line(still, disabled=True) == "autopilot off, after what is in progress: measuring after decision 2"
    assert pilot_line(PilotStatus(policy=None), disabled=True) == "autopilot off"


def test_refuses_a_policy_that_nobody_knows_before_asking(penstock: Penstock, run: Served) -> None:
    ran = penstock("autopilot", "set", "wishful", "--run", run.info.path)
    assert ran.code == 2
    assert "no policy is named 'wishful'" in ran.err
    assert run.handle.steered == []


def test_gives_a_run_latency_models_wherever_its_driver_is(
    penstock: Penstock, run: Served, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models.parent)
    ran = penstock("autopilot", "set", "predictive", "--model", models.name, "--run", run.info.path)
    assert (ran.code, ran.err) == (0, "")
    assert run.handle.steered == [("predictive", None, str(models))]


def test_refuses_models_that_cannot_be_read_before_asking(penstock: Penstock, run: Served, tmp_path: Path) -> None:
    ran = penstock("autopilot", "set", "predictive", "--model", tmp_path / "none.npz", "--run", run.info.path)
    assert (ran.code, ran.err.count("\n"), "none.npz: cannot be read" in ran.err) == (2, 1, True)
    assert run.handle.steered == []


def test_warns_of_what_the_policy_lacks(penstock: Penstock, run: Served) -> None:
    run.handle.caution = "predictive has no latency models"
    ran = penstock("autopilot", "set", "predictive", "--run", run.info.path, "--json")
    assert (ran.code, ran.err) == (0, "warning: predictive has no latency models\n")
    assert json.loads(ran.out)["caution"] == run.handle.caution


@pytest.mark.parametrize("autopilot", [("--autopilot", "predictive"), ()])
def test_run_refuses_models_of_another_application_before_it_starts(
    penstock: Penstock, models: Path, tmp_path: Path, autopilot: tuple[str, ...]
) -> None:
    where = ("--emulate", "hetero-small", "--runs", tmp_path / "new")
    ran = penstock("run", "log-processing", *where, *autopilot, "--model", models)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("error: model: it was trained for 'word-count'")
    assert not (tmp_path / "new").exists()


def test_run_refuses_models_of_another_application_where_it_is_resumed(
    penstock: Penstock, models: Path, tmp_path: Path
) -> None:
    info = kept_run(tmp_path / "kept")
    ran = penstock("runs", "resume", info.path, "--autopilot", "predictive", "--model", models)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("error: model: it was trained for 'word-count'")


@pytest.mark.parametrize(
    ("policy", "objective", "expected"),
    [
        ("predictive", None, "predictive has no latency models and uses the estimate of network delay"),
        (
            "predictive-search",
            "traffic",
            "predictive-search has no latency models and uses the estimate of traffic",
        ),
        ("local-search", None, ""),
    ],
)
def test_run_warns_of_a_predictive_policy_without_models(
    capsys: pytest.CaptureFixture[str], policy: str, objective: str | None, expected: str
) -> None:
    words = application("word-count")
    check_autopilot(AutopilotOptions(policy), words, RunConfig(), objective=objective)
    heard = capsys.readouterr().err
    assert heard == (f"warning: {expected}; add their file with --model\n" if expected else "")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--shadow",), "error: shadow: expected --autopilot POLICY with --shadow, got none; name one"),
        (("--max-moves", 3), "error: max-moves: expected --autopilot POLICY with --max-moves, got none; name one"),
        (("--autopilot", "x"), "error: policy: no policy is named 'x'"),
        (("--autopilot", "flink", "--threshold", "much"), "error: threshold: expected a share such as 5% or 0.05"),
        (("--autopilot", "flink", "--interval", 0), "error: interval: expected a number > 0, got 0"),
        (("--autopilot", "flink", "--sample", "none"), "error: sample: an autopilot needs latencies"),
    ],
)
def test_run_refuses_options_that_make_no_autopilot(
    penstock: Penstock, tmp_path: Path, options: tuple[object, ...], problem: str
) -> None:
    ran = penstock("run", "word-count", "--runs", tmp_path / "runs", *options)
    assert ran.code == 2
    assert ran.err.startswith(problem)
