"""Weighted proportional fairness: reference answers, the conditions of optimality, closed forms."""

import json
from typing import Any

import numpy as np
import pytest

from penstock.model.errors import InvalidInput
from penstock.model.taskgraph import Floats, Ints
from penstock.policies.allocation.fairness import conditions, fair_rates, predicted_capacity
from tests.shared_data import SHARED, needs_shared

Case = tuple[Floats, Floats, Ints, Floats]


def reference_cases() -> list[dict[str, Any]]:
    path = SHARED / "sparcle" / "cases.json"
    return list(json.loads(path.read_text())["fairness"]) if path.exists() else []


def random_case(rng: np.random.Generator, spread: float = 1.0) -> Case:
    """Draw elements whose capacities differ by up to 10¹², and applications with one or several paths.

    Priorities are from 10^-spread to 10^spread.
    """
    elements, applications = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    paths = applications + int(rng.integers(0, 6))
    load = rng.random((elements, paths)) * (rng.random((elements, paths)) < 0.5)
    load[rng.integers(0, elements, paths), np.arange(paths)] += 0.05
    capacity = 10.0 ** rng.uniform(-3, 9, elements)
    owner = np.concatenate([np.arange(applications), rng.integers(0, applications, paths - applications)])
    return (
        load * capacity[:, None],
        capacity,
        owner.astype(np.int32),
        10.0 ** rng.uniform(-spread, spread, applications),
    )


@needs_shared
@pytest.mark.parametrize("case", reference_cases(), ids=lambda case: str(case["id"]))
def test_equals_the_reference(case: dict[str, Any]) -> None:
    owner = np.array(case["owner_of_column"], dtype=np.int32)
    found = fair_rates(np.array(case["R"]), np.array(case["C"]), owner, np.array(case["priority"]))
    np.testing.assert_allclose(found.rates, case["rates"], rtol=1e-6)
    np.testing.assert_allclose(
        np.array(case["R"]) @ found.paths, np.minimum(case["C"], np.array(case["R"]) @ found.paths)
    )


def test_meets_the_conditions_of_optimality() -> None:
    seed = 5
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for number in range(60):
        load, capacity, owner, priority = random_case(rng)
        found = fair_rates(load, capacity, owner, priority)
        assert conditions(load, capacity, owner, priority, found) <= 1e-9, number
        # The same computed directly, in the given units.
        use = load @ found.paths / capacity
        assert use.max() <= 1 + 1e-9
        worth = priority.sum()
        assert np.abs(found.prices * capacity * (1 - use)).max() <= 1e-6 * worth
        margin = (load.T @ found.prices) * found.rates[owner] - priority[owner]
        assert margin.min() >= -1e-6 * worth
        assert np.abs(margin * (found.paths / found.rates[owner])).max() <= 1e-6 * worth
        assert found.prices.min() >= 0
        assert found.paths.min() >= 0


@pytest.mark.slow
@pytest.mark.parametrize("spread", [3.0, 5.0])
def test_meets_the_conditions_for_any_ratio_of_priorities(spread: float) -> None:
    seed = 11
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for number in range(60):
        load, capacity, owner, priority = random_case(rng, spread)
        found = fair_rates(load, capacity, owner, priority)
        assert conditions(load, capacity, owner, priority, found) <= 1e-9, number
        # The same computed directly, relative to each application's own priority.
        paid = (load.T @ found.prices) * found.rates[owner] / priority[owner]
        assert paid.min() >= 1 - 1e-9
        assert np.abs((paid - 1) * found.paths / found.rates[owner]).max() <= 1e-9
        assert (load @ found.paths / capacity).max() <= 1 + 1e-9


@pytest.mark.parametrize("great", [1.0, 1e2, 1e4, 1e6])
def test_an_application_of_low_priority_gets_its_share_beside_one_of_high_priority(great: float) -> None:
    # Applications 0 and 1 share an element, 2 and 3 another; the fifth uses both, so that all are in one program.
    load = np.array([[1.0, 1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0, 1.0]])
    priority = np.array([great, 1.0, 1.0, 1.0, 1.0])
    case = (load, np.array([50.0, 50.0]), np.arange(5, dtype=np.int32), priority)
    found = fair_rates(*case)
    assert conditions(*case, found) <= 1e-9
    # Each pays its priority, x × price = P, and both elements are full.
    dear, cheap = found.prices
    np.testing.assert_allclose(
        found.rates, [great / dear, 1 / dear, 1 / cheap, 1 / cheap, 1 / (dear + cheap)], rtol=1e-9
    )
    np.testing.assert_allclose(load @ found.rates, 50.0, rtol=1e-9)


def test_applications_that_share_nothing_do_not_affect_each_other() -> None:
    load = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    for great in (1e4, 1e6, 1e9, 1e12):
        priority = np.array([great, 3.0 * great, 1.0, 1.0])
        found = fair_rates(load, np.array([50.0, 50.0]), np.arange(4, dtype=np.int32), priority)
        np.testing.assert_allclose(found.rates, [12.5, 37.5, 25.0, 25.0], rtol=1e-12)


def test_rejects_priorities_that_cannot_be_distinguished_from_zero() -> None:
    owner = np.array([0, 1, 2, 0, 1], dtype=np.int32)
    load = np.array([[1.0, 1.0, 1.0, 0.3, 0.0], [0.2, 1.0, 0.5, 1.0, 1.0]])
    with pytest.raises(InvalidInput, match=r"priority: the fair rates .* bring priorities closer"):
        fair_rates(load, np.ones(2), owner, np.array([1e300, 1.0, 1e-300]))


def test_no_other_feasible_rates_have_a_higher_utility() -> None:
    seed = 8
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(10):
        load, capacity, owner, priority = random_case(rng)
        best = priority @ np.log(fair_rates(load, capacity, owner, priority).rates)
        for _ in range(50):
            some = rng.random(load.shape[1])
            some /= (load @ some / capacity).max()
            with np.errstate(divide="ignore"):
                utility = priority @ np.log(np.bincount(owner, some, len(priority)))
            assert utility <= best + 1e-9 * abs(best)


def test_a_single_bottleneck_is_divided_by_priority() -> None:
    need, priority = np.array([2.0, 5.0, 0.1]), np.array([1.0, 3.0, 6.0])
    found = fair_rates(need[None, :], np.array([40.0]), np.arange(3, dtype=np.int32), priority)
    np.testing.assert_allclose(found.rates, 40.0 * priority / priority.sum() / need, rtol=1e-9)
    np.testing.assert_allclose(found.prices, priority.sum() / 40.0, rtol=1e-9)


def test_twice_the_priority_gives_twice_the_rate_on_one_bottleneck() -> None:
    one, two = fair_rates(
        np.array([[3.0, 3.0]]), np.array([9.0]), np.arange(2, dtype=np.int32), np.array([2.0, 1.0])
    ).rates
    assert one == pytest.approx(2 * two, rel=1e-9)
    assert one + two == pytest.approx(3.0, rel=1e-9)


def test_rates_do_not_depend_on_the_units_of_capacities() -> None:
    rng = np.random.default_rng(2)
    load, capacity, owner, priority = random_case(rng)
    units = 10.0 ** rng.uniform(-9, 9, len(capacity))
    same = fair_rates(load * units[:, None], capacity * units, owner, priority)
    np.testing.assert_allclose(same.rates, fair_rates(load, capacity, owner, priority).rates, rtol=1e-9)


def test_an_application_uses_all_of_its_disjoint_paths() -> None:
    load = np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]])
    found = fair_rates(load, np.array([6.0, 4.0]), np.array([0, 0, 1], dtype=np.int32), np.array([1.0, 1.0]))
    # Application 0 has element 1 to itself (2/s) and shares element 0 with application 1: 2 + a = 6 - a.
    np.testing.assert_allclose(found.rates, [4.0, 4.0], rtol=1e-9)
    np.testing.assert_allclose(found.paths, [2.0, 2.0, 4.0], rtol=1e-9)


def test_a_path_over_an_element_without_capacity_gets_nothing() -> None:
    load = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    found = fair_rates(load, np.array([0.0, 5.0]), np.array([0, 1, 1], dtype=np.int32), np.array([1.0, 1.0]))
    np.testing.assert_allclose(found.paths, [0.0, 0.0, 5.0])
    np.testing.assert_allclose(found.rates, [0.0, 5.0])
    nothing = fair_rates(load[:1, :2], np.array([0.0]), np.arange(2, dtype=np.int32), np.array([1.0, 1.0]))
    assert nothing.rates.tolist() == [0.0, 0.0]


def test_rejects_invalid_input() -> None:
    owner, one = np.zeros(1, dtype=np.int32), np.ones(1)
    with pytest.raises(InvalidInput, match="expected a load on some element"):
        fair_rates(np.zeros((1, 1)), one, owner, one)
    with pytest.raises(InvalidInput, match="priority: expected numbers > 0"):
        fair_rates(np.ones((1, 1)), one, owner, np.zeros(1))
    with pytest.raises(InvalidInput, match="load: expected finite numbers"):
        fair_rates(np.full((1, 1), -1.0), one, owner, one)


def test_an_application_of_twice_the_priority_expects_two_thirds() -> None:
    np.testing.assert_allclose(predicted_capacity(np.array([9.0, 4.0]), 2.0, np.array([1.0, 0.0])), [6.0, 4.0])


def test_on_a_single_bottleneck_the_prediction_equals_the_fair_rate() -> None:
    priority, need = np.array([1.0, 2.5, 4.0]), np.array([3.0, 1.0, 2.0])
    got = fair_rates(need[None, :], np.array([12.0]), np.arange(3, dtype=np.int32), priority).rates[2] * need[2]
    np.testing.assert_allclose(predicted_capacity(np.array([12.0]), 4.0, np.array([3.5])), got)
