"""Reasons why a repeated decision differs: its models, or time."""

from pathlib import Path

import numpy as np
import pytest

from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
from penstock.autopilot.decision import likely_cause, model_changed
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import Decision
from penstock.estimate.latency import Loads, load_models, save_models
from penstock.model.instance import Instance
from tests.autopilot.fake_target import APPLICATION, CLUSTER, FakeTarget
from tests.estimate.latency_cases import random_models


def write_models(path: Path, seed: int) -> None:
    instance = Instance(APPLICATION, CLUSTER)
    loads = Loads.declared(instance, {"in": 100.0})
    save_models(random_models(np.random.default_rng(seed), instance, loads, kind="linear"), path)


def decided(policy: str, model: str = "") -> Decision:
    loop = Autopilot(
        FakeTarget(lambda _: 0.1), AutopilotSettings(policy=policy, model=model), guard=Guard(interval_s=1.0)
    )
    found = loop.step()
    assert found is not None
    return found.decision


def test_models_that_are_swapped_while_it_runs_count_from_the_next_decision(tmp_path: Path) -> None:
    write_models(tmp_path / "models.npz", 1)
    loop = Autopilot(FakeTarget(lambda _: 0.1), AutopilotSettings(policy="round-robin"), guard=Guard(interval_s=1.0))
    first = loop.step()
    loop.swap("round-robin", model=str(tmp_path / "models.npz"))
    second = loop.step()
    assert first is not None
    assert second is not None
    assert first.decision.inputs.model == ""
    assert second.decision.inputs.checksum == load_models(tmp_path / "models.npz").checksum


def test_a_decision_detects_changed_models_by_checksum(tmp_path: Path) -> None:
    file = tmp_path / "models.npz"
    write_models(file, 1)
    made = decided("round-robin", str(file))
    assert made.inputs.checksum == load_models(file).checksum
    assert len(made.inputs.checksum) == 64
    assert model_changed(made) == ""
    write_models(file, 2)
    reported = f"{file} now has the checksum {load_models(file).checksum[:12]}"
    assert model_changed(made) == f"{reported}; the decision used {made.inputs.checksum[:12]}"
    assert likely_cause(made) == model_changed(made)
    file.unlink()
    assert "no longer exists" in model_changed(made)


@pytest.mark.parametrize(
    ("policy", "cause"),
    [
        ("local-search:seconds=0.01", "local-search:seconds=0.01 searches for 0.01 s, and its result depends"),
        ("round-robin", "the decision may have been made by another version of Penstock"),
    ],
)
def test_reports_a_time_limited_policy(policy: str, cause: str) -> None:
    made = decided(policy)
    assert model_changed(made) == ""
    assert likely_cause(made).startswith(cause)
