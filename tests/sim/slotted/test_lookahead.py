"""Look-ahead and pre-service: the benefit of perfect prediction, phantoms, unpredicted tuples."""

import numpy as np
import pytest

from penstock.model.slotted import Longs
from penstock.policies.registry import routing_policy
from penstock.sim.slotted import Arrivals, simulate
from penstock.sim.slotted.state import REAL
from tests.sim.slotted.systems import inspect_run, line, random_arrivals, random_system

QUIET = 30  # slots without arrivals, so that all look-ahead starts equally


def bursts(tasks: int, slots: int = 400, rate: float = 2.2, seed: int = 0) -> Longs:
    rng = np.random.default_rng(seed)
    counts = np.zeros((tasks, slots), dtype=np.int64)
    counts[0, QUIET:] = rng.poisson(rng.gamma(0.8, rate / 0.8, slots - QUIET))
    return counts


def ahead(counts: Longs, window: int, predicted: Longs | None = None) -> Arrivals:
    lead = np.zeros(len(counts), dtype=np.int64)
    lead[0] = window
    return Arrivals(counts, predicted, lead)


@pytest.mark.parametrize("window", [1, 2, 5, 20])
def test_sending_all_at_once_saves_a_slot_per_slot_of_perfect_look_ahead(window: int) -> None:
    system, counts = line(1, 3, 2, service=[1, 1, 1, 1.5, 1.5]), bursts(6)
    without, foreseen = (
        simulate(system, ahead(counts, slots), routing_policy("round-robin"), check=True) for slots in (0, window)
    )
    done = slice(0, without.tuples - without.unfinished)
    expected = np.maximum(0, without.responses - window)
    assert foreseen.responses[done].tolist() == expected[done].tolist()


@pytest.mark.parametrize("spec", ["shuffle", "potus:v=1", "potus:v=0,in_flight=true", "potus-plus"])
def test_response_falls_by_at_most_a_slot_per_slot_of_look_ahead_down_to_zero(spec: str) -> None:
    system, counts = line(1, 3, 2, service=[1, 1, 1, 1.5, 1.5], cost=0.5), bursts(6, slots=3000, rate=1.5)
    found = [
        simulate(system, ahead(counts, window), routing_policy(spec), warm_up=100).response
        for window in (0, 1, 2, 4, 8, 60)
    ]
    assert found == sorted(found, reverse=True)
    for window, response in zip((1, 2, 4, 8), found[1:], strict=False):
        assert found[0] - response < window + 0.1
    assert found[0] > 3
    assert found[-1] < 0.1


def test_a_tuple_that_is_served_before_it_arrives_has_response_zero() -> None:
    counts = np.zeros((3, 12), dtype=np.int64)
    counts[0, 8] = 1
    responses = {w: simulate(line(1, 1, 1), ahead(counts, w), routing_policy("shuffle")).response for w in range(7)}
    assert responses == {0: 3, 1: 2, 2: 1, 3: 0, 4: 0, 5: 0, 6: 0}


def test_predictions_are_known_from_the_start_within_the_window() -> None:
    counts = np.zeros((2, 10), dtype=np.int64)
    counts[0] = 1
    inside = inspect_run(line(1, 1, service=100), ahead(counts, 3), "shuffle")
    assert inside.counts.queued_out.tolist() == [4, 1, 1, 1, 1, 1, 1, 0, 0, 0]  # (3): those of the slot and of W more


def test_phantoms_are_served_and_do_not_count_in_the_response() -> None:
    counts = np.zeros((2, 20), dtype=np.int64)
    counts[0, 10] = 2
    predicted = counts.copy()
    predicted[0, 9], predicted[0, 10] = 3, 4
    inside = inspect_run(line(1, 1), ahead(counts, 2, predicted), "shuffle", check=True)
    assert inside.outcome.tuples == 2
    assert inside.outcome.hops == 7  # they use service
    assert inside.outcome.dropped == 0
    assert inside.state.roots[:, REAL].sum() == 2
    # sent in 7 and 8, served from 8 to 14; the two that arrive are any of the last four
    assert set(inside.outcome.responses.tolist()) <= {1, 2, 3, 4}


def test_phantoms_that_were_not_sent_are_dropped_when_they_are_due() -> None:
    counts, predicted = np.zeros((2, 20), dtype=np.int64), np.zeros((2, 20), dtype=np.int64)
    predicted[0, [5, 9]], counts[0, 9] = (3, 1), 1
    inside = inspect_run(line(1, 1, cost=10.0), ahead(counts, 4, predicted), "potus:v=1", check=True)
    waiting = inside.counts.queued_out.tolist()
    assert waiting == [0, 3, 3, 3, 3, 1, 1, 1, 1, 1, *[0] * 10]  # only tuples that have arrived must leave (4)
    assert inside.outcome.dropped == 3
    assert inside.outcome.responses.tolist() == [1]
    assert inside.outcome.hops == 1


def test_which_of_too_many_predicted_tuples_arrive_is_random() -> None:
    counts, predicted = np.zeros((2, 4000), dtype=np.int64), np.zeros((2, 4000), dtype=np.int64)
    counts[0], predicted[0] = 1, 3
    real = inspect_run(line(1, 1, service=9), ahead(counts, 1, predicted), "shuffle").state.roots[:, REAL]
    share = real.reshape(-1, 3).mean(axis=0)
    assert (real.reshape(-1, 3).sum(axis=1) == 1).all()
    np.testing.assert_allclose(share, 1 / 3, atol=0.04)


def test_unpredicted_tuples_arrive_as_well() -> None:
    system, counts = line(1, 3, 2), bursts(6, rate=1.0)
    nothing = simulate(system, ahead(counts, 5, np.zeros_like(counts)), routing_policy("round-robin"))
    without = simulate(system, Arrivals(counts), routing_policy("round-robin"))
    assert nothing.responses.tolist() == without.responses.tolist()
    assert nothing.tuples == counts.sum()


def test_predicted_tuples_precede_unpredicted_ones_of_the_same_slot() -> None:
    counts, predicted = np.zeros((2, 12), dtype=np.int64), np.zeros((2, 12), dtype=np.int64)
    counts[0, 5], predicted[0, 5] = 3, 1
    assert simulate(line(1, 1), ahead(counts, 2, predicted), routing_policy("shuffle")).responses.tolist() == [0, 1, 2]


def test_waiting_before_the_arrival_does_not_count() -> None:
    counts = np.zeros((2, 12), dtype=np.int64)
    counts[0, 8] = 4
    seen = simulate(
        line(1, 1, cost=1.0, limit=3), ahead(counts, 6), routing_policy("potus:v=1")
    )  # l = 1 − 4: sent at once
    assert seen.queueing == 0.0
    kept = inspect_run(line(1, 1, cost=10.0, limit=3), ahead(counts, 6), "potus:v=1")  # l > 0: sent when due, (4)
    assert kept.counts.queued_out.tolist() == [0, 0, 4, 4, 4, 4, 4, 4, 4, 1, 0, 0]
    assert kept.outcome.queueing == pytest.approx(1 / 4)


def test_applications_may_have_different_look_ahead() -> None:
    rng = np.random.default_rng(5)
    for spec in ("round-robin", "potus", "potus-plus"):
        for _ in range(5):
            system = random_system(rng)
            arrivals = random_arrivals(system, 60, rng, ahead=True)
            outcome = simulate(system, arrivals, routing_policy(spec), check=True)
            assert outcome.tuples == arrivals.counts.sum()
