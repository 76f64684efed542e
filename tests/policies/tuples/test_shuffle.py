"""Shuffle against the multinomial distribution."""

import numpy as np

from tests.policies.tuples.tables import decide, repeat, tables

TIMES, TUPLES, WIDTH = 4000, 12, 5


def test_has_the_mean_and_covariance_of_a_multinomial() -> None:
    sent = repeat("shuffle", tables(WIDTH, waiting=TUPLES, backlog=np.arange(WIDTH), cost=np.arange(WIDTH)), TIMES)
    share = 1 / WIDTH
    variance = TUPLES * share * (1 - share)
    assert (sent.sum(axis=1) == TUPLES).all()
    np.testing.assert_allclose(sent.mean(axis=0), TUPLES * share, atol=4 * np.sqrt(variance / TIMES))
    expected = np.where(np.eye(WIDTH) > 0, variance, -TUPLES * share * share)
    np.testing.assert_allclose(np.cov(sent.T, ddof=0), expected, atol=0.15)


def test_tuples_that_full_lanes_do_not_take_go_to_the_others() -> None:
    sent = decide("shuffle", tables(4, waiting=10, room=[0, 2, 99, 0])).sent
    assert sent[[0, 3]].sum() == 0
    assert sent[1] <= 2
    assert sent.sum() == 10
