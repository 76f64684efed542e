"""Exact availability against reference answers, enumeration of all failure states, and random draws."""

import json
from itertools import product
from typing import Any

import numpy as np
import pytest

from penstock.estimate.availability import MAX_PATHS, any_works, carried, carries, estimate_carries, failed_sets
from penstock.model.errors import InvalidInput, UnknownName
from tests.shared_data import SHARED, needs_shared

CASES = 1000
MOST_ELEMENTS = 16


def reference_cases() -> list[dict[str, Any]]:
    path = SHARED / "sparcle" / "cases.json"
    return list(json.loads(path.read_text())["availability"]) if path.exists() else []


def random_case(rng: np.random.Generator, most: int) -> tuple[list[list[str]], list[float], float, dict[str, float]]:
    """Draw overlapping paths, some of whose rates are equal so that sums tie."""
    fails = {f"e{number}": float(rng.random()) for number in range(rng.integers(1, most + 1))}
    names = list(fails)
    paths = [
        rng.choice(names, size=rng.integers(1, len(names) + 1), replace=False).tolist()
        for _ in range(rng.integers(1, 6))
    ]
    rates = rng.choice([0.5, 1.0, 1.5, float(rng.random())], size=len(paths)).tolist()
    return paths, rates, float(rng.choice([0.5, 1.0, 2.0, sum(rates)])), fails


def enumerated(paths: list[list[str]], rates: list[float], wanted: float, fails: dict[str, float]) -> float:
    """Add up the probabilities of all states of all elements in which the rate is reached."""
    names = list(fails)
    up = np.array(list(product([True, False], repeat=len(names))))
    works = 1.0 - np.array([fails[name] for name in names])
    chance = np.where(up, works, 1.0 - works).prod(axis=1)
    alive = np.array([up[:, [names.index(name) for name in path]].all(axis=1) for path in paths])
    return float(chance[np.array(rates) @ alive >= wanted * (1 - 1e-9)].sum())


@needs_shared
@pytest.mark.parametrize("case", reference_cases(), ids=lambda case: str(case["id"]))
def test_equals_the_reference_with_every_number_of_paths(case: dict[str, Any]) -> None:
    for number in range(1, len(case["paths"]) + 1):
        paths, rates = case["paths"][:number], case["rates"][:number]
        assert any_works(paths, case["fail"]) == pytest.approx(case["be_availability_by_prefix"][number - 1], abs=1e-12)
        achieved = carries(paths, rates, case["wanted_rate"], case["fail"])
        assert achieved == pytest.approx(case["gr_availability_by_prefix"][number - 1], abs=1e-12)


@pytest.mark.slow
def test_equals_the_enumeration_of_all_failure_states() -> None:
    seed = 7
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    sizes = rng.choice([4, 6, 8, 10, MOST_ELEMENTS], p=[0.3, 0.3, 0.2, 0.15, 0.05], size=CASES)
    for number, most in enumerate(sizes):
        paths, rates, wanted, fails = random_case(rng, int(most))
        expected = enumerated(paths, rates, wanted, fails)
        assert carries(paths, rates, wanted, fails) == pytest.approx(expected, abs=1e-12), number
        assert any_works(paths, fails) == pytest.approx(enumerated(paths, [1.0] * len(paths), 1.0, fails), abs=1e-12)


def test_random_draws_agree_within_four_standard_errors() -> None:
    seed = 11
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(50):
        case = random_case(rng, MOST_ELEMENTS)
        estimate = estimate_carries(*case, draws=4000, rng=rng)
        exact = carries(*case)
        assert abs(estimate.value - exact) <= 4 * np.sqrt(exact * (1 - exact) / 4000) + 1e-12
        assert estimate.high - estimate.low <= 3 / np.sqrt(4000)


def test_counts_a_shared_element_once() -> None:
    fails = {"shared": 0.5, "a": 0.0, "b": 0.0}
    assert any_works([["shared", "a"], ["shared", "b"]], fails) == 0.5


def test_a_sum_that_falls_short_by_rounding_has_reached_the_rate() -> None:
    assert carries([["a"], ["b"], ["c"]], [0.1, 0.1, 0.1], 0.3, {"a": 0.0, "b": 0.0, "c": 0.0}) == 1.0
    assert carries([["a"]], [1.0 - 1e-8], 1.0, {"a": 0.0}) == 0.0


def test_no_path_never_works() -> None:
    assert any_works([], {}) == 0.0
    assert carries([], [], 1.0, {}) == 0.0


def test_an_element_named_twice_in_a_path_counts_once() -> None:
    assert any_works([["a", "a"]], {"a": 0.25}) == 0.75


def test_rejects_invalid_input() -> None:
    with pytest.raises(UnknownName, match=r"fails\.b: unknown failure probability"):
        any_works([["a", "b"]], {"a": 0.1})
    with pytest.raises(InvalidInput, match=r"fails\.a: expected a number from 0 to 1, got 1\.5"):
        any_works([["a"]], {"a": 1.5})
    with pytest.raises(InvalidInput, match="rates: expected one for each of the 2 paths, got 1"):
        carries([["a"], ["a"]], [1.0], 1.0, {"a": 0.1})
    with pytest.raises(InvalidInput, match="use estimate_carries"):
        any_works([["a"]] * (MAX_PATHS + 1), {"a": 0.1})


def test_samples_are_used_if_there_are_too_many_paths_to_be_exact() -> None:
    paths = [["hub", f"e{number}"] for number in range(MAX_PATHS + 4)]
    fails = {"hub": 0.25} | {f"e{number}": 0.0 for number in range(MAX_PATHS + 4)}
    found = estimate_carries(paths, [1.0] * len(paths), 3.0, fails, 2000, np.random.default_rng(3))
    assert found.low < 0.75 < found.high
    assert found.high - found.low < 0.06


def test_equal_draws_still_have_an_error_bound() -> None:
    paths, rng = [["a"], ["b"]], np.random.default_rng(1)
    never = estimate_carries(paths, [1.0, 1.0], 1.0, {"a": 1e-3, "b": 1e-3}, 100, rng)
    assert (never.value, never.high) == (1.0, 1.0)
    assert never.low == pytest.approx(
        0.005 ** (1 / 100)
    )  # the probability that none of a hundred fails is at most this
    always = estimate_carries(paths, [1.0, 1.0], 3.0, {"a": 0.5, "b": 0.5}, 100, rng)
    assert (always.value, always.low) == (0.0, 0.0)
    assert always.high == pytest.approx(1 - 0.005 ** (1 / 100))


def test_several_rates_share_one_computation() -> None:
    paths, fails = [["a", "s"], ["b", "s"]], {"a": 0.1, "b": 0.2, "s": 0.3}
    failed = failed_sets(paths, fails)
    for rates, wanted in (([1.0, 1.0], 1.0), ([1.0, 1.0], 2.0), ([3.0, 1.0], 2.0)):
        assert carried(failed, rates, wanted) == carries(paths, rates, wanted, fails)
