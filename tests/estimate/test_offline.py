from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.estimate import offline
from penstock.estimate.offline import least_backlog, offline_optimum, stays_within
from penstock.model.errors import InvalidInput
from penstock.model.kernel import interpreted

Counts = NDArray[np.int64]


def by_all_schedules(arrivals: Counts) -> int:
    """Try every queue in every slot."""
    rows = [tuple(int(a) for a in row) for row in arrivals]

    @cache
    def least(slot: int, backlogs: tuple[int, ...]) -> int:
        if slot == len(rows):
            return 0
        found = []
        for queue in range(len(backlogs)):
            left = tuple(
                max(b + a - (i == queue), 0) for i, (b, a) in enumerate(zip(backlogs, rows[slot], strict=True))
            )
            found.append(max(max(left), least(slot + 1, left)))
        return min(found)

    return least(0, (0,) * arrivals.shape[1])


def by_intervals(arrivals: Counts) -> int:
    """Return the minimum b for which no interval of slots has more tuples above b per queue than slots."""
    before = np.concatenate([np.zeros((1, arrivals.shape[1]), dtype=np.int64), np.cumsum(arrivals, axis=0)])
    for b in range(int(arrivals.sum()) + 1):
        if all(
            np.maximum(before[end] - before[begin] - b, 0).sum() <= end - begin
            for begin in range(len(arrivals))
            for end in range(begin + 1, len(arrivals) + 1)
        ):
            return b
    raise AssertionError


def small_cases(number: int, seed: int) -> list[Counts]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        shape = rng.integers(1, 8), rng.integers(1, 4)
        found.append(rng.poisson(rng.uniform(0.2, 1.5), shape) * rng.integers(1, 3))
    return found


@pytest.mark.slow
def test_equals_the_best_of_all_schedules() -> None:
    cases = small_cases(1000, seed=5)
    found = [offline_optimum(case) for case in cases]
    assert found == [by_all_schedules(case) for case in cases]
    assert set(found) >= set(range(6))


@pytest.mark.parametrize("seed", range(10))
def test_equals_the_fullest_interval_in_larger_cases(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queues = int(rng.integers(2, 12))
    arrivals = rng.poisson(rng.uniform(0.7, 1.5) / queues, (50, queues)) * rng.integers(1, 5)
    assert offline_optimum(arrivals) == by_intervals(arrivals)


def test_compiled_equals_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [np.cumsum(case, axis=0) for case in small_cases(150, seed=6)]
    compiled = [least_backlog(case) for case in cases]
    within = [[stays_within(case, b) for b in range(4)] for case in cases]
    assert within == [[interpreted(stays_within)(case, b) for b in range(4)] for case in cases]
    monkeypatch.setattr(offline, "stays_within", interpreted(stays_within))
    assert compiled == [interpreted(least_backlog)(case) for case in cases]


def test_backlogs_are_measured_after_the_slot_has_sent() -> None:
    assert offline_optimum(np.array([[1], [1], [1]])) == 0
    assert offline_optimum(np.array([[3], [0], [0]])) == 2
    assert offline_optimum(np.array([[0, 0], [1, 1]])) == 1  # the end of the last slot counts


def test_knows_future_arrivals() -> None:
    """A rule that sees two equal queues may serve the wrong one first, and ends with 2."""
    arrivals = np.array([[1, 1], [0, 2]])
    assert offline_optimum(arrivals) == 1
    assert offline_optimum(arrivals[:, ::-1]) == 1


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (5, 2)])
def test_nothing_waits_without_arrivals(shape: tuple[int, int]) -> None:
    assert offline_optimum(np.zeros(shape, dtype=np.int64)) == 0


@pytest.mark.parametrize(
    ("arrivals", "message"),
    [
        (np.zeros(3, dtype=np.int64), r"arrivals: expected whole numbers \[slots, queues\], got int64 \(3,\)"),
        (np.zeros((3, 2)), r"arrivals: expected whole numbers \[slots, queues\], got float64 \(3, 2\)"),
        (np.array([[1, -2]]), "arrivals: expected numbers >= 0, got -2"),
    ],
)
def test_rejects_invalid_counts(arrivals: Counts, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        offline_optimum(arrivals)
