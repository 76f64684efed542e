"""The estimate of throughput beside the twin and beside a linear program, on random graphs.

The seeds are the first of those that `python -m benchmarks saturation` goes through; that takes minutes.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from benchmarks.lanes import settled_rate
from benchmarks.saturation import case, lanes, most_tps

from penstock.model.objective import Objective

SEEDS = range(60)
NOISE = 0.015  # of what the twin measures


class Rates(NamedTuple):
    """Source tuples per second."""

    estimate: float
    settled: float
    most: float
    twin: float


@cache
def rates(seed: int) -> Rates:
    one = case(seed)
    return Rates(one.estimate_tps, settled_rate(lanes(one)), most_tps(one), one.twin_tps)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_neither_the_estimate_nor_the_twin_exceeds_what_any_split_could_carry(seed: int) -> None:
    found = rates(seed)
    assert found.estimate <= found.most * (1 + 1e-6)
    assert found.settled <= found.most * (1 + 1e-6)
    assert found.twin <= found.most * (1 + NOISE)


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed % 3 < 2])
def test_a_search_goes_by_the_estimate_that_is_shown(seed: int) -> None:
    one = case(seed)
    score = one.evaluator.scorer(Objective.THROUGHPUT)(np.array([one.placement.slots], dtype=np.int32))[0]
    assert score == pytest.approx(one.estimate_tps, rel=1e-9)


def test_the_estimate_is_what_the_twin_carries_unless_senders_avoid_what_is_slow(
    record_property: Callable[[str, object], None],
) -> None:
    """An even split is what most placements settle in; senders that choose may carry more, cores shared by more slots
    than there are may carry less."""
    found = np.array([rates(seed) for seed in SEEDS])
    estimate, settled = found[:, 0] / found[:, 3], found[:, 1] / found[:, 3]
    for name, ratio in (("estimate", estimate), ("settled", settled)):
        record_property(name, np.percentile(ratio, (0, 5, 25, 50, 75, 95, 100)).round(3).tolist())
    assert estimate.max() < 1.2
    assert np.mean(np.abs(estimate - 1) <= 0.02) >= 0.65
    assert np.mean(np.abs(settled - 1) <= 0.02) >= 0.9
    assert np.mean(np.abs(settled - 1) <= 0.1) >= 0.98
