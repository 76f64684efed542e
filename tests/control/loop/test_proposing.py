"""Proposals of registered policies, and decisions made again from a ledger."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.control.loop.autopilot import Autopilot, Settings
from penstock.control.loop.guard import Guard
from penstock.control.loop.ledger import Inputs, Ledger, read
from penstock.control.loop.plant import Reading
from penstock.control.loop.proposing import by_policy, plan_of, slots_of
from penstock.control.loop.replaying import replay
from penstock.estimate.latency import LatencyModel, Loads, load_models, save_models
from penstock.model.errors import UnknownName
from penstock.model.instance import Instance
from tests.control.loop.fake_plant import APPLICATION, CLUSTER, SEARCH, START, FakePlant
from tests.estimate.latency_cases import random_models

SCATTERED = {**START, "in[0]": "m1/0", "out[0]": "m1/1", "work[0]": "m0/0", "work[2]": "m0/1"}


def inputs(policy: str = SEARCH, most: int = 10, **changes: object) -> Inputs:
    seen = [Reading(at=1.0, seconds=1.0, count=9, mean_s=0.1, rates={"in": 100.0})]
    made = Inputs(
        policy=policy, objective="delay", seed=1, placement=SCATTERED, rates={"in": 100.0}, readings=seen,
        held_s=0.1, guard=Guard(max_moves=most),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def test_proposes_the_moves_of_a_policy_with_their_relative_gain() -> None:
    found = by_policy(APPLICATION, CLUSTER, inputs())
    assert found.moves
    assert found.gain > 0.3
    stay, policy, *parts = found.alternatives
    assert (stay.name, stay.moves, stay.gain) == ("stay", 0, 0.0)
    assert policy.name == SEARCH
    (chosen,) = [one for one in found.alternatives if one.chosen]
    assert (chosen.moves, chosen.gain) == (len(found.moves), found.gain)
    assert parts[-1].moves == len(parts)


def test_a_plan_of_too_many_moves_is_cut_to_the_best_of_them() -> None:
    whole, part = by_policy(APPLICATION, CLUSTER, inputs()), by_policy(APPLICATION, CLUSTER, inputs(most=1))
    assert len(part.moves) <= 1 < len(whole.moves)
    assert part.gain < whole.gain


def test_leaves_tasks_where_they_are_that_would_go_to_a_machine_which_does_not_answer() -> None:
    gone = [Reading(at=1.0, seconds=1.0, count=9, mean_s=0.1, gone=("m0",))]
    found = by_policy(APPLICATION, CLUSTER, inputs(readings=gone))
    assert all(not move.after.startswith("m0/") for move in found.moves)


def test_a_policy_that_finds_no_placement_says_why() -> None:
    heavy = msgspec.structs.replace(APPLICATION.components[1], memory_mb=1e6)
    application = msgspec.structs.replace(
        APPLICATION, components=(APPLICATION.components[0], heavy, APPLICATION.components[2])
    )
    found = by_policy(application, CLUSTER, inputs(policy="r-storm"))
    assert found.problem.startswith("r-storm finds no placement: ")
    assert found.moves == []


def test_a_placement_in_names_becomes_a_plan_that_fits() -> None:
    plan = plan_of(APPLICATION, CLUSTER, SCATTERED, policy="p", objective="delay", seed=3)
    assert plan.tasks["work"] == tuple(SCATTERED[f"work[{n}]"] for n in range(4))
    assert (plan.policy, plan.seed) == ("p", 3)


@pytest.mark.parametrize("policy", [SEARCH, "predictive-search"])
def test_with_latency_models_the_gain_is_of_the_predicted_latency(tmp_path: Path, policy: str) -> None:
    file = tmp_path / "models.npz"
    instance = Instance(APPLICATION, CLUSTER)
    loads = Loads.declared(instance, {"in": 100.0})
    models = random_models(np.random.default_rng(7), instance, loads, kind="svr-rbf")
    save_models(models, file)
    asked = inputs(policy=policy, model=str(file))
    found = by_policy(APPLICATION, CLUSTER, asked)
    model = LatencyModel(instance, load_models(file), loads)
    moved = SCATTERED | {move.task: move.after for move in found.moves}
    before, after = (model.predict(slots_of(placed, CLUSTER)).expected_s for placed in (SCATTERED, moved))
    assert found.moves
    assert found.predicted_s == pytest.approx(after)
    assert found.gain == pytest.approx(1 - after / before)
    assert by_policy(APPLICATION, CLUSTER, asked) == found


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger with a change that was kept and others that were held, by a policy of the registry."""
    plant = FakePlant(lambda placed: 0.1 + 0.1 * len({slot.partition("/")[0] for slot in placed.values()}))
    plant.placed = dict(SCATTERED)
    path = tmp_path / "decisions.jsonl"
    settings = Settings(policy=SEARCH, seed=4)
    Autopilot(plant, settings, guard=Guard(interval_s=1.0), ledger=Ledger(path)).run(100.0)
    return path


def test_a_decision_made_again_from_the_ledger_is_the_same(ledger: Path) -> None:
    episodes = read(ledger).episodes
    assert episodes[0].verdict == "kept"
    assert len(episodes) >= 2
    for episode in episodes:
        assert replay(episode) == episode.decision


def test_another_policy_decides_on_the_same_inputs(ledger: Path) -> None:
    first = read(ledger).episodes[0]
    other = replay(first, "round-robin")
    assert other.inputs == msgspec.structs.replace(first.decision.inputs, policy="round-robin")
    assert other.moves != first.decision.moves
    assert not other.acts
    assert other.reason == "no move towards round-robin's placement gains any"
    with pytest.raises(UnknownName, match="no policy is named 'wishful'"):
        replay(first, "wishful")
