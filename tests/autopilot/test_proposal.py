"""Proposals of registered policies, and decisions repeated from a ledger."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
from penstock.autopilot.control_target import Reading
from penstock.autopilot.decision import replay
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import Inputs, Ledger, read_ledger
from penstock.autopilot.proposal import loads_from_readings, make_plan, propose_with_policy, slot_numbers
from penstock.estimate.latency import LatencyModel, LatencyModels, Loads, load_models, save_models
from penstock.model.errors import UnknownName
from penstock.model.features import EDGE_FEATURES, TASK_FEATURES
from penstock.model.instance import Instance
from tests.autopilot.fake_target import APPLICATION, CLUSTER, SEARCH, START, TASKS, FakeTarget
from tests.estimate.latency_cases import line, random_models

SKEWED = dict(zip(TASKS, (100.0, 20.0, 5.0, 70.0, 5.0, 100.0), strict=True))  # the third of `work` has the hot keys
SCATTERED = {**START, "in[0]": "m1/0", "out[0]": "m1/1", "work[0]": "m0/0", "work[2]": "m0/1"}


def inputs(policy: str = SEARCH, most: int = 10, **changes: object) -> Inputs:
    seen = [Reading(at=1.0, seconds=1.0, count=9, mean_s=0.1, rates={"in": 100.0})]
    made = Inputs(
        policy=policy, objective="delay", seed=1, placement=SCATTERED, rates={"in": 100.0}, readings=seen,
        held_s=0.1, guard=Guard(max_moves=most),
    )  # fmt: skip
    return msgspec.structs.replace(made, **changes)


def test_proposes_the_moves_of_a_policy_with_their_relative_gain() -> None:
    found = propose_with_policy(APPLICATION, CLUSTER, inputs())
    assert found.moves
    assert found.gain > 0.3
    stay, policy, *parts = found.alternatives
    assert (stay.name, stay.moves, stay.gain) == ("stay", 0, 0.0)
    assert policy.name == SEARCH
    (chosen,) = [one for one in found.alternatives if one.chosen]
    assert (chosen.moves, chosen.gain) == (len(found.moves), found.gain)
    assert parts[-1].moves == len(parts)


def test_a_plan_of_too_many_moves_is_cut_to_the_best_of_them() -> None:
    whole, part = (
        propose_with_policy(APPLICATION, CLUSTER, inputs()),
        propose_with_policy(APPLICATION, CLUSTER, inputs(most=1)),
    )
    assert len(part.moves) <= 1 < len(whole.moves)
    assert part.gain < whole.gain


def test_keeps_tasks_off_machines_that_do_not_respond() -> None:
    unreachable = [Reading(at=1.0, seconds=1.0, count=9, mean_s=0.1, unreachable=("m0",))]
    found = propose_with_policy(APPLICATION, CLUSTER, inputs(readings=unreachable))
    assert all(not move.after.startswith("m0/") for move in found.moves)


def test_a_policy_without_a_placement_gives_the_reason() -> None:
    heavy = msgspec.structs.replace(APPLICATION.components[1], memory_mb=1e6)
    application = msgspec.structs.replace(
        APPLICATION, components=(APPLICATION.components[0], heavy, APPLICATION.components[2])
    )
    found = propose_with_policy(application, CLUSTER, inputs(policy="r-storm"))
    assert found.problem.startswith("r-storm found no placement: ")
    assert found.moves == []


def test_a_placement_in_names_becomes_a_plan_that_fits() -> None:
    plan = make_plan(APPLICATION, CLUSTER, SCATTERED, policy="p", objective="delay", seed=3)
    assert plan.tasks["work"] == tuple(SCATTERED[f"work[{n}]"] for n in range(4))
    assert (plan.policy, plan.seed) == ("p", 3)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [SEARCH, "predictive-search"])
def test_with_latency_models_the_gain_is_of_the_predicted_latency(tmp_path: Path, policy: str) -> None:
    file = tmp_path / "models.npz"
    instance = Instance(APPLICATION, CLUSTER)
    loads = Loads.declared(instance, {"in": 100.0})
    models = random_models(np.random.default_rng(7), instance, loads, kind="svr-rbf")
    save_models(models, file)
    asked = inputs(policy=policy, model=str(file))
    found = propose_with_policy(APPLICATION, CLUSTER, asked)
    model = LatencyModel(instance, load_models(file), loads)
    moved = SCATTERED | {move.task: move.after for move in found.moves}
    before, after = (model.predict(slot_numbers(placed, CLUSTER)).expected_s for placed in (SCATTERED, moved))
    assert found.moves
    assert found.predicted_s == pytest.approx(after)
    assert found.gain == pytest.approx(1 - after / before)
    assert propose_with_policy(APPLICATION, CLUSTER, asked) == found


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger with a change that was kept and others that were held, by a policy of the registry."""
    target = FakeTarget(lambda placed: 0.1 + 0.1 * len({slot.partition("/")[0] for slot in placed.values()}))
    target.placed = dict(SCATTERED)
    path = tmp_path / "decisions.jsonl"
    settings = AutopilotSettings(policy=SEARCH, seed=4)
    Autopilot(target, settings, guard=Guard(interval_s=1.0), ledger=Ledger(path)).run(100.0)
    return path


def test_a_decision_made_again_from_the_ledger_is_the_same(ledger: Path) -> None:
    episodes = read_ledger(ledger).episodes
    assert episodes[0].verdict == "kept"
    assert len(episodes) >= 2
    for episode in episodes:
        assert replay(episode) == episode.decision


def test_another_policy_decides_on_the_same_inputs(ledger: Path) -> None:
    first = read_ledger(ledger).episodes[0]
    other = replay(first, "round-robin")
    assert other.inputs == msgspec.structs.replace(first.decision.inputs, policy="round-robin")
    assert other.moves != first.decision.moves
    assert not other.acts
    assert other.reason == "no move towards round-robin's placement has a gain"
    with pytest.raises(UnknownName, match="no policy is named 'wishful'"):
        replay(first, "wishful")


@pytest.fixture
def crowded(tmp_path: Path) -> str:
    """Models by which `work` takes the longer the more tuples its machine gets, and all else takes 1 ms."""
    flat, steep = line(len(TASK_FEATURES), 1e-3), line(len(TASK_FEATURES), 1e-3, machine_load=1e-4)
    streams = {stream.label: line(len(EDGE_FEATURES), 1e-3) for stream in APPLICATION.streams}
    save_models(LatencyModels({"work": steep, "out": flat}, streams, application="chain"), tmp_path / "crowded.npz")
    return str(tmp_path / "crowded.npz")


def skewed(model: str, path: Path, **seen: float) -> Path:
    """Lead a target whose keys are skewed to its first decision, of one move."""
    target = FakeTarget(lambda _: 0.1)
    target.tasks = SKEWED | seen
    settings, guard = AutopilotSettings(policy=SEARCH, model=model), Guard(interval_s=1.0, max_moves=1)
    Autopilot(target, settings, guard=guard, ledger=Ledger(path)).step()
    return path


def test_with_skewed_keys_the_hot_task_is_moved_and_weighs_what_it_processes(crowded: str, tmp_path: Path) -> None:
    """It shares m0 with work[0], source and sink, from which declared loads could not separate it."""
    decision = read_ledger(skewed(crowded, tmp_path / "decisions.jsonl")).episodes[0].decision
    assert [move.task for move in decision.moves] == ["work[2]"]
    before = 4e-3 + 1e-4 * (0.9 * 290 + 0.1 * 10)  # (2.2): by shares of what `work` processes
    after = 4e-3 + 1e-4 * (0.2 * 220 + 0.8 * 80)
    assert decision.predicted_s == pytest.approx(after)
    assert decision.gain == pytest.approx(1 - after / before)
    assert decision.cost_s == pytest.approx(decision.inputs.guard.cost_s([0.7], decision.inputs.held_s))


def test_what_was_observed_is_in_the_ledger_so_that_decisions_are_made_again_by_it(
    crowded: str, tmp_path: Path
) -> None:
    (episode,) = read_ledger(skewed(crowded, tmp_path / "decisions.jsonl")).episodes
    assert episode.decision.inputs.readings[-1].tasks == SKEWED
    assert replay(episode) == episode.decision
    other = replay(episode, "round-robin")
    assert other.inputs.readings == episode.decision.inputs.readings
    stay, same = (made.alternatives[0].score for made in (episode.decision, other))
    assert stay == same


def test_a_ledger_without_observed_tasks_is_read_and_decided_by_declared_loads(crowded: str, tmp_path: Path) -> None:
    path = skewed(crowded, tmp_path / "decisions.jsonl")
    path.write_bytes(b"\n".join(map(without_tasks, path.read_bytes().splitlines())))
    book = read_ledger(path)
    assert not book.problems
    (episode,) = book.episodes
    assert not episode.decision.inputs.readings[-1].tasks
    assert replay(episode).alternatives[0].score == pytest.approx(-(4e-3 + 1e-4 * (0.5 * 250 + 0.5 * 50)))


def without_tasks(line: bytes) -> bytes:
    record = msgspec.json.decode(line)
    for reading in [record.get("reading", {}), *record.get("inputs", {}).get("readings", [])]:
        reading.pop("tasks", None)
    return msgspec.json.encode(record)


def test_observed_loads_are_scaled_to_the_offered_rate() -> None:
    instance = Instance(APPLICATION, CLUSTER)

    def found(rate: float, **tasks: float) -> list[float]:
        seen = [Reading(at=1.0, seconds=1.0, count=9, mean_s=0.1, rates={"in": rate}, tasks=tasks)]
        return [float(tps) for tps in loads_from_readings(instance, inputs(readings=seen, rates={"in": rate})).task_tps]

    assert found(200.0, **SKEWED) == pytest.approx([200, 40, 10, 140, 10, 200])
    even = [100, 25, 25, 25, 25, 100]
    assert found(100.0) == pytest.approx(even)
    assert found(100.0, **dict.fromkeys(TASKS, 0.0)) == pytest.approx(even)
    assert found(100.0, **SKEWED | {"out[0]": 0.0}) == pytest.approx([100, 20, 5, 70, 5, 100])  # nothing came to it yet
