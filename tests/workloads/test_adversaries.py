from collections.abc import Callable
from math import ceil, log2

import numpy as np
import pytest

from penstock.estimate.offline import offline_optimum
from penstock.workloads.adversaries import Send, batches, bernoulli, bursts, overtaken_queue, random_cases, staircase
from penstock.workloads.arrivals import Counts


def largest_first(backlogs: Counts) -> int:
    return int(np.argmax(backlogs))


def in_turn(queues: int) -> Send:
    """Send from the next queue that holds a tuple."""
    last = [-1]

    def send(backlogs: Counts) -> int:
        for step in range(1, queues + 1):
            queue = (last[0] + step) % queues
            if backlogs[queue] > 0:
                last[0] = queue
                return queue
        return -1

    return send


def idle(backlogs: Counts) -> int:
    return -1


def largest_backlog(arrivals: Counts, send: Send) -> int:
    backlog, largest = np.zeros(arrivals.shape[1], dtype=np.int64), 0
    for row in arrivals:
        backlog = backlog + row
        queue = send(backlog)
        if queue >= 0:
            backlog[queue] = max(backlog[queue] - 1, 0)
        largest = max(largest, int(backlog.max()))
    return largest


def harmonic(queues: int) -> float:
    return sum(1 / k for k in range(1, queues + 1))


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("queues", [*range(1, 17), 64])
def test_staircase_drives_largest_first_to_the_harmonic_number(queues: int, depth: int) -> None:
    arrivals = staircase(queues, largest_first, depth)
    assert arrivals.shape == (queues + depth * queues * (queues - 1) // 2, queues)
    assert offline_optimum(arrivals) == depth
    reached = largest_backlog(arrivals, largest_first)
    assert reached >= harmonic(queues) * depth - 1e-9
    assert reached <= (3 + ceil(log2(queues))) * depth


@pytest.mark.parametrize("queues", [2, 3, 4, 7, 8, 16, 31, 32, 64])
def test_staircase_of_single_tuples_drives_largest_first_to_the_logarithm(queues: int) -> None:
    arrivals = staircase(queues, largest_first)
    assert largest_backlog(arrivals, largest_first) == 1 + int(log2(queues))


@pytest.mark.parametrize("queues", [2, 5, 16])
@pytest.mark.parametrize("rule", [in_turn, lambda _: idle], ids=["in turn", "idle"])
def test_staircase_is_hard_for_every_rule(rule: Callable[[int], Send], queues: int) -> None:
    arrivals = staircase(queues, rule(queues), depth=3)
    assert offline_optimum(arrivals) == 3
    assert largest_backlog(arrivals, rule(queues)) >= harmonic(queues) * 3 - 1e-9


def test_the_backlog_of_staircase_cannot_be_changed() -> None:
    def thief(backlogs: Counts) -> int:
        queue = int(np.argmax(backlogs))
        backlogs[:] = 0
        return queue

    assert staircase(5, thief).tolist() == staircase(5, largest_first).tolist()


@pytest.mark.parametrize("queues", [3, 5, 10])
def test_overtaken_queue_grows_under_rules_that_ignore_backlogs(queues: int) -> None:
    arrivals = overtaken_queue(queues, depth=4)
    assert offline_optimum(arrivals) == 4
    assert largest_backlog(arrivals, in_turn(queues)) >= 4 * (queues - 1)
    assert largest_backlog(arrivals, largest_first) == 4


@pytest.mark.parametrize("draw", [bernoulli, bursts, batches])
def test_random_arrivals_have_their_load(draw: Callable[..., Counts]) -> None:
    drawn = draw(20_000, 4, 0.9, np.random.default_rng(3))
    assert drawn.shape == (20_000, 4)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 0
    assert drawn.sum(axis=1).mean() == pytest.approx(0.9, rel=0.06)
    assert drawn.mean(axis=0) == pytest.approx(np.full(4, 0.225), rel=0.12)


def test_kinds_differ_in_burstiness() -> None:
    rng = np.random.default_rng(3)
    single, burst, batch = (draw(20_000, 4, 0.9, rng) for draw in (bernoulli, bursts, batches))
    assert single.max() == 1
    assert batch.max() == 5
    following = [float(np.corrcoef(one[:-1, 0], one[1:, 0])[0, 1]) for one in (single, burst, batch)]
    assert following[1] > 0.5
    assert max(abs(following[0]), abs(following[2])) < 0.05


def test_equal_seeds_give_equal_cases() -> None:
    first, again, other = ([case.tolist() for case in random_cases(12, seed)] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_random_cases_are_small_and_of_all_sizes() -> None:
    shapes = [case.shape for case in random_cases(500, 0, queues=6, slots=20)]
    assert {queues for _, queues in shapes} == set(range(2, 7))
    assert {slots for slots, _ in shapes} == set(range(2, 21))


def test_largest_first_stays_within_its_competitive_ratio_on_random_cases() -> None:
    """Hone's Theorem 1."""
    optima = []
    for case in random_cases(400, 11):
        optimum = offline_optimum(case)
        reached = largest_backlog(case, largest_first)
        assert optimum <= reached <= (3 + ceil(log2(case.shape[1]))) * optimum
        optima.append(optimum)
    assert max(optima) >= 5  # the cases have load
