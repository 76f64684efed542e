import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.emulation import Fidelity


def truth(late: list[float], mean_service: float = 0.001, cores: int = 2) -> Fidelity:
    judged = Fidelity("m1", cores, mean_service)
    for seconds in late:
        judged.record_lag(seconds)
    return judged


def test_events_in_time_are_true() -> None:
    assert truth([0.0001] * 995 + [0.5] * 5).verdict() is None


def test_warns_of_late_events_with_their_lag_and_a_remedy() -> None:
    assert truth([0.0] * 900 + [0.012] * 100).verdict(cpu_share=0.4) == (
        "emulation: events were 12 ms late (p99) on machine 'm1'; the host's 2 cores are too few: fewer machines, a "
        "lower rate or longer service times"
    )


def test_distinguishes_a_busy_process_from_a_host_with_too_few_cores() -> None:
    verdict = truth([0.012] * 100, cores=64).verdict(cpu_share=0.98)
    assert verdict is not None
    assert "its process is busy all the time (98% of a core): a lower rate or longer service times" in verdict
    assert "64" not in verdict


def test_uses_the_singular_for_one_core() -> None:
    assert "the host's 1 core is too few" in (truth([1.0] * 100, cores=1).verdict() or "")


def test_uses_the_cores_of_this_host_by_default() -> None:
    assert Fidelity("m1").host_cores == os.cpu_count()


@pytest.mark.parametrize(
    ("late", "mean_service", "true"),
    [(0.0019, 0.0, True), (0.0022, 0.0, False), (0.009, 0.1, True), (0.011, 0.1, False)],
)
def test_the_limit_is_two_milliseconds_or_a_tenth_of_the_service_time(
    late: float, mean_service: float, true: bool
) -> None:
    assert (truth([late] * 1000, mean_service).verdict() is None) is true


def test_each_interval_is_judged_alone() -> None:
    judged = truth([0.05] * 200)
    assert judged.verdict() is not None
    assert (judged.events, judged.worst) == (200, 0.05)
    for _ in range(300):
        judged.record_lag(0.0)
    assert judged.verdict() is None
    assert (judged.events, judged.p99, judged.worst) == (300, 0.0, 0.0)


def test_an_interval_with_too_few_events_continues() -> None:
    judged = truth([0.05] * 60)
    assert judged.verdict() is None
    for _ in range(60):
        judged.record_lag(0.05)
    assert judged.verdict() is not None
    assert judged.events == 120


@pytest.mark.slow
@given(st.lists(st.floats(0.0, 5000.0), min_size=100, max_size=400), st.integers(1, 6))
def test_the_percentile_is_right_to_within_five_per_cent(late: list[float], scale: int) -> None:
    scaled = [seconds * 10.0**-scale for seconds in late]
    judged = truth(scaled)
    judged.verdict()
    exact = sorted(scaled)[-(-99 * len(scaled) // 100) - 1]
    assert judged.worst == max(scaled)
    assert judged.p99 == pytest.approx(exact, rel=0.05, abs=1e-6)
