"""Moves of others during a decision, or while its change is in force, are not rolled back."""

from collections.abc import Callable

import pytest

from penstock.autopilot.ledger import Inputs
from penstock.autopilot.moves import placement_after
from penstock.autopilot.proposal import Proposal
from penstock.model.cluster import Cluster
from penstock.model.plan import Plan, PlannedRoute
from penstock.model.topology import Application
from penstock.runtime.handle import MovedTask
from tests.autopilot.fake_target import GOOD, GUARD, START, FakeTarget, misplaced, pilot, proposing


def interrupted(happens: Callable[[], None], propose: Callable[..., Proposal] = GOOD) -> Callable[..., Proposal]:
    """Return a policy that something happens to once, while it decides for the first time."""
    left = [happens]

    def propose_late(application: Application, cluster: Cluster, inputs: Inputs) -> Proposal:
        if left:
            left.pop()()
        return propose(application, cluster, inputs)

    return propose_late


def test_repeats_a_decision_if_others_move_tasks_meanwhile() -> None:
    target = FakeTarget(misplaced)
    loop = pilot(target, interrupted(lambda: target.placed.update({"out[0]": "m1/1"})))
    first = loop.step()
    assert first is not None
    assert first.outcome is not None
    assert (first.verdict, first.outcome.in_force_s) == ("void", 0.0)
    assert first.outcome.note.startswith("others or a recovery moved tasks during the decision")
    assert target.applied == []
    second = loop.step()
    assert second is not None
    assert second.verdict == "kept"
    assert second.decision.inputs.placement["out[0]"] == "m1/1"
    assert second.decision.inputs.readings[0].at > first.outcome.at
    assert second.decision.at == pytest.approx(first.outcome.at + GUARD.readings * GUARD.interval_s)
    assert target.placed == {**START, "out[0]": "m1/1", "work[1]": "m0/0", "work[3]": "m0/1"}


@pytest.mark.parametrize("recovered", [True, False])
def test_a_decision_is_void_if_the_run_fails_meanwhile(recovered: bool) -> None:
    target = FakeTarget(misplaced)

    def fail() -> None:
        target.epoch, target.steady = target.epoch + recovered, recovered

    loop = pilot(target, interrupted(fail))
    target.happens[target.now() + 10.0] = lambda target: setattr(target, "steady", True)
    first, second = loop.step(), loop.step()
    assert first is not None
    assert second is not None
    assert (first.verdict, second.verdict) == ("void", "kept")
    assert target.applied == [placement_after(second.decision)]
    assert {reading.epoch for reading in second.decision.inputs.readings} == {target.epoch}


def test_a_decision_is_void_if_others_change_routes_meanwhile() -> None:
    target = FakeTarget(misplaced)
    by = (PlannedRoute(stream="in->work", source="m0", target="m1", links=("m0--hub", "hub--m1")),)
    found = pilot(target, interrupted(lambda: setattr(target, "planned", by))).step()
    assert found is not None
    assert (found.verdict, target.applied, target.planned) == ("void", [], by)


def test_a_failed_change_is_not_rolled_back_over_moves_of_others() -> None:
    """If a move fails because its machine was lost, a recovery has moved other tasks by then."""

    class Losing(FakeTarget):
        def apply(self, plan: Plan) -> list[MovedTask]:
            self.placed["out[0]"] = "m1/1"
            return super().apply(plan)

    target = Losing(misplaced)
    target.refuses = {1}
    found = pilot(target).step()
    assert found is not None
    assert found.outcome is not None
    assert found.verdict == "void"
    assert found.outcome.note == "move: no task would go; tasks were moved since, and stay there"
    assert target.placed == {**START, "out[0]": "m1/1"}


def test_uses_the_singular_for_one() -> None:
    states: list[str] = []

    class Telling(FakeTarget):
        def apply(self, plan: Plan) -> list[MovedTask]:
            states.append(loop.state)
            return super().apply(plan)

    loop = pilot(Telling(misplaced), proposing({"work[1]": "m0/0"}))
    found = loop.step()
    assert found is not None
    assert found.decision.reason == "predicted gain 30.0%, 1 move"
    assert states == ["moving 1 task"]
