import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidInput
from penstock.policies.forecast.api import ahead
from penstock.policies.forecast.backtest import LONGEST, backtest, judge, warm_up
from penstock.policies.registry import forecaster
from tests.policies.forecast.test_contract import drawn
from tests.shared_data import SHARED, needs_shared

RNG = np.random.default_rng(0)


def test_scores_state_the_size_and_the_sign_of_errors() -> None:
    actual, forecasts = np.array([9, 4, 0, 6]), np.array([0, 6, 1, 3])
    found = judge(forecasts, actual, 1)  # the first slot does not count
    assert found.mse == pytest.approx((4 + 1 + 9) / 3)
    assert found.bias == pytest.approx(0.0)
    assert found.mae == pytest.approx(2.0)
    assert (found.phantom, found.missed) == (0.3, 0.3)


@pytest.mark.parametrize("lead", [1, 30])
def test_perfect_has_no_error_and_none_misses_all_tuples(lead: int) -> None:
    counts = drawn(500)
    assert backtest(forecaster("perfect"), counts, lead, RNG) == (0, 0, 0, 0, 0)
    nothing = backtest(forecaster("none"), counts, lead, RNG)
    assert (nothing.phantom, nothing.missed) == (0, 1)
    assert nothing.bias == -nothing.mae


def test_slots_without_a_forecast_do_not_count() -> None:
    assert warm_up(50, 1) == 5
    assert warm_up(50, 20) == 20
    assert warm_up(100_000, 1) == LONGEST
    assert backtest(forecaster("moving-average"), np.array([3, 3]), 1, RNG).mse == 0


def test_shares_of_zero_are_nan() -> None:
    found = backtest(forecaster("none"), np.zeros(20, dtype=np.int64), 1, RNG)
    assert found.mse == 0
    assert np.isnan(found.phantom)


@pytest.mark.parametrize(("slots", "lead", "problem"), [(5, 0, "1 slot or more, got 0"), (3, 3, "fewer than the 3")])
def test_rejects_a_lead_beyond_the_series(slots: int, lead: int, problem: str) -> None:
    with pytest.raises(InvalidInput, match=f"^lead: expected {problem}"):
        backtest(forecaster("none"), np.ones(slots, dtype=np.int64), lead, RNG)


@needs_shared
def test_every_average_beats_the_mean_of_all_on_recorded_arrivals() -> None:
    counts = np.loadtxt(SHARED / "arrivals" / "nasa_http_jul_5s.csv", dtype=np.int64)
    assert len(counts) == 120_000
    mean = backtest(forecaster("empirical"), counts, 1, RNG).mse
    for spec in ("moving-average", "ewma", "kalman"):
        assert backtest(forecaster(spec), counts, 1, RNG).mse < 0.75 * mean


@given(st.lists(st.floats(0, 50), min_size=2, max_size=300), st.integers(1, 5))
def test_rounding_changes_no_sum_by_more_than_half_a_tuple(values: list[float], lead: int) -> None:
    given_sums = np.cumsum(values)[: max(len(values) - lead, 0)]
    sums = np.cumsum(ahead(np.array(values), lead))[lead:]
    assert np.all(np.abs(sums - given_sums) <= 0.5 + 1e-5)


@pytest.mark.parametrize("mean", [0.05, 0.3, 0.5, 1.9])
def test_rounding_keeps_the_mean(mean: float) -> None:
    whole = ahead(np.full(10_001, mean), 1)
    assert whole.mean() == pytest.approx(mean, abs=1e-3)
    assert whole.max() - whole[1:].min() <= 1


def test_a_sum_between_two_whole_numbers_does_not_alternate() -> None:
    values = np.full(10_001, 0.1 * 30)  # a little more than three
    values[0] = 0.5
    assert set(ahead(values, 1)[2:].tolist()) == {3}


def test_forecasts_belong_to_the_slot_that_they_are_about() -> None:
    assert ahead(np.array([3.0, 5.0, 2.0, 8.0]), 2).tolist() == [0, 0, 3, 5]


def test_negative_values_become_zero() -> None:
    assert ahead(np.array([-3.0, 2.0, -1.0, 0.0]), 1).tolist() == [0, 0, 2, 0]
