"""The rules that consider one queue at a time, each against an independent answer."""

from heapq import heappop, heappush
from itertools import cycle, islice

import numpy as np

from penstock.model.slotted import Longs
from penstock.policies.registry import routing_policy
from penstock.policies.tuples.load_aware import HEAVIEST, LIGHTEST
from tests.policies.tuples.tables import Tables, decide, drawn, repeat, route_keyed, tables


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


def test_round_robin_equals_dealing_one_by_one_and_skips_full_lanes() -> None:
    rng = np.random.default_rng(0)
    for number in range(500):
        given = drawn(rng, queues=1, width=6, roomy=number % 2 == 0)
        given.queues.waiting[:] = rng.integers(0, 30)
        assert decide("round-robin", given).sent.tolist() == dealt(given), number


def test_round_robin_continues_with_the_next_lane() -> None:
    sent = repeat("round-robin", tables(5, waiting=3, turn=4), 50).cumsum(axis=0)
    assert (sent.max(axis=1) - sent.min(axis=1) <= 1).all()
    assert repeat("round-robin", tables(5, waiting=3, turn=4), 2).tolist() == [[1, 1, 0, 0, 1], [0, 0, 1, 1, 1]]


def test_round_robin_keeps_a_turn_for_every_queue() -> None:
    assert decide("round-robin", tables((2, 3), waiting=1, turn=[1, 2])).sent.tolist() == [0, 1, 0, 0, 1]


TIMES, TUPLES, WIDTH = 4000, 12, 5


def test_shuffle_has_the_mean_and_covariance_of_a_multinomial() -> None:
    sent = repeat("shuffle", tables(WIDTH, waiting=TUPLES, backlog=np.arange(WIDTH), cost=np.arange(WIDTH)), TIMES)
    share = 1 / WIDTH
    variance = TUPLES * share * (1 - share)
    assert (sent.sum(axis=1) == TUPLES).all()
    np.testing.assert_allclose(sent.mean(axis=0), TUPLES * share, atol=4 * np.sqrt(variance / TIMES))
    expected = np.where(np.eye(WIDTH) > 0, variance, -TUPLES * share * share)
    np.testing.assert_allclose(np.cov(sent.T, ddof=0), expected, atol=0.15)


def test_shuffle_sends_to_the_other_lanes_if_some_are_full() -> None:
    sent = decide("shuffle", tables(4, waiting=10, room=[0, 2, 99, 0])).sent
    assert sent[[0, 3]].sum() == 0
    assert sent[1] <= 2
    assert sent.sum() == 10


def test_local_first_deals_in_turn_over_tasks_on_the_same_machine() -> None:
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


def test_least_loaded_sends_every_tuple_to_the_lane_with_the_fewest_in_flight() -> None:
    rng = np.random.default_rng(0)
    for number in range(500):
        given = drawn(rng, queues=1, width=6, roomy=number % 2 == 0)
        made = decide("least-loaded", given)
        assert sorted((given.lanes.outstanding + made.sent).tolist()) == poured(given), number


def test_least_loaded_breaks_ties_in_turn() -> None:
    assert decide("least-loaded", tables(4, waiting=2, turn=3)).sent.tolist() == [1, 0, 0, 1]


SPEC = "load-aware-shuffle:high=4,low=1"


def mixed(near_load: float, turn: int = 0) -> Tables:
    """Return two near and two far tasks; the near ones have a queue of this many slots."""
    return tables(4, waiting=40, cost=[0, 0, 2, 2], backlog=[3 * near_load, 3 * near_load, 0, 0], speed=3.0, turn=turn)


def test_load_aware_uses_near_tasks_until_their_load_is_high_and_again_when_it_is_low() -> None:
    assert decide(SPEC, mixed(4.0)).sent[2:].sum() == 0
    wide = decide(SPEC, mixed(4.1))
    assert wide.sent[2:].sum() > 0
    assert wide.tables.queues.turn[0] == 1  # it remembers
    assert decide(SPEC, mixed(1.0, turn=1)).sent[2:].sum() > 0
    assert decide(SPEC, mixed(0.9, turn=1)).sent[2:].sum() == 0


def test_load_aware_uses_all_tasks_if_none_is_near() -> None:
    assert (decide(SPEC, tables(3, waiting=60, cost=1.0)).sent > 0).all()


def test_load_aware_lowers_weights_above_the_mean_load_step_by_step_to_the_minimum() -> None:
    given = tables(3, waiting=300, cost=1.0, backlog=[9, 0, 0])
    sent = repeat(SPEC, given, 300)
    np.testing.assert_allclose(sent[0] / 300, 1 / 3, atol=0.1)  # the first decision subtracts one from a hundred
    late = sent[150:].sum(axis=0) / sent[150:].sum()
    expected = np.array([LIGHTEST, HEAVIEST, HEAVIEST]) / (LIGHTEST + 2 * HEAVIEST)
    np.testing.assert_allclose(late, expected, atol=0.01)


def test_load_aware_measures_load_as_the_time_to_serve_a_queue() -> None:
    given = tables(2, waiting=300, cost=1.0, backlog=[6, 4], speed=[6, 1])
    assert np.argmin(repeat(SPEC, given, 150)[100:].sum(axis=0)) == 1


def test_load_aware_sends_by_weight_to_the_other_lanes_if_some_are_full() -> None:
    given = tables(3, waiting=100, cost=1.0, room=[5, 99, 0])
    assert decide(SPEC, given).sent.tolist() == [5, 95, 0]


LANES = 8


def sent_by(name: str, own: Longs, other: Longs, outstanding: Longs) -> tuple[Longs, Longs]:
    lanes = tables(LANES, outstanding=outstanding).lanes
    chosen, sent = np.empty(len(own), dtype=np.int64), np.zeros(LANES, dtype=np.int64)
    assert route_keyed(routing_policy(name).rule.kind, lanes, 0, own, other, len(own), chosen, sent) == len(own)
    return chosen, sent


def test_partial_key_sends_to_the_less_loaded_of_a_keys_two_tasks() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        own = rng.integers(0, LANES, 30)
        other = (own + rng.integers(1, LANES, 30)) % LANES
        load = rng.integers(0, 9, LANES)
        chosen, _ = sent_by("partial-key", own, other, load)
        for first, second, taken in zip(own, other, chosen, strict=True):
            assert taken == (second if load[second] < load[first] else first)
            load[taken] += 1


def test_partial_key_balances_skewed_keys() -> None:
    rng = np.random.default_rng(1)
    keys = np.minimum(rng.zipf(1.5, 4000), 500)
    home = rng.integers(0, LANES, (501, 2))
    own, other = home[keys, 0], home[keys, 1]
    loads = {name: sent_by(name, own, other, np.zeros(LANES, dtype=np.int64))[1] for name in ("fields", "partial-key")}
    assert (loads["fields"] == np.bincount(own, minlength=LANES)).all()
    assert loads["partial-key"].max() < 0.75 * loads["fields"].max()
