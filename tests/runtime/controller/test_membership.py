"""Membership: which workers are fenced, silent or excluded, and for how long."""

import pytest

from penstock.runtime.controller.membership import EXCLUSION_S, LATE_S, MAX_FAILURES, MAX_LATE, WINDOW_S, Membership
from penstock.runtime.controller.run_spec import Site
from penstock.runtime.protocol.worker_messages import Register


def members(count: int = 3, lease_s: float = 3.0, silent_s: float = 5.0) -> Membership:
    made = Membership(tuple(Site(f"w{n}", (f"w{n}/0",)) for n in range(count)), lease_s, silent_s, 0.0)
    for number in range(count):
        come(made, number)
    return made


def come(made: Membership, number: int, now: float = 0.0) -> int | None:
    found = made.register(Register(f"w{number}", "host", 1, 42), now)
    if found is not None:
        made[found].epoch = 1
    return found


def judged(made: Membership, now: float) -> dict[int, str]:
    found: dict[int, str] = {}
    made.exclude_unreliable(now, found.__setitem__)
    return found


def test_rejects_a_second_worker_of_a_site_and_an_unknown_site() -> None:
    made = members()
    assert come(made, 1) is None
    assert come(made, 7) is None
    made.lose(1, 1.0)
    assert come(made, 1, 2.0) == 1
    assert made[1].incarnation == 4


def test_a_lost_worker_is_fenced_when_its_lease_expires_or_its_process_ends() -> None:
    made = members(lease_s=3.0)
    made.record_beat(1, 10.0)
    made.lose(1, 11.0)
    assert made.unfenced(12.9)
    assert not made.unfenced(13.0)
    made.record_beat(2, 20.0)
    made.lose(2, 20.0)
    made.end_process(2)
    assert not made.unfenced(20.0)


def test_a_replacement_does_not_fence_its_predecessor() -> None:
    made = members(lease_s=3.0)
    made.record_beat(1, 10.0)
    made.lose(1, 10.0)
    assert come(made, 1, 10.5) == 1
    assert made.unfenced(12.0)


def test_excludes_a_site_whose_workers_keep_failing_and_longer_the_next_time() -> None:
    made = members(5)
    for time in range(MAX_FAILURES):
        assert not judged(made, float(time))
        made.lose(1, float(time))
        come(made, 1, float(time))
    assert judged(made, 10.0) == {1: f"its worker was lost 4 times in 60 s; excluded for {EXCLUSION_S:g} s"}
    assert "w1/0" not in made.usable(11.0)
    made.lose(1, 11.0)
    assert come(made, 1, 11.0) is None
    assert made.missing(11.0) == []
    after = 10.0 + EXCLUSION_S
    assert come(made, 1, after) == 1
    for _ in range(MAX_FAILURES):
        made.lose(1, after)
        come(made, 1, after)
    assert judged(made, after)[1].endswith(f"excluded for {2 * EXCLUSION_S:g} s")


def test_forgets_failures_outside_the_window() -> None:
    made = members(5)
    for time in range(MAX_FAILURES):
        made.lose(1, time * WINDOW_S)
        come(made, 1, time * WINDOW_S)
    assert not judged(made, MAX_FAILURES * WINDOW_S)


def test_excludes_a_site_whose_heartbeats_are_late() -> None:
    made = members(5)
    now = 0.0
    for _ in range(MAX_LATE):
        now += 1.01 * LATE_S
        made.record_beat(3, now)
    for number in (0, 1, 2, 4):
        made[number].last_beat = now
    assert judged(made, now) == {
        3: f"its heartbeats were late {MAX_LATE} times in 60 s; excluded for {EXCLUSION_S:g} s"
    }


@pytest.mark.parametrize(("count", "left"), [(1, 1), (2, 2), (3, 2), (5, 3)])
def test_keeps_more_than_half_of_the_sites(count: int, left: int) -> None:
    made = members(count)
    for number in range(count):
        for _ in range(MAX_FAILURES):
            made.lose(number, 1.0)
            come(made, number, 1.0)
    judged(made, 1.0)
    assert len(made.usable(1.0)) == left
