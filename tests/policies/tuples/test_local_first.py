"""Local first: round-robin over the local tasks, or over all if none is local."""

import numpy as np

from tests.policies.tuples.tables import decide, drawn


def test_deals_in_turn_over_tasks_on_the_same_machine() -> None:
    rng = np.random.default_rng(0)
    near_and_far = 0
    for number in range(400):
        given = drawn(rng, queues=1, width=6)
        near = given.lanes.cost == 0
        only = given.copy()
        if near.any():
            only.lanes.room[~near] = 0
            near_and_far += not near.all()
        expected = decide("round-robin", only).sent
        assert (decide("local-first", given).sent == expected).all(), number
    assert near_and_far > 100
