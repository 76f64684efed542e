"""Load-aware shuffle: near tasks while their load is low, weights that follow the load."""

import numpy as np

from penstock.policies.tuples.load_aware import HEAVIEST, LIGHTEST
from tests.policies.tuples.tables import Tables, decide, repeat, tables

SPEC = "load-aware-shuffle:high=4,low=1"


def mixed(near_load: float, turn: int = 0) -> Tables:
    """Return two near and two far tasks; the near ones have a queue of this many slots."""
    return tables(4, waiting=40, cost=[0, 0, 2, 2], backlog=[3 * near_load, 3 * near_load, 0, 0], speed=3.0, turn=turn)


def test_uses_near_tasks_until_their_load_is_high_and_again_when_it_is_low() -> None:
    assert decide(SPEC, mixed(4.0)).sent[2:].sum() == 0
    wide = decide(SPEC, mixed(4.1))
    assert wide.sent[2:].sum() > 0
    assert wide.tables.queues.turn[0] == 1  # it remembers
    assert decide(SPEC, mixed(1.0, turn=1)).sent[2:].sum() > 0
    assert decide(SPEC, mixed(0.9, turn=1)).sent[2:].sum() == 0


def test_without_near_tasks_all_are_used() -> None:
    assert (decide(SPEC, tables(3, waiting=60, cost=1.0)).sent > 0).all()


def test_tasks_above_the_mean_load_lose_weight_step_by_step_down_to_the_minimum() -> None:
    given = tables(3, waiting=300, cost=1.0, backlog=[9, 0, 0])
    sent = repeat(SPEC, given, 300)
    np.testing.assert_allclose(sent[0] / 300, 1 / 3, atol=0.1)  # the first decision subtracts one from a hundred
    late = sent[150:].sum(axis=0) / sent[150:].sum()
    expected = np.array([LIGHTEST, HEAVIEST, HEAVIEST]) / (LIGHTEST + 2 * HEAVIEST)
    np.testing.assert_allclose(late, expected, atol=0.01)


def test_load_is_the_time_to_serve_a_queue() -> None:
    given = tables(2, waiting=300, cost=1.0, backlog=[6, 4], speed=[6, 1])
    assert np.argmin(repeat(SPEC, given, 150)[100:].sum(axis=0)) == 1


def test_tuples_that_full_lanes_do_not_take_go_to_the_others_by_weight() -> None:
    given = tables(3, waiting=100, cost=1.0, room=[5, 99, 0])
    assert decide(SPEC, given).sent.tolist() == [5, 95, 0]
