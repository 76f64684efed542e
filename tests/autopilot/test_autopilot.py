"""The loop on a target with known latencies, with honest and dishonest policies."""

import itertools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from penstock.autopilot.autopilot import RESTORES, Autopilot, AutopilotSettings
from penstock.autopilot.control_target import Reading, TargetEnded
from penstock.autopilot.guard import Guard
from penstock.autopilot.ledger import LEDGER, Decision, DecisionOutcome, Inputs, Ledger, Swap, TaskMove, read_ledger
from penstock.autopilot.pilot import attach
from penstock.autopilot.proposal import Proposal
from penstock.model.cluster import Cluster
from penstock.model.plan import PlannedRoute
from penstock.model.topology import Application
from tests.autopilot.fake_target import BAD, CLUSTER, GOOD, GUARD, START, FakeTarget, misplaced, pilot
from tests.fake_run import Served

NOISE = 0.03  # of a reading
MEASURED = 1 + 3 * NOISE / GUARD.readings**0.5  # error of a measurement's mean


def test_keeps_a_change_for_the_better_and_then_leaves_all_as_it_is() -> None:
    target = FakeTarget(misplaced)
    loop = pilot(target)
    first, second = loop.step(), loop.step()
    assert first is not None
    assert second is not None
    assert (first.verdict, second.verdict) == ("kept", "held")
    assert target.placed == {**START, "work[1]": "m0/0", "work[3]": "m0/1"}
    assert first.outcome is not None
    assert len(first.outcome.readings) == GUARD.readings
    assert first.outcome.realised_s == pytest.approx(0.1, rel=0.05)
    assert first.decision.before_s == pytest.approx(0.2, rel=0.05)
    assert second.decision.reason == "all tasks are already in place"
    assert second.decision.at - first.outcome.at >= GUARD.cool_down_s


def test_takes_a_change_for_the_worse_back_to_exactly_the_placement_before() -> None:
    target = FakeTarget(misplaced)
    found = pilot(target, BAD).step()
    assert found is not None
    assert found.verdict == "rolled back"
    assert target.placed == START
    assert target.policy == "as it was"
    assert len(target.applied) == 2
    assert "exceeds the bound" in (found.outcome or pytest.fail("no outcome")).note


def test_takes_a_change_for_the_worse_back_to_the_routes_before() -> None:
    target = FakeTarget(misplaced)
    by = (PlannedRoute(stream="in->work", source="m0", target="m1", links=("m0--hub", "hub--m1")),)
    target.planned = by
    seen: list[tuple[PlannedRoute, ...]] = []
    target.happens[GUARD.interval_s * (GUARD.readings + 1)] = lambda target: seen.append(target.planned)
    found = pilot(target, BAD).step()
    assert found is not None
    assert found.verdict == "rolled back"
    assert seen == [()]
    assert target.planned == by


def test_a_bad_policy_exceeds_the_bound_for_at_most_one_measuring_interval() -> None:
    """It overstates the gain, differently each time; some errors are too small to show in single readings."""
    rng = np.random.default_rng(5)
    costs = {f"m{m}/{s}": (0.0, 0.004, 0.4, 30.0)[2 * m + s] for m in range(2) for s in range(2)}
    usual = 0.1
    target = FakeTarget(lambda placed: usual + sum(costs[slot] for slot in placed.values()), noise=NOISE)
    target.placed = dict.fromkeys(START, "m0/0")

    def propose(_: Application, __: Cluster, inputs: Inputs) -> Proposal:
        tasks = rng.choice(list(START), size=rng.integers(1, 4), replace=False)
        steps = [TaskMove(str(task), inputs.placement[str(task)], str(rng.choice(list(costs)[1:]))) for task in tasks]
        return Proposal(moves=[step for step in steps if step.before != step.after], gain=0.99)

    loop = pilot(target, propose)
    episodes = [episode for _ in range(25) if (episode := loop.step()) is not None]
    verdicts = [episode.verdict for episode in episodes]
    assert verdicts.count("rolled back") >= 15
    begins = [episode.decision.at for episode in episodes]
    for episode, end in zip(episodes, [*begins[1:], target.now()], strict=True):
        stretch = [(at, latency) for at, latency in target.history if episode.decision.at < at <= end]
        assert longest_above(stretch, MEASURED * episode.decision.bound_s) <= GUARD.measuring_s + 0.2
    assert target.latency_s(target.placed) <= MEASURED * episodes[0].decision.bound_s


def longest_above(history: Iterable[tuple[float, float]], bound: float) -> float:
    longest, since = 0.0, None
    for at, latency in history:
        if latency <= bound:
            since = None
        elif since is None:
            since = at - GUARD.interval_s  # it began with the change before this look
        longest = max(longest, 0.0 if since is None else at - since)
    return longest


def test_doubles_the_cool_down_after_each_rollback() -> None:
    target = FakeTarget(misplaced)
    loop = pilot(target, BAD)
    found = [loop.step() for _ in range(4)]
    pauses = [
        after.decision.at - before.outcome.at
        for before, after in itertools.pairwise(found)
        if before is not None and after is not None and before.outcome is not None
    ]
    assert pauses == pytest.approx([20.0, 40.0, 80.0], abs=1.5)
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
        return Proposal(moves=[TaskMove(task, inputs.placement[task], slot)], gain=0.5)

    creeping = FakeTarget(lambda _: 0.1 * 1.03 ** (len(creeping.applied) - 2 * rolled()), noise=0.001)
    loop = pilot(creeping, propose)
    verdicts: list[str] = []

    def rolled() -> int:
        return verdicts.count("rolled back")

    for _ in range(10):
        found = loop.step()
        verdicts.append("" if found is None else found.verdict)
    assert verdicts[:2] == ["kept", "rolled back"]
    assert creeping.latency_s(creeping.placed) <= 0.1 * 1.06


class Levels:
    """A policy with the latencies of its proposals: each placement has a multiple of the previous latency."""

    def __init__(self, *factors: float) -> None:
        self._factors = itertools.cycle(factors)
        self._levels = {tuple(START.values()): 1.0}
        self._slots = itertools.product(CLUSTER.slot_names, repeat=len(START))

    def latency_s(self, placed: dict[str, str]) -> float:
        return 0.1 * self._levels[tuple(placed.values())]

    def __call__(self, _: Application, __: Cluster, inputs: Inputs) -> Proposal:
        here = inputs.placement
        there = next(slots for slots in self._slots if slots not in self._levels)
        self._levels[there] = self._levels[tuple(here.values())] * next(self._factors)
        moves = [TaskMove(task, here[task], slot) for task, slot in zip(here, there, strict=True) if here[task] != slot]
        return Proposal(moves=moves, gain=0.5)


@pytest.mark.parametrize("factors", [(1.04, 0.995), (1.005,), (1.02, 0.999)])
def test_worse_changes_do_not_accumulate_with_better_ones_in_between(
    factors: tuple[float, ...],
) -> None:
    policy = Levels(*factors)
    target = FakeTarget(policy.latency_s, noise=0.001)
    loop = pilot(target, policy)
    episodes = [episode for _ in range(40) if (episode := loop.step()) is not None]
    assert "rolled back" in [episode.verdict for episode in episodes]
    assert target.latency_s(target.placed) <= episodes[0].decision.bound_s


@pytest.mark.slow
def test_changes_that_are_measured_in_lucky_moments_do_not_add_up_beyond_what_a_measurement_may_be_wrong_by() -> None:
    policy = Levels(1.005)
    target = FakeTarget(policy.latency_s, noise=NOISE)
    loop = pilot(target, policy)
    episodes = [episode for _ in range(150) if (episode := loop.step()) is not None]
    assert target.latency_s(target.placed) <= MEASURED * episodes[0].decision.bound_s


def test_recovered_latency_releases_the_anchor() -> None:
    policy = Levels(1.04, 1 / 1.05, 1.04)
    target = FakeTarget(policy.latency_s, noise=0.001)
    loop = pilot(target, policy)
    episodes = [episode for _ in range(3) if (episode := loop.step()) is not None]
    assert [episode.verdict for episode in episodes] == ["kept"] * 3
    anchors = [episode.decision.inputs.anchor_s for episode in episodes]
    assert anchors == [None, pytest.approx(0.105, rel=0.01), None]


def test_moves_no_more_tasks_than_it_may() -> None:
    target = FakeTarget(misplaced)
    found = pilot(target, guard=Guard(interval_s=1.0, max_moves=1)).step()
    assert found is not None
    assert (found.verdict, found.decision.reason) == ("held", "2 moves exceed the maximum of 1")
    assert target.applied == []


def test_shadow_decides_and_records_but_never_acts() -> None:
    target = FakeTarget(misplaced)
    loop = pilot(target, shadow=True)
    found = [loop.step() for _ in range(3)]
    assert [one.verdict for one in found if one] == ["shadow"] * 3
    assert target.applied == []
    assert target.placed == START


def test_the_policy_is_swapped_while_it_runs() -> None:
    target = FakeTarget(misplaced)
    loop = pilot(target)
    first = loop.step()
    target.happens[target.now() + 4.0] = lambda _: loop.swap("another", shadow=True)
    second = loop.step()
    assert first is not None
    assert second is not None
    assert (first.decision.inputs.policy, second.decision.inputs.policy) == ("any", "another")
    assert second.decision.shadow
    loop.swap(None)
    assert loop.step(until=target.now() + 100.0) is None
    swaps = [line for line in loop.ledger.lines if isinstance(line, Swap)]
    assert [swap.policy for swap in swaps] == ["another", None]


def test_a_failure_makes_a_measurement_void_and_it_is_made_again() -> None:
    target = FakeTarget(misplaced)

    def fail(target: FakeTarget) -> None:
        target.epoch += 1

    target.happens[8.0] = fail
    found = pilot(target).step()
    assert found is not None
    assert found.outcome is not None
    assert (found.verdict, found.outcome.voided) == ("kept", 1)


def test_rolls_back_a_change_that_could_not_be_measured() -> None:
    target = FakeTarget(misplaced)
    target.happens = {7.0 + n: lambda target: setattr(target, "epoch", target.epoch + 1) for n in range(40)}
    found = pilot(target).step()
    assert found is not None
    assert found.outcome is not None
    assert (found.verdict, found.outcome.voided) == ("void", 3)
    assert target.placed == START


def test_tasks_that_others_move_meanwhile_are_left_to_them() -> None:
    target = FakeTarget(misplaced)
    target.happens[8.0] = lambda target: target.placed.update({"out[0]": "m1/1"})
    found = pilot(target).step()
    assert found is not None
    assert found.verdict == "void"
    assert target.placed["out[0]"] == "m1/1"
    assert len(target.applied) == 1


def test_rolls_back_partial_moves_even_if_that_fails_once() -> None:
    target = FakeTarget(misplaced)
    target.breaks = {1, 2}
    found = pilot(target).step()
    assert found is not None
    assert found.outcome is not None
    assert (found.verdict, found.outcome.note) == ("failed", "move: the second task would not go")
    assert target.placed == START
    assert len(target.applied) == 3


def test_decides_nothing_while_a_rollback_is_stuck() -> None:
    target = FakeTarget(misplaced)
    target.refuses = set(range(2, 10))
    heard: list[str] = []
    loop = Autopilot(target, AutopilotSettings(policy="any"), guard=GUARD, propose=BAD, report=heard.append)
    found = loop.step()
    assert found is not None
    assert found.outcome is not None
    assert found.verdict == "stuck"
    assert "rollback incomplete, retrying: move: no task would go" in found.outcome.note
    assert any(": stuck, " in line for line in heard)
    assert sum("not all tasks could be rolled back" in line for line in heard) == RESTORES
    assert target.placed != START
    until = target.now() + 2.0
    assert loop.step(until) is None
    assert loop.state.startswith("stuck")
    assert loop.acting
    after = loop.step()
    assert after is not None
    assert after.decision.inputs.placement == START
    outcomes = [line for line in loop.ledger.lines if isinstance(line, DecisionOutcome)]
    assert [(one.number, one.verdict) for one in outcomes[:2]] == [(1, "stuck"), (1, "rolled back")]
    assert after.decision.at > outcomes[1].at
    assert outcomes[1].in_force_s > outcomes[0].in_force_s


def test_does_not_roll_back_tasks_that_others_have_moved() -> None:
    target = FakeTarget(misplaced)
    target.refuses = set(range(2, 7))
    loop = pilot(target, BAD)
    assert loop.step() is not None
    target.placed = dict.fromkeys(START, "m1/1")
    loop.step(target.now() + 2.0)
    assert target.placed == dict.fromkeys(START, "m1/1")
    assert loop.last is not None
    assert loop.last.verdict == "void"


@pytest.mark.parametrize("error", [ZeroDivisionError("of the target"), KeyboardInterrupt()])
def test_rolls_back_first_if_a_measurement_raises(error: BaseException) -> None:
    class Failing(FakeTarget):
        def reading(self) -> Reading:
            if self.placed != START:
                raise error
            return super().reading()

    target = Failing(misplaced)
    loop = pilot(target)
    with pytest.raises(type(error)):
        loop.step()
    assert len(target.applied) == 2
    assert target.placed == START
    assert loop.last is not None
    assert loop.last.verdict == "failed"
    assert isinstance(loop.ledger.lines[-1], DecisionOutcome)


def abandoned(path: Path) -> tuple[FakeTarget, Decision]:
    """Return a target that was changed by a driver which then died, with its ledger."""
    first = pilot(FakeTarget(misplaced)).step()
    assert first is not None
    ledger = Ledger(path)
    ledger.append(first.opening)
    ledger.append(first.decision)
    target = FakeTarget(misplaced)
    target.placed.update({move.task: move.after for move in first.decision.moves})
    target.policy = "any"
    return target, first.decision


def test_the_next_driver_rolls_back_an_unjudged_change(tmp_path: Path) -> None:
    target, _ = abandoned(tmp_path / "l")
    loop = Autopilot(target, AutopilotSettings(policy="any"), guard=GUARD, propose=GOOD, ledger=Ledger(tmp_path / "l"))
    after = loop.step()
    assert after is not None
    assert target.applied[0] == START
    assert (after.decision.number, after.decision.inputs.placement) == (2, START)
    first = read_ledger(tmp_path / "l").episodes[0]
    assert first.outcome is not None
    assert (first.verdict, first.outcome.note) == ("rolled back", "the driver ended before the change was judged")
    assert after.decision.inputs.placed_by == "as it was"
    assert after.decision.at - first.outcome.at >= 2 * GUARD.cool_down_s


def test_tasks_that_are_elsewhere_by_then_are_left_there(tmp_path: Path) -> None:
    target, _ = abandoned(tmp_path / "l")
    target.placed["out[0]"] = "m1/1"
    loop = Autopilot(target, AutopilotSettings(policy="any"), guard=GUARD, ledger=Ledger(tmp_path / "l"))
    assert loop.step(target.now()) is None
    assert target.applied == []
    assert [one.verdict for one in read_ledger(tmp_path / "l").episodes] == ["void"]


def test_a_driver_without_an_autopilot_records_the_unfinished_change(tmp_path: Path) -> None:
    with Served(tmp_path) as served:
        _, decision = abandoned(served.handle.folder / LEDGER)
        attach(served.handle)  # type: ignore[arg-type]
        ledger = Ledger(served.handle.folder / LEDGER)
        assert ledger.left is not None  # for an autopilot that is put on later
        assert (ledger.left.decision, ledger.left.verdict) == (decision, "unfinished")


@pytest.mark.parametrize(("recovers", "voided"), [(1e9, 1), (32.0, 2)])
def test_a_run_that_recovers_late_or_never_is_not_waited_for_without_end(recovers: float, voided: int) -> None:
    target = FakeTarget(misplaced)
    target.happens[8.0] = lambda target: setattr(target, "steady", False)
    target.happens[recovers] = lambda target: setattr(target, "steady", True)
    found = pilot(target).step()
    assert found is not None
    assert found.outcome is not None
    assert (found.verdict, found.outcome.voided) == ("void", voided)
    assert found.outcome.in_force_s <= GUARD.deadline_s + GUARD.interval_s
    assert target.placed == START


def test_nothing_is_written_down_while_it_is_off() -> None:
    target = FakeTarget(misplaced)
    loop = pilot(target)
    loop.step()
    loop.swap(None)
    before = len(loop.ledger.lines)
    assert loop.step(target.now() + 50.0) is None
    assert len(loop.ledger.lines) == before


def test_a_policy_that_raises_does_no_harm() -> None:
    def propose(*_: object) -> Proposal:
        raise ZeroDivisionError("by nothing")

    target = FakeTarget(misplaced)
    found = pilot(target, propose).step()
    assert found is not None
    assert (found.verdict, found.decision.reason) == ("held", "any failed, ZeroDivisionError: by nothing")


def test_a_plant_that_ends_ends_the_loop_and_leaves_its_last_decision_unfinished() -> None:
    target = FakeTarget(misplaced, lasts=8.0)
    loop = pilot(target)
    loop.run()
    outcomes = [line for line in loop.ledger.lines if isinstance(line, DecisionOutcome)]
    assert [outcome.verdict for outcome in outcomes] == ["unfinished"]
    with pytest.raises(TargetEnded):
        target.wait(1.0)


def test_every_decision_is_in_the_ledger_before_anything_is_done(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"

    class Watching(FakeTarget):
        def apply(self, plan):  # type: ignore[no-untyped-def]
            assert isinstance(read_ledger(path).lines[-1], Decision)
            return super().apply(plan)

    target = Watching(misplaced)
    Autopilot(target, AutopilotSettings(policy="any"), guard=GUARD, propose=GOOD, ledger=Ledger(path)).run(60.0)
    (first, *rest) = read_ledger(path).episodes
    assert (first.verdict, {one.verdict for one in rest}) == ("kept", {"held"})
    assert first.decision.inputs.placement == START
    assert [reading.at for reading in read_ledger(path).readings] == sorted(
        reading.at for reading in read_ledger(path).readings
    )
