"""Weighted proportional fairness: reference answers, the conditions of optimality, closed forms."""

import json
from typing import Any

import numpy as np
import pytest

from penstock.model.errors import InvalidInput
from penstock.model.taskgraph import Floats, Ints
from penstock.policies.allocation.fairness import conditions, fair_rates
from tests.shared_data import SHARED, needs_shared

Case = tuple[Floats, Floats, Ints, Floats]


def reference_cases() -> list[dict[str, Any]]:
    path = SHARED / "sparcle" / "cases.json"
    return list(json.loads(path.read_text())["fairness"]) if path.exists() else []


def random_case(rng: np.random.Generator) -> Case:
    """Draw elements whose capacities differ by up to 10¹², and applications with one or several paths."""
    elements, applications = int(rng.integers(1, 9)), int(rng.integers(1, 9))
    paths = applications + int(rng.integers(0, 6))
    load = rng.random((elements, paths)) * (rng.random((elements, paths)) < 0.5)
    load[rng.integers(0, elements, paths), np.arange(paths)] += 0.05
    capacity = 10.0 ** rng.uniform(-3, 9, elements)
    owner = np.concatenate([np.arange(applications), rng.integers(0, applications, paths - applications)])
    return load * capacity[:, None], capacity, owner.astype(np.int32), 10.0 ** rng.uniform(-1, 1, applications)


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
        assert conditions(load, capacity, owner, priority, found) < 1e-6, number
        # The same by hand, in the units given.
        use = load @ found.paths / capacity
        assert use.max() <= 1 + 1e-9
        worth = priority.sum()
        assert np.abs(found.prices * capacity * (1 - use)).max() <= 1e-6 * worth
        margin = (load.T @ found.prices) * found.rates[owner] - priority[owner]
        assert margin.min() >= -1e-6 * worth
        assert np.abs(margin * (found.paths / found.rates[owner])).max() <= 1e-6 * worth
        assert found.prices.min() >= 0
        assert found.paths.min() >= 0


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


def test_refuses_what_makes_no_sense() -> None:
    owner, one = np.zeros(1, dtype=np.int32), np.ones(1)
    with pytest.raises(InvalidInput, match="expected a load on some element"):
        fair_rates(np.zeros((1, 1)), one, owner, one)
    with pytest.raises(InvalidInput, match="priority: expected numbers > 0"):
        fair_rates(np.ones((1, 1)), one, owner, np.zeros(1))
    with pytest.raises(InvalidInput, match="load: expected finite numbers"):
        fair_rates(np.full((1, 1), -1.0), one, owner, one)
