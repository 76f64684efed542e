import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.policies.forecast.whole import ahead


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
