"""The workers that the controller knows: who is fenced, who is silent, who is left out and for how long."""

import pytest

from penstock.runtime.controller.membership import FAILURES, LATE_S, LATES, REST_S, WHILE_S, Members
from penstock.runtime.controller.settings import Site
from penstock.runtime.protocol.worker_messages import Register


def members(count: int = 3, lease_s: float = 3.0, silent_s: float = 5.0) -> Members:
    made = Members(tuple(Site(f"w{n}", (f"w{n}/0",)) for n in range(count)), lease_s, silent_s, 0.0)
    for number in range(count):
        come(made, number)
    return made


def come(made: Members, number: int, now: float = 0.0) -> int | None:
    found = made.register(Register(f"w{number}", "host", 1, 42), now)
    if found is not None:
        made[found].epoch = 1
    return found


def judged(made: Members, now: float) -> dict[int, str]:
    found: dict[int, str] = {}
    made.judge(now, found.__setitem__)
    return found


def test_refuses_a_second_worker_for_a_site_and_a_site_that_nobody_knows() -> None:
    made = members()
    assert come(made, 1) is None
    assert come(made, 7) is None
    made.lost(1, 1.0)
    assert come(made, 1, 2.0) == 1
    assert made[1].incarnation == 4


def test_a_lost_worker_may_act_until_its_lease_has_ended_or_its_process_has() -> None:
    made = members(lease_s=3.0)
    made.beat(1, 10.0)
    made.lost(1, 11.0)
    assert made.unfenced(12.9)
    assert not made.unfenced(13.0)
    made.beat(2, 20.0)
    made.lost(2, 20.0)
    made.gone(2)
    assert not made.unfenced(20.0)


def test_a_replacement_does_not_make_the_one_before_it_harmless() -> None:
    made = members(lease_s=3.0)
    made.beat(1, 10.0)
    made.lost(1, 10.0)
    assert come(made, 1, 10.5) == 1
    assert made.unfenced(12.0)


def test_a_site_whose_workers_keep_failing_is_left_out_and_longer_the_next_time() -> None:
    made = members(5)
    for time in range(FAILURES):
        assert not judged(made, float(time))
        made.lost(1, float(time))
        come(made, 1, float(time))
    assert judged(made, 10.0) == {1: f"its worker was lost 4 times in 60 s; left out for {REST_S:g} s"}
    assert "w1/0" not in made.usable(11.0)
    made.lost(1, 11.0)
    assert come(made, 1, 11.0) is None
    assert made.missing(11.0) == []
    after = 10.0 + REST_S
    assert come(made, 1, after) == 1
    for _ in range(FAILURES):
        made.lost(1, after)
        come(made, 1, after)
    assert judged(made, after)[1].endswith(f"left out for {2 * REST_S:g} s")


def test_failures_that_are_long_ago_are_forgotten() -> None:
    made = members(5)
    for time in range(FAILURES):
        made.lost(1, time * WHILE_S)
        come(made, 1, time * WHILE_S)
    assert not judged(made, FAILURES * WHILE_S)


def test_a_site_whose_signs_of_life_are_late_is_left_out() -> None:
    made = members(5)
    now = 0.0
    for _ in range(LATES):
        now += 1.01 * LATE_S
        made.beat(3, now)
    for number in (0, 1, 2, 4):
        made[number].last_beat = now
    assert judged(made, now) == {3: f"its signs of life were late {LATES} times in 60 s; left out for {REST_S:g} s"}


@pytest.mark.parametrize(("count", "left"), [(1, 1), (2, 2), (3, 2), (5, 3)])
def test_more_than_half_of_all_sites_stay(count: int, left: int) -> None:
    made = members(count)
    for number in range(count):
        for _ in range(FAILURES):
            made.lost(number, 1.0)
            come(made, number, 1.0)
    judged(made, 1.0)
    assert len(made.usable(1.0)) == left
