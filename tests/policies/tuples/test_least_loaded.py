"""Least loaded against a heap of lanes."""

from heapq import heappop, heappush

import numpy as np

from tests.policies.tuples.tables import Tables, decide, drawn, tables


def poured(given: Tables) -> list[float]:
    """Return the tuples in flight on each lane, ascending, if every tuple goes to the lane with the fewest."""
    left = given.lanes.room.tolist()
    heap: list[tuple[float, int]] = []
    for lane, load in enumerate(given.lanes.outstanding.tolist()):
        heappush(heap, (load, lane))
    full = []
    for _ in range(min(given.able(0), given.limit)):
        while left[heap[0][1]] == 0:
            full.append(heappop(heap)[0])
        load, lane = heappop(heap)
        left[lane] -= 1
        heappush(heap, (load + 1, lane))
    return sorted([*full, *(load for load, _ in heap)])


def test_every_tuple_goes_to_the_lane_with_the_fewest_in_flight() -> None:
    rng = np.random.default_rng(0)
    for number in range(500):
        given = drawn(rng, queues=1, width=6, roomy=number % 2 == 0)
        made = decide("least-loaded", given)
        assert sorted((given.lanes.outstanding + made.sent).tolist()) == poured(given), number


def test_ties_go_in_turn() -> None:
    assert decide("least-loaded", tables(4, waiting=2, turn=3)).sent.tolist() == [1, 0, 0, 1]
