"""The decisions of every sending rule, against plain Python and against all possible decisions."""

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.model.cluster import Cluster, Machine
from penstock.model.kernel import interpreted
from penstock.model.slotted import Longs, PlacedApplication, build_slotted_system
from penstock.model.topology import Component, Kind, Stream, Topology
from penstock.policies.registry import PolicyKind, names, routing_policy, sending_policy
from penstock.policies.tuples.sending import STATE, send
from penstock.sim.slotted import Arrivals, simulate

RULES = names(PolicyKind.SENDING)
CONSERVING = ("random", "round-robin", "longest-backlog-first", "longest-backlog-first:tau=3")


class Link(NamedTuple):
    """The input of a rule for one link."""

    backlog: Longs
    oldest: NDArray[np.float64]
    budget: int


def links(number: int, seed: int, queues: int = 5, largest: int = 4) -> list[Link]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        size = int(rng.integers(1, queues + 1))
        backlog = rng.integers(0, largest + 1, size) * (rng.random(size) < 0.7)
        found.append(
            Link(backlog.astype(np.int64), rng.integers(0, 6, size).astype(float), int(rng.integers(0, largest + 2)))
        )
    return found


def decided(spec: str, link: Link, state: NDArray[np.float64] | None = None, now: float = 0.0, seed: int = 0) -> Longs:
    allowed = np.zeros(len(link.backlog), dtype=np.int64)
    kept = np.zeros(STATE) if state is None else state
    rule, rng = sending_policy(spec).rule, np.random.default_rng(seed)
    given = send(*rule, now, link.budget, link.backlog.copy(), link.oldest, kept, rng, allowed)
    assert given == allowed.sum()
    return allowed


def all_decisions(link: Link) -> list[tuple[int, ...]]:
    ranges = [range(size + 1) for size in link.backlog.tolist()]
    return [shares for shares in product(*ranges) if sum(shares) <= link.budget]


@pytest.mark.parametrize("spec", RULES)
def test_no_rule_sends_more_than_queues_or_the_link_allow(spec: str) -> None:
    for link in links(300, 1):
        allowed = decided(spec, link)
        assert (allowed >= 0).all()
        assert (allowed <= link.backlog).all()
        assert allowed.sum() <= link.budget


@pytest.mark.parametrize("spec", CONSERVING)
def test_rules_that_do_not_idle_send_the_maximum(spec: str) -> None:
    for link in links(300, 2):
        assert decided(spec, link).sum() == min(link.budget, link.backlog.sum())


def test_longest_first_leaves_the_minimum_of_the_largest_backlog() -> None:
    """Not only the largest: the sorted backlogs are the minimum over all decisions."""
    for link in links(400, 3, queues=4, largest=3):
        left = sorted((link.backlog - decided("longest-backlog-first", link)).tolist(), reverse=True)
        best = min(sorted((link.backlog - np.array(one)).tolist(), reverse=True) for one in all_decisions(link))
        assert left == best


def test_longest_first_prefers_the_first_of_equals() -> None:
    link = Link(np.array([2, 3, 3]), np.zeros(3), 1)
    assert decided("longest-backlog-first", link).tolist() == [0, 1, 0]


def test_fifo_sends_the_oldest_tuple_one_at_a_time() -> None:
    for link in links(300, 4):
        waiting = [(link.oldest[queue], queue) for queue in range(len(link.backlog)) if link.backlog[queue] > 0]
        expected = np.zeros(len(link.backlog), dtype=np.int64)
        if waiting and link.budget > 0:
            expected[min(waiting)[1]] = 1
        assert decided("fifo", link).tolist() == expected.tolist()


@pytest.mark.parametrize(("spec", "wasteful"), [("round-robin", False), ("round-robin-idle", True)])
@pytest.mark.parametrize("queues", [1, 3, 5])
def test_turns_rotate_and_are_kept_between_slots(spec: str, wasteful: bool, queues: int) -> None:
    rng = np.random.default_rng(5)
    state, turn = np.zeros(STATE), 0
    for _ in range(60):
        link = Link(rng.integers(0, 3, queues), np.zeros(queues), int(rng.integers(0, 4)))
        left, expected = link.backlog.tolist(), [0] * queues
        for _ in range(link.budget):
            able = [turn] if wasteful else [(turn + step) % queues for step in range(queues)]
            if not wasteful and not any(left):
                break  # all queues are empty: the turn stays
            turn = next((queue for queue in able if left[queue] > 0), turn)
            if left[turn] > 0:
                left[turn] -= 1
                expected[turn] += 1
            turn = (turn + 1) % queues
        assert decided(spec, link, state).tolist() == expected


def test_turns_that_skip_empty_queues_serve_all_others_equally() -> None:
    state, sent = np.zeros(STATE), np.zeros(4, dtype=np.int64)
    link = Link(np.array([9, 0, 9, 9]), np.zeros(4), 1)
    for _ in range(300):
        sent += decided("round-robin", link, state)
    assert sent.tolist() == [100, 0, 100, 100]


def test_idle_slots_do_not_consume_a_turn() -> None:
    state, sent = np.zeros(STATE), np.zeros(2, dtype=np.int64)
    for slot in range(100):  # every other slot is idle: if it consumed a turn, only one queue would ever be first
        waiting = np.array([9, 9]) if slot % 2 == 0 else np.zeros(2, dtype=np.int64)
        sent += decided("round-robin", Link(waiting, np.zeros(2), 1), state)
    assert sent.tolist() == [25, 25]


def test_random_serves_every_nonempty_queue_equally_often() -> None:
    link = Link(np.array([1, 0, 50, 3]), np.zeros(4), 1)
    sent = sum(decided("random", link, seed=seed) for seed in range(3000))
    assert isinstance(sent, np.ndarray)
    assert sent[1] == 0
    assert sent[[0, 2, 3]] == pytest.approx(np.full(3, 1000), rel=0.12)


def test_a_queue_keeps_the_signal_for_tau() -> None:
    state, spec = np.zeros(STATE), "longest-backlog-first:tau=3,conserving=false"
    first, later = Link(np.array([4, 1]), np.zeros(2), 1), Link(np.array([2, 9]), np.zeros(2), 1)
    assert decided(spec, first, state, now=0.0).tolist() == [1, 0]
    assert decided(spec, later, state, now=1.0).tolist() == [1, 0]
    assert decided(spec, later, state, now=2.0).tolist() == [1, 0]
    assert decided(spec, later, state, now=3.0).tolist() == [0, 1]


@pytest.mark.parametrize(("conserving", "expected"), [("false", [0, 0, 0]), ("true", [0, 1, 0])])
def test_when_the_signalled_queue_is_empty_only_a_conserving_rule_sends(conserving: str, expected: list[int]) -> None:
    state, spec = np.zeros(STATE), f"longest-backlog-first:tau=5,conserving={conserving}"
    decided(spec, Link(np.array([1, 0, 0]), np.zeros(3), 1), state, now=0.0)
    assert decided(spec, Link(np.array([0, 3, 2]), np.zeros(3), 1), state, now=1.0).tolist() == expected


def test_a_signal_is_given_as_soon_as_a_tuple_waits() -> None:
    state, spec = np.zeros(STATE), "longest-backlog-first:tau=10,conserving=false"
    assert decided(spec, Link(np.array([0, 0]), np.zeros(2), 1), state, now=0.0).sum() == 0
    assert decided(spec, Link(np.array([0, 2]), np.zeros(2), 1), state, now=1.0).tolist() == [0, 1]


@pytest.mark.parametrize("spec", [*RULES, "longest-backlog-first:tau=3,conserving=false"])
def test_compiled_decisions_equal_interpreted_ones(spec: str) -> None:
    plain, rule = interpreted(send), sending_policy(spec).rule
    states = np.zeros(STATE), np.zeros(STATE)
    for now, link in enumerate(links(60, 6, queues=1)):  # the state of a rule is that of one link
        found = []
        for decide, state in zip((send, plain), states, strict=True):
            allowed = np.zeros(1, dtype=np.int64)
            decide(
                *rule, float(now), link.budget, link.backlog.copy(), link.oldest, state, np.random.default_rng(now),
                allowed,
            )  # fmt: skip
            found.append(allowed.tolist())
        assert found[0] == found[1]
    assert states[0].tolist() == states[1].tolist()


@pytest.mark.parametrize("spec", [*RULES, "longest-backlog-first:tau=4,conserving=false"])
def test_no_machine_sends_more_than_its_card_allows(spec: str) -> None:
    """Three machines of four senders each: what arrives at sinks in a slot is what was sent."""
    capacity, machines, each = 2, 3, 4
    topology = Topology(
        name="cards",
        components=(
            Component(name="in", kind=Kind.SOURCE, parallelism=machines * each),
            Component(name="out", kind=Kind.SINK),
        ),
        streams=(Stream(source="in", target="out"),),
    )
    cluster = Cluster(name="cards", machines=tuple(Machine(name=f"m{number}") for number in range(machines + 1)))
    slots = [number // each for number in range(machines * each)] + [machines]
    system = build_slotted_system([PlacedApplication(topology, slots)], cluster, capacity=capacity)
    counts = np.zeros((system.tasks, 400), dtype=np.int64)
    counts[:-1] = np.random.default_rng(8).poisson(0.8 * capacity / each, (machines * each, 400))
    outcome = simulate(system, Arrivals(counts), routing_policy("shuffle"), sending_policy(spec), check=True)
    assert outcome.series.cost.max() == machines * capacity  # a tuple has cost 1
    assert outcome.hops <= counts.sum()
    assert outcome.series.cost.sum() > 0.5 * counts.sum()
