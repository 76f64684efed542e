"""A worker's clock, from questions and answers that take their time."""

import random

import pytest

from penstock.runtime.clocks import SAME, WorkerClock

QUICKEST = 1e-4  # s each way


def clock_of(seed: int, offset: float, drift: float, jitter: float, seconds: float = 30.0) -> WorkerClock:
    """Ask a worker whose clock is so far ahead twice a second, over a network with random delays."""
    rng, clock, now = random.Random(seed), WorkerClock(), 500.0
    while now < 500.0 + seconds:
        there, back = QUICKEST + rng.expovariate(1 / jitter), QUICKEST + rng.expovariate(1 / jitter)
        answered = now + there
        clock.add(now, answered + back, answered + offset + drift * (answered - 500.0))
        now += 0.5
    return clock


@pytest.mark.parametrize("seed", range(40))
def test_finds_offset_and_drift_to_within_the_error_it_states(seed: int) -> None:
    rng = random.Random(seed)
    offset, drift = rng.uniform(-1000.0, 1000.0), rng.uniform(-2e-4, 2e-4)
    estimate = clock_of(seed, offset, drift, jitter=1e-4).estimate
    true = 525.0  # of the controller
    shown = true + offset + drift * (true - 500.0)
    assert estimate.controller_time(shown) == pytest.approx(true, abs=estimate.error)
    assert estimate.drift == pytest.approx(drift, abs=4 * estimate.error / 30.0)
    assert 0.0 < estimate.error < 1e-3


@pytest.mark.parametrize("seed", range(10))
def test_equal_clocks_have_no_offset(seed: int) -> None:
    estimate = clock_of(seed, 0.0, 0.0, jitter=1e-3).estimate
    assert (estimate.offset, estimate.drift) == (0.0, 0.0)
    assert estimate.controller_time(777.0) == 777.0


def test_takes_no_drift_from_readings_that_do_not_show_any() -> None:
    estimate = clock_of(3, 5.0, 0.0, jitter=1e-3).estimate
    assert estimate.drift == 0.0
    assert estimate.offset == pytest.approx(5.0, abs=estimate.error)


def test_slow_answers_do_not_spoil_quick_ones() -> None:
    clock = clock_of(1, 5.0, 0.0, jitter=1e-5)
    before = clock.estimate
    clock.add(600.0, 603.0, 600.1 + 5.0)  # the answer took three seconds to come back
    assert clock.estimate.offset == pytest.approx(before.offset)


def test_knows_nothing_without_a_reading() -> None:
    assert WorkerClock().estimate == SAME
    assert SAME.controller_time(3.25) == 3.25
