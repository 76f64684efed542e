"""Names of enumerations: every public function that takes a member takes its name, and refuses any other text."""

from collections.abc import Callable

import numpy as np
import pytest

import penstock as ps
from penstock.autopilot.autopilot import AutopilotSettings
from penstock.autopilot.pilot import caution
from penstock.estimate.evaluator import Evaluator
from penstock.experiments.sweep import run_case, sweep_cases
from penstock.model.errors import UnknownName
from penstock.model.objective import Objective
from penstock.model.placement import Constraint, Infeasible
from penstock.planning.failover_placement import additions, completion
from penstock.planning.planner import Planner, plan_by
from penstock.policies.registry import names, policy_class

APPLICATION, CLUSTER = ps.application("word-count"), ps.cluster("hetero-small")
SLOTS = tuple(range(sum(component.parallelism for component in APPLICATION.components)))


@pytest.mark.parametrize("objective", [objective for objective in Objective if objective is not Objective.BALANCED])
def test_a_name_is_taken_for_its_member(objective: Objective) -> None:
    by_member, by_name = (Planner(APPLICATION, CLUSTER, given) for given in (objective, objective.value))
    assert by_name == by_member
    rows = np.array([by_member.decide(name).result.slots for name in ("round-robin", "t-storm")], dtype=np.int32)  # type: ignore[union-attr]
    assert by_name.view.evaluate is not None
    assert by_member.view.evaluate is not None
    assert by_name.view.evaluate(rows).tolist() == by_member.view.evaluate(rows).tolist()
    for decision in (by_member.decide("round-robin"), by_member.decide("t-storm")):
        assert by_name.score(decision) == by_member.score(decision)


def test_balanced_has_its_reference_by_name_too() -> None:
    by_name = Planner(APPLICATION, CLUSTER, "balanced")
    decision = by_name.decide("t-storm")
    assert by_name.score(decision) == Planner(APPLICATION, CLUSTER, Objective.BALANCED).score(decision)


def test_a_sweep_takes_a_name() -> None:
    (case,) = sweep_cases([(APPLICATION, CLUSTER, 0)], ["round-robin"], "traffic", "planning")
    assert run_case(case)["score"] == -run_case(case)["traffic_bytes"]


REFUSING: dict[str, Callable[[str], object]] = {
    "Planner": lambda name: Planner(APPLICATION, CLUSTER, name),
    "plan_by": lambda name: plan_by("round-robin", APPLICATION, CLUSTER, name),
    "scorer": lambda name: Evaluator(APPLICATION, CLUSTER).scorer(name),
    "score": lambda name: _evaluation().score(name),
    "sweep": lambda name: sweep_cases([(APPLICATION, CLUSTER, 0)], ["round-robin"], name, "planning"),
    "completion": lambda name: completion(APPLICATION, CLUSTER, name),
    "additions": lambda name: additions(APPLICATION, CLUSTER, [CLUSTER.slot_names[0]] * len(SLOTS), name),
    "autopilot": lambda name: AutopilotSettings(policy="local-search", objective=name),
    "caution": lambda name: caution("predictive", "", name),
}


def _evaluation() -> ps.Evaluation:
    found = Planner(APPLICATION, CLUSTER).decide("round-robin").evaluation
    assert found is not None
    return found


@pytest.mark.parametrize("entry", REFUSING)
@pytest.mark.parametrize(
    ("name", "hint"), [("speed", r"throughput, traffic$"), ("trafic", r"traffic; did you mean traffic\?$")]
)
def test_another_name_is_rejected_with_the_choices(entry: str, name: str, hint: str) -> None:
    with pytest.raises(UnknownName, match=rf"^objective: no objective is named '{name}'; there are balanced, .*{hint}"):
        REFUSING[entry](name)


def test_constraints_and_kinds_go_by_their_names() -> None:
    assert Infeasible("memory", "no room", 2.0, 1.0).constraint is Constraint.MEMORY  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match=r"no constraint is named 'memroy'; there are .*; did you mean memory\?"):
        Infeasible("memroy", "no room", 2.0, 1.0)  # type: ignore[arg-type]
    assert "potus" in names("routing")
    with pytest.raises(UnknownName, match="no policy is named 'x'"):
        policy_class("x", "placement")
    with pytest.raises(UnknownName, match=r"no kind is named 'rooting'; there are .*; did you mean routing\?"):
        names("rooting")
