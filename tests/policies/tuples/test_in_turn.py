"""Round-robin against tuples dealt one by one."""

from itertools import cycle, islice

import numpy as np

from tests.policies.tuples.tables import Tables, decide, drawn, repeat, tables


def dealt(given: Tables) -> list[int]:
    """Deal the tuples of one queue: the next lane in turn gets one, if it has room."""
    width, room = len(given.lanes.room), given.lanes.room.tolist()
    sent, left = [0] * width, min(given.able(0), given.limit)
    for lane in islice(cycle(range(width)), int(given.queues.turn[0]), None):
        if left == 0:
            break
        if sent[lane] < room[lane]:
            sent[lane] += 1
            left -= 1
    return sent


def test_equals_dealing_one_by_one_and_skips_full_lanes() -> None:
    rng = np.random.default_rng(0)
    for number in range(500):
        given = drawn(rng, queues=1, width=6, roomy=number % 2 == 0)
        given.queues.waiting[:] = rng.integers(0, 30)
        assert decide("round-robin", given).sent.tolist() == dealt(given), number


def test_continues_with_the_next_lane_in_turn() -> None:
    sent = repeat("round-robin", tables(5, waiting=3, turn=4), 50).cumsum(axis=0)
    assert (sent.max(axis=1) - sent.min(axis=1) <= 1).all()
    assert repeat("round-robin", tables(5, waiting=3, turn=4), 2).tolist() == [[1, 1, 0, 0, 1], [0, 0, 1, 1, 1]]


def test_every_queue_has_its_own_turn() -> None:
    assert decide("round-robin", tables((2, 3), waiting=1, turn=[1, 2])).sent.tolist() == [0, 1, 0, 0, 1]
