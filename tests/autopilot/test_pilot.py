"""The policy and latency models of a running autopilot can be changed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import LEDGER, Swap, read_ledger
from penstock.autopilot.pilot import PREDICTIVE, Pilot, attach
from penstock.estimate.latency import Loads, save_models
from penstock.model.cluster import Cluster
from penstock.model.errors import InvalidInput
from penstock.model.instance import Instance
from penstock.model.topology import Application
from penstock.policies.registry import PolicyKind, names
from tests.autopilot.fake_target import APPLICATION, CLUSTER
from tests.estimate.latency_cases import random_models
from tests.fake_run import Served, flow

SLOW = Guard(interval_s=600.0)  # it decides nothing as long as a test lasts
CAUTION = "predictive has no latency models and uses the estimate of network delay; add their file with --model"


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Served]:
    with Served(tmp_path / "runs") as served:
        yield served


@pytest.fixture
def pilot(run: Served) -> Iterator[Pilot]:
    made = attach(run.handle, guard=SLOW)  # type: ignore[arg-type]
    yield made
    run.handle.stop()
    made.join()


def write_models(path: Path, application: Application, cluster: Cluster = CLUSTER) -> Path:
    instance = Instance(application, cluster)
    loads = Loads.declared(instance, {"in": 100.0})
    save_models(random_models(np.random.default_rng(0), instance, loads, kind="linear"), path)
    return path


def test_a_run_is_given_latency_models_while_it_runs(
    run: Served, pilot: Pilot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_models(tmp_path / "own.npz", flow().application)
    monkeypatch.chdir(tmp_path)
    assert pilot.steer("predictive").caution == CAUTION
    assert CAUTION in run.info.log_path.read_text()
    found = pilot.steer("predictive", model="own.npz")
    assert (found.model, found.caution) == (str(tmp_path / "own.npz"), "")
    assert pilot.steer("local-search").model == found.model  # until others are named
    swaps = [line for line in read_ledger(run.handle.folder / LEDGER).lines if isinstance(line, Swap)]
    assert [swap.model for swap in swaps] == ["", found.model, found.model]


def test_models_set_before_the_start_are_used(pilot: Pilot, tmp_path: Path) -> None:
    own = write_models(tmp_path / "own.npz", flow().application)
    assert pilot.steer(model=str(own)).policy is None
    found = pilot.steer("predictive")
    assert (found.policy, found.model, found.caution) == ("predictive", str(own), "")


def test_models_of_another_application_are_refused_and_nothing_changes(pilot: Pilot, tmp_path: Path) -> None:
    other = write_models(tmp_path / "other.npz", APPLICATION)
    pilot.steer("local-search")
    with pytest.raises(InvalidInput, match="model: it was trained for 'chain'"):
        pilot.steer("predictive", model=str(other))
    found = pilot.status()
    assert (found.policy, found.model) == ("local-search", "")


def test_a_pilot_is_not_attached_with_models_of_another_application(run: Served, tmp_path: Path) -> None:
    other = write_models(tmp_path / "other.npz", APPLICATION)
    with pytest.raises(InvalidInput, match="model: it was trained for 'chain'"):
        attach(run.handle, "predictive", model=str(other))  # type: ignore[arg-type]
    assert not hasattr(run.handle, "pilot")


def test_only_predictive_policies_are_warned_of(pilot: Pilot) -> None:
    assert set(PREDICTIVE) < set(names(PolicyKind.PLACEMENT))
    assert pilot.steer("local-search:seconds=1").caution == ""
    assert pilot.steer("predictive-search").caution.startswith("predictive-search has no latency models")
    assert pilot.steer("off").caution == ""
