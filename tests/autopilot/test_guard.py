import pytest

from penstock.autopilot.control_target import Reading
from penstock.autopilot.guard import MOST_DOUBLINGS, Anchor, Guard
from penstock.model.errors import InvalidInput


def readings(*means: float) -> list[Reading]:
    return [Reading(at=float(n), seconds=1.0, count=9, mean_s=mean) for n, mean in enumerate(means)]


def test_the_bound_is_the_tolerance_without_noise() -> None:
    assert Guard(tolerance=0.05).bound_s(readings(0.1, 0.1, 0.1)) == pytest.approx(0.105)


def test_the_bound_follows_noise_up_to_twice_the_latency() -> None:
    assert Guard(noise=2.0).bound_s(readings(0.09, 0.1, 0.11)) == pytest.approx(0.12)
    assert Guard(noise=2.0).bound_s(readings(0.01, 0.5, 0.01, 1.0)) == pytest.approx(2 * 1.52 / 4)


def test_an_earlier_bound_holds_for_later_changes() -> None:
    guard = Guard(tolerance=0.1)
    assert guard.bound_s(readings(0.1, 0.1), anchor_s=0.104) == pytest.approx(0.104)
    assert guard.bound_s(readings(0.11, 0.11), anchor_s=0.104) == pytest.approx(0.104)


def test_where_latency_is_far_above_an_earlier_bound_a_change_has_to_be_better_by_more_than_noise() -> None:
    assert Guard(tolerance=0.1).bound_s(readings(0.2, 0.2), anchor_s=0.104) == pytest.approx(0.18)


def test_an_anchor_is_only_ever_tightened() -> None:
    first = Anchor(0.1, 0.105)
    assert first.tightened(0.2, 0.21) == first
    assert first.tightened(0.05, 0.0525) == Anchor(0.05, 0.0525)


def test_a_change_is_judged_after_three_measuring_intervals_at_the_latest() -> None:
    assert Guard(interval_s=2.0, settling=4, readings=6).deadline_s == 60.0


def test_acts_only_above_the_threshold_and_within_the_moves() -> None:
    guard = Guard(threshold=0.05, max_moves=3)
    assert guard.refusal(0.2, 3, 0.1, 0.0) == ""
    assert "below the threshold of 5.0%" in guard.refusal(0.049, 1, 0.1, 0.0)
    assert guard.refusal(0.2, 4, 0.1, 0.0) == "4 moves exceed the maximum of 3"
    assert guard.refusal(0.2, 0, 0.1, 0.0) == "all tasks are already in place"


def test_does_not_act_if_moves_cost_more_than_they_gain() -> None:
    guard = Guard(cool_down_s=30.0, interval_s=1.0)
    cost = guard.cost_s([1.0, 5.0, 0.5], held_s=2.0)  # of a tree's tuples at a task, all wait together
    assert cost == pytest.approx(2.5 * 2.0 / 30)
    assert "moves cost 167 ms per tuple, more than the predicted 50 ms" in guard.refusal(0.5, 3, 0.1, cost)
    assert guard.refusal(0.5, 3, 0.4, cost) == ""


def test_rests_longer_after_every_setback_up_to_a_limit() -> None:
    guard = Guard(cool_down_s=10.0)
    assert [guard.pause_s(n) for n in (0, 1, 2, 3)] == [10.0, 20.0, 40.0, 80.0]
    assert guard.pause_s(100) == 10.0 * 2**MOST_DOUBLINGS


def test_refuses_limits_that_make_no_sense() -> None:
    with pytest.raises(InvalidInput, match="max_moves"):
        Guard(max_moves=0)
