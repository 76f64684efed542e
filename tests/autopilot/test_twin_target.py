"""The loop on the twin: latencies that follow from queues, and a policy that is bad on purpose."""

import numpy as np
import pytest

from penstock.autopilot.autopilot import Autopilot, AutopilotSettings
from penstock.autopilot.decision import replay
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import Inputs, TaskMove
from penstock.autopilot.proposal import Proposal
from penstock.autopilot.twin_target import TwinTarget
from penstock.model.cluster import Cluster
from penstock.model.costs import Costs
from penstock.model.topology import Application
from penstock.sim.events import Twin
from tests.autopilot.fake_target import APPLICATION, CLUSTER, SEARCH

GUARD = Guard(interval_s=2.0, cool_down_s=4.0)
SPREAD = [0, 0, 1, 0, 1, 1]  # all on the first machine, far from its limit


def target(slots: list[int], rate: float = 400.0) -> TwinTarget:
    twin = Twin(APPLICATION, CLUSTER, Costs(move_s=0.05))
    return TwinTarget(twin, twin.start(slots, rates={"in": rate}, seed=3), "by hand")


def test_a_reading_has_the_twins_measurements() -> None:
    made = target(SPREAD)
    made.wait(5.0)
    made.wait(5.0)
    found = made.reading()
    assert found.seconds == pytest.approx(10.0)
    assert found.rates["in"] == pytest.approx(400.0, rel=0.1)
    assert found.rates["work"] == pytest.approx(found.rates["out"], rel=0.05)
    assert sum(found.tasks[f"work[{n}]"] for n in range(4)) == pytest.approx(found.rates["work"], rel=1e-3)
    assert found.count == pytest.approx(4000, rel=0.1)
    assert found.mean_s is not None
    assert 0.0 < found.mean_s < 0.1
    assert found.cpu["m1"] == 0.0 < found.cpu["m0"] < 1.0
    assert made.placement()["work[1]"] == "m0/1"


def test_a_reading_shows_failed_machines_and_disturbances() -> None:
    made = target(SPREAD)
    made.wait(2.0)
    made.fail("m1")
    made.wait(2.0)
    failed = made.reading()
    assert (failed.unreachable, failed.steady, failed.epoch) == (("m1",), False, 1)
    made.wait(2.0)
    down = made.reading()
    assert (down.unreachable, down.steady) == (("m1",), True)
    made.restore("m1")
    made.wait(2.0)
    back = made.reading()
    assert (back.unreachable, back.steady, back.epoch) == ((), False, 2)


def test_a_source_that_may_not_give_is_blocked_for_a_share_of_the_time() -> None:
    free, full = target(SPREAD), target([0, 1, 1, 1, 1, 1], rate=1500.0)  # half as much again as a slot can do
    for made in (free, full):
        made.wait(30.0)
        made.reading()
        made.wait(10.0)
    assert free.reading().blocked == 0.0
    assert 0.8 < full.reading().blocked <= 1.0


def test_moves_tasks_from_a_bad_placement_to_a_better_one() -> None:
    made = target([0, 2, 2, 2, 2, 0])  # every tuple crosses the network twice
    loop = Autopilot(made, AutopilotSettings(policy=SEARCH), guard=GUARD)
    found = loop.step()
    assert found is not None
    assert found.verdict == "kept"
    assert found.outcome is not None
    assert found.outcome.realised_s is not None
    assert found.outcome.realised_s < 0.8 * found.decision.before_s
    assert replay(found) == found.decision
    assert all(outcome.seconds == 0.05 for outcome in found.outcome.moved)


@pytest.mark.slow
def test_a_bad_policy_exceeds_the_bound_on_the_twin_for_at_most_one_measuring_interval() -> None:
    """It puts tasks together, up to half as much again as a slot can do, and says that this is fine."""
    rng = np.random.default_rng(2)
    made = target([0, 0, 1, 2, 3, 1], rate=1500.0)
    start = made.placement()

    def propose(_: Application, __: Cluster, inputs: Inputs) -> Proposal:
        slot = str(rng.choice(CLUSTER.slot_names))
        tasks = rng.permutation(list(inputs.placement))[: rng.integers(3, 7)]
        steps = [TaskMove(str(task), inputs.placement[str(task)], slot) for task in tasks]
        return Proposal(moves=[step for step in steps if step.before != step.after], gain=0.9)

    loop = Autopilot(made, AutopilotSettings(policy="liar"), guard=GUARD, propose=propose)
    episodes = [found for _ in range(7) if (found := loop.step()) is not None]
    outcomes = [episode.outcome for episode in episodes if episode.outcome is not None]
    assert {outcome.verdict for outcome in outcomes} == {"rolled back"}
    assert made.placement() == start
    made.wait(GUARD.measuring_s)
    bound = episodes[0].decision.bound_s
    assert max(span.mean_s for span in made.spans) > 20 * bound  # there was more than a slot can do
    above = "".join(" " if span.mean_s <= bound else "x" for span in made.spans)
    assert 0 < max(map(len, above.split())) * GUARD.interval_s <= GUARD.measuring_s
    pauses = [after.decision.at - before.at for before, after in zip(outcomes, episodes[1:], strict=False)]
    assert pauses == sorted(pauses)
    assert pauses[-1] > 4 * pauses[0]
