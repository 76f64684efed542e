"""The loop on a plant whose latencies are known, led by policies that are honest and by policies that are not."""

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from penstock.control.loop.autopilot import Autopilot, Settings
from penstock.control.loop.guard import Guard
from penstock.control.loop.ledger import Decision, Inputs, Ledger, Outcome, Step, Swap, read
from penstock.control.loop.plant import Ended
from penstock.control.loop.proposing import Proposal
from penstock.model.cluster import Cluster
from penstock.model.plan import PlannedRoute
from penstock.model.topology import Application
from tests.control.loop.fake_plant import START, FakePlant

GUARD = Guard(interval_s=1.0, cool_down_s=10.0)


def misplaced(placement: dict[str, str]) -> float:
    """Return 100 ms, and 50 ms more for every task of `work` on the second machine."""
    return 0.1 + 0.05 * sum(placement[f"work[{n}]"].startswith("m1") for n in range(4))


def proposing(moves: dict[str, str], gain: float = 0.3) -> Callable[..., Proposal]:
    def propose(_: Application, __: Cluster, inputs: Inputs) -> Proposal:
        steps = [Step(task, inputs.placement[task], slot) for task, slot in moves.items()]
        steps = [step for step in steps if step.before != step.after]
        return Proposal(moves=steps, weights=[1.0] * len(steps), gain=gain if steps else 0.0)

    return propose


GOOD = proposing({"work[1]": "m0/0", "work[3]": "m0/1"})
BAD = proposing({"work[0]": "m1/0", "work[2]": "m1/1"}, gain=0.9)


def pilot(
    plant: FakePlant, propose: Callable[..., Proposal] = GOOD, guard: Guard = GUARD, shadow: bool = False
) -> Autopilot:
    return Autopilot(plant, Settings(policy="any", shadow=shadow), guard=guard, propose=propose)


def test_keeps_a_change_for_the_better_and_then_leaves_all_as_it_is() -> None:
    plant = FakePlant(misplaced)
    loop = pilot(plant)
    first, second = loop.step(), loop.step()
    assert first is not None
    assert second is not None
    assert (first.verdict, second.verdict) == ("kept", "held")
    assert plant.placed == {**START, "work[1]": "m0/0", "work[3]": "m0/1"}
    assert first.outcome is not None
    assert len(first.outcome.readings) == GUARD.readings
    assert first.outcome.realised_s == pytest.approx(0.1, rel=0.05)
    assert first.decision.before_s == pytest.approx(0.2, rel=0.05)
    assert second.decision.reason == "all tasks are where they should be"
    assert second.decision.at - first.outcome.at >= GUARD.cool_down_s


def test_takes_a_change_for_the_worse_back_to_exactly_the_placement_before() -> None:
    plant = FakePlant(misplaced)
    found = pilot(plant, BAD).step()
    assert found is not None
    assert found.verdict == "rolled back"
    assert plant.placed == START
    assert plant.policy == "as it was"
    assert len(plant.applied) == 2
    assert "above the bound" in (found.outcome or pytest.fail("no outcome")).note


def test_takes_a_change_for_the_worse_back_to_the_routes_before() -> None:
    plant = FakePlant(misplaced)
    by = (PlannedRoute(stream="in->work", source="m0", target="m1", links=("m0--hub", "hub--m1")),)
    plant.planned = by
    seen: list[tuple[PlannedRoute, ...]] = []
    plant.happens[GUARD.interval_s * (GUARD.readings + 1)] = lambda plant: seen.append(plant.planned)
    found = pilot(plant, BAD).step()
    assert found is not None
    assert found.verdict == "rolled back"
    assert seen == [()]
    assert plant.planned == by


def test_a_policy_that_is_bad_on_purpose_never_exceeds_the_bound_for_longer_than_one_measuring_interval() -> None:
    """It lies about the gain, in a different way each time; some lies are too small for single readings to tell."""
    rng = np.random.default_rng(5)
    costs = {f"m{m}/{s}": (0.0, 0.004, 0.4, 30.0)[2 * m + s] for m in range(2) for s in range(2)}
    usual = 0.1
    plant = FakePlant(lambda placed: usual + sum(costs[slot] for slot in placed.values()), noise=0.03)
    plant.placed = dict.fromkeys(START, "m0/0")

    def propose(_: Application, __: Cluster, inputs: Inputs) -> Proposal:
        tasks = rng.choice(list(START), size=rng.integers(1, 4), replace=False)
        steps = [Step(str(task), inputs.placement[str(task)], str(rng.choice(list(costs)[1:]))) for task in tasks]
        return Proposal(moves=[step for step in steps if step.before != step.after], gain=0.99)

    loop = pilot(plant, propose)
    episodes = [episode for _ in range(25) if (episode := loop.step()) is not None]
    verdicts = [episode.verdict for episode in episodes]
    assert verdicts.count("rolled back") >= 15
    bound = max(episode.decision.bound_s for episode in episodes)
    assert bound < 1.5 * usual
    assert longest_above(plant.history, bound) <= GUARD.measuring_s + 0.2
    assert plant.latency_s(plant.placed) <= bound


def longest_above(history: Iterable[tuple[float, float]], bound: float) -> float:
    longest, since = 0.0, None
    for at, latency in history:
        if latency <= bound:
            since = None
        elif since is None:
            since = at - GUARD.interval_s  # it began with the change before this look
        longest = max(longest, 0.0 if since is None else at - since)
    return longest


def test_rests_twice_as_long_after_each_change_taken_back_and_as_usual_after_a_good_one() -> None:
    plant = FakePlant(misplaced)
    loop = pilot(plant, BAD)
    found = [loop.step() for _ in range(4)]
    rests = [
        after.decision.at - before.outcome.at
        for before, after in itertools.pairwise(found)
        if before is not None and after is not None and before.outcome is not None
    ]
    assert rests == pytest.approx([20.0, 40.0, 80.0], abs=1.5)
    loop._propose = GOOD
    kept = loop.step()
    after = loop.step()
    assert kept is not None
    assert kept.outcome is not None
    assert after is not None
    assert kept.verdict == "kept"
    assert after.decision.at - kept.outcome.at == pytest.approx(10.0, abs=1.5)


def test_changes_that_are_slightly_worse_do_not_add_up() -> None:
    """Each adds less than the bound allows; the bound of the first holds for all."""
    counted = {"n": 0}

    def propose(_: Application, __: Cluster, inputs: Inputs) -> Proposal:
        counted["n"] += 1
        task = f"work[{counted['n'] % 4}]"
        slot = "m0/1" if inputs.placement[task] != "m0/1" else "m0/0"
        return Proposal(moves=[Step(task, inputs.placement[task], slot)], gain=0.5)

    creeping = FakePlant(lambda _: 0.1 * 1.03 ** (len(creeping.applied) - 2 * rolled()), noise=0.001)
    loop = pilot(creeping, propose)
    verdicts: list[str] = []

    def rolled() -> int:
        return verdicts.count("rolled back")

    for _ in range(10):
        found = loop.step()
        verdicts.append("" if found is None else found.verdict)
    assert verdicts[:2] == ["kept", "rolled back"]
    assert creeping.latency_s(creeping.placed) <= 0.1 * 1.06


def test_moves_no_more_tasks_than_it_may() -> None:
    plant = FakePlant(misplaced)
    found = pilot(plant, guard=Guard(interval_s=1.0, max_moves=1)).step()
    assert found is not None
    assert (found.verdict, found.decision.reason) == ("held", "2 moves are more than 1")
    assert plant.applied == []


def test_shadow_decides_and_records_but_never_acts() -> None:
    plant = FakePlant(misplaced)
    loop = pilot(plant, shadow=True)
    found = [loop.step() for _ in range(3)]
    assert [one.verdict for one in found if one] == ["shadow"] * 3
    assert plant.applied == []
    assert plant.placed == START


def test_the_policy_is_swapped_while_it_runs() -> None:
    plant = FakePlant(misplaced)
    loop = pilot(plant)
    first = loop.step()
    plant.happens[plant.now() + 4.0] = lambda _: loop.swap("another", shadow=True)
    second = loop.step()
    assert first is not None
    assert second is not None
    assert (first.decision.inputs.policy, second.decision.inputs.policy) == ("any", "another")
    assert second.decision.shadow
    loop.swap(None)
    assert loop.step(until=plant.now() + 100.0) is None
    swaps = [line for line in loop.ledger.lines if isinstance(line, Swap)]
    assert [swap.policy for swap in swaps] == ["another", None]


def test_a_failure_makes_a_measurement_void_and_it_is_made_again() -> None:
    plant = FakePlant(misplaced)

    def fail(plant: FakePlant) -> None:
        plant.epoch += 1

    plant.happens[8.0] = fail
    found = pilot(plant).step()
    assert found is not None
    assert found.outcome is not None
    assert (found.verdict, found.outcome.voided) == ("kept", 1)


def test_a_change_that_could_never_be_measured_is_taken_back() -> None:
    plant = FakePlant(misplaced)
    plant.happens = {7.0 + n: lambda plant: setattr(plant, "epoch", plant.epoch + 1) for n in range(40)}
    found = pilot(plant).step()
    assert found is not None
    assert found.outcome is not None
    assert (found.verdict, found.outcome.voided) == ("void", 3)
    assert plant.placed == START


def test_tasks_that_others_move_meanwhile_are_left_to_them() -> None:
    plant = FakePlant(misplaced)
    plant.happens[8.0] = lambda plant: plant.placed.update({"out[0]": "m1/1"})
    found = pilot(plant).step()
    assert found is not None
    assert found.verdict == "void"
    assert plant.placed["out[0]"] == "m1/1"
    assert len(plant.applied) == 1


def test_moves_that_fail_halfway_are_taken_back_even_where_that_fails_once() -> None:
    plant = FakePlant(misplaced)
    plant.breaks = {1, 2}
    found = pilot(plant).step()
    assert found is not None
    assert found.outcome is not None
    assert (found.verdict, found.outcome.note) == ("failed", "move: the second task would not go")
    assert plant.placed == START
    assert len(plant.applied) == 3


def test_a_policy_that_raises_does_no_harm() -> None:
    def propose(*_: object) -> Proposal:
        raise ZeroDivisionError("by nothing")

    plant = FakePlant(misplaced)
    found = pilot(plant, propose).step()
    assert found is not None
    assert (found.verdict, found.decision.reason) == ("held", "any failed, ZeroDivisionError: by nothing")


def test_a_plant_that_ends_ends_the_loop_and_leaves_its_last_decision_unfinished() -> None:
    plant = FakePlant(misplaced, lasts=8.0)
    loop = pilot(plant)
    loop.run()
    outcomes = [line for line in loop.ledger.lines if isinstance(line, Outcome)]
    assert [outcome.verdict for outcome in outcomes] == ["unfinished"]
    with pytest.raises(Ended):
        plant.wait(1.0)


def test_every_decision_is_in_the_ledger_before_anything_is_done(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"

    class Watching(FakePlant):
        def apply(self, plan):  # type: ignore[no-untyped-def]
            assert isinstance(read(path).lines[-1], Decision)
            return super().apply(plan)

    plant = Watching(misplaced)
    Autopilot(plant, Settings(policy="any"), guard=GUARD, propose=GOOD, ledger=Ledger(path)).run(60.0)
    (first, *rest) = read(path).episodes
    assert (first.verdict, {one.verdict for one in rest}) == ("kept", {"held"})
    assert first.decision.inputs.placement == START
    assert [reading.at for reading in read(path).readings] == sorted(reading.at for reading in read(path).readings)
