"""Predicted capacities, eq. (6)."""

import numpy as np

from penstock.policies.allocation.fairness import fair_rates
from penstock.policies.allocation.prediction import predicted


def test_an_application_of_twice_the_priority_expects_two_thirds() -> None:
    np.testing.assert_allclose(predicted(np.array([9.0, 4.0]), 2.0, np.array([1.0, 0.0])), [6.0, 4.0])


def test_on_a_single_bottleneck_the_prediction_is_what_fairness_gives() -> None:
    priority, need = np.array([1.0, 2.5, 4.0]), np.array([3.0, 1.0, 2.0])
    got = fair_rates(need[None, :], np.array([12.0]), np.arange(3, dtype=np.int32), priority).rates[2] * need[2]
    np.testing.assert_allclose(predicted(np.array([12.0]), 4.0, np.array([3.5])), got)
