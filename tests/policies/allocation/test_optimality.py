"""The optimality conditions of fair rates, and the methods that satisfy them."""

import numpy as np
import pytest

from penstock.policies.allocation.optimality import Point, Program, even_point, improved, missed, polished


def random_program(rng: np.random.Generator, spread: float) -> Program:
    """Draw a program whose applications have one path each or, the first of them, two."""
    load = rng.random((5, 7)) * (rng.random((5, 7)) < 0.6)
    load[rng.integers(0, 5, 7), np.arange(7)] += 0.1
    load = (load / load.max(axis=0))[(load > 0).any(axis=1)]
    total = np.hstack([np.eye(6), np.eye(6)[:, :1] * 0.5])
    weight = 10.0 ** rng.uniform(-spread, spread, 6)
    return Program(load, total, weight / weight.sum())


@pytest.mark.parametrize("spread", [0.0, 2.0, 5.0])
def test_the_optimum_is_found_from_any_start(spread: float) -> None:
    seed = 21
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for number in range(20):
        program = random_program(rng, spread)
        start = even_point(program)
        assert missed(program, start) > 1e-3
        assert missed(program, improved(program, start, 1e-3)) <= 1e-9, number


def test_a_point_that_is_nearly_optimal_is_polished_in_few_steps() -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        program = random_program(rng, 1.0)
        best = improved(program, even_point(program), 1e-3)
        near = Point(best.rate * (1 + 1e-6 * rng.random(7)), best.price * (1 + 1e-6 * rng.random(len(best.price))))
        assert missed(program, near) > 1e-8
        assert missed(program, polished(program, near)) <= 1e-9


def test_conditions_are_relative_to_what_each_application_pays() -> None:
    # Two elements, two applications of priorities 1 and 1e-9, each alone on its own.
    program = Program(np.eye(2), np.eye(2), np.array([1.0, 1e-9]))
    assert missed(program, Point(np.ones(2), program.weight)) <= 1e-15
    assert missed(program, Point(np.array([1.0, 0.8]), program.weight / [1.0, 0.8])) == pytest.approx(0.2)
    assert missed(program, Point(np.array([1.0, 1.0]), program.weight * [1.0, 1.1])) == pytest.approx(0.1)
    assert missed(program, Point(np.array([1.1, 1.0]), program.weight / [1.1, 1.0])) == pytest.approx(0.1)
    assert missed(program, Point(np.array([1.0, 0.0]), program.weight)) == np.inf
