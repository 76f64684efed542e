"""The contract of tuple policies, tested on all that are registered."""

from collections.abc import Callable
from dataclasses import is_dataclass
from sys import getrefcount

import numpy as np
import pytest

from penstock.model.errors import PenstockError
from penstock.model.kernel import interpreted
from penstock.model.slotted import UNLIMITED, Longs
from penstock.model.taskgraph import Floats
from penstock.policies import registry
from penstock.policies.api import SETTINGS, RoutingPolicy, Rule, SendingPolicy
from penstock.policies.registry import PolicyKind
from penstock.policies.tuples.routing import route
from penstock.policies.tuples.sending import STATE as REMEMBERED
from penstock.policies.tuples.sending import send
from tests.policies.tuples.tables import STATE, Tables, decide, drawn, repeat, route_keyed, tables

ROUTINGS = registry.names(PolicyKind.ROUTING)
SENDINGS = registry.names(PolicyKind.SENDING)
KEYED = [name for name in ROUTINGS if registry.routing_policy(name).keyed]
FREE = [
    *(name for name in ROUTINGS if name not in KEYED),
    "load-aware-shuffle:high=1,low=0.5",
    "potus:v=0",
    "potus:spread=even,beta=2",
    "potus:spread=random,in_flight=true",
    "potus:spread=none,v=10",
    "potus-plus:v=2",
    "potus-plus:v=1,prices=false",
]
ALL_SENDINGS = [*SENDINGS, "longest-backlog-first:tau=3", "longest-backlog-first:tau=2,conserving=false"]
CONSERVING = ("shuffle", "round-robin", "least-loaded", "potus-plus", "potus-plus:v=2", "potus-plus:v=1,prices=false")
NEAR_ONLY = ("local-first", "load-aware-shuffle", "load-aware-shuffle:high=1,low=0.5")
EVERY_FREE = pytest.mark.parametrize("spec", FREE)
EVERY_SENDING = pytest.mark.parametrize("spec", ALL_SENDINGS)
SEED, CASES = 5, 150


def cases(number: int = CASES) -> list[Tables]:
    rng = np.random.default_rng(SEED)
    return [drawn(rng) for _ in range(number)]


@pytest.mark.parametrize(
    ("name", "kind", "protocol"),
    [
        *((name, PolicyKind.ROUTING, RoutingPolicy) for name in ROUTINGS),
        *((name, PolicyKind.SENDING, SendingPolicy) for name in SENDINGS),
    ],
)
def test_is_a_frozen_slotted_dataclass_that_needs_no_arguments(name: str, kind: PolicyKind, protocol: type) -> None:
    made = registry.policy_class(name, kind)
    rule: Rule = made().rule
    assert rule.settings.shape == (SETTINGS,)
    assert isinstance(made(), protocol)
    assert not hasattr(made(), "__dict__")
    assert is_dataclass(made)
    assert made.__dataclass_params__.frozen  # type: ignore[attr-defined]


@pytest.mark.slow
@EVERY_FREE
def test_sends_no_more_than_queues_room_and_limit_allow(spec: str) -> None:
    for number, given in enumerate(cases()):
        sent = decide(spec, given).sent
        assert (sent >= 0).all(), number
        assert (sent <= given.lanes.room).all(), number
        assert (given.sums(sent) <= np.minimum(given.queues.waiting, given.queues.allowed)).all(), number
        assert sent.sum() <= given.limit, number


@EVERY_FREE
def test_equal_seeds_give_equal_decisions(spec: str) -> None:
    for number, given in enumerate(cases(30)):
        one, other = decide(spec, given, seed=number), decide(spec, given, seed=number)
        assert (one.sent == other.sent).all()
        assert one.next_random == other.next_random


@EVERY_FREE
def test_leaves_its_input_unchanged(spec: str) -> None:
    for given in cases(30):
        after = decide(spec, given).tables
        for before, then in ((given.queues, after.queues), (given.lanes, after.lanes)):
            for name in before._fields:
                if name not in STATE:
                    assert (getattr(before, name) == getattr(then, name)).all(), name


@EVERY_FREE
def test_compiled_decisions_equal_interpreted_ones(spec: str) -> None:
    plain = interpreted(route)
    wide = tables(50, waiting=77, cost=np.arange(50) % 3, backlog=np.arange(50) % 7, senders=2.0, room=4)
    for number, given in enumerate([*cases(60), wide]):
        one, other = decide(spec, given, number), decide(spec, given, number, plain)
        assert (one.sent == other.sent).all(), number
        assert one.next_random == other.next_random
        assert (one.tables.queues.turn == other.tables.queues.turn).all()
        np.testing.assert_allclose(one.tables.queues.price, other.tables.queues.price, rtol=1e-12)
        np.testing.assert_allclose(one.tables.lanes.weight, other.tables.lanes.weight, rtol=1e-9, atol=1e-9)


def test_keeps_no_reference_to_its_input() -> None:
    given, rng, rule = tables(3, waiting=5), np.random.default_rng(0), registry.routing_policy("shuffle").rule
    sent = np.zeros(3, dtype=np.int64)
    held = [getrefcount(one) for one in (rng, sent, given.lanes.room, rule.settings)]
    for _ in range(10):
        route(*rule, given.queues, given.lanes, 0, 1, 0, rng, sent)
    assert [getrefcount(one) for one in (rng, sent, given.lanes.room, rule.settings)] == held


@pytest.mark.parametrize("spec", CONSERVING)
def test_sends_all_that_lanes_and_limit_allow(spec: str) -> None:
    for number, given in enumerate(cases()):
        able = sum(given.able(queue) for queue in range(len(given.queues.waiting)))
        assert decide(spec, given).sent.sum() == min(given.limit, able), number


@EVERY_FREE
def test_streams_of_a_fork_share_a_limit_that_binds(spec: str) -> None:
    # Scores above zero: POTUS sends only what it must, (4), which is more than γ.
    given = tables([2, 2], limit=4, waiting=10, arrived=10, backlog=100)
    sent = repeat(spec, given, 60)
    if spec != "potus:spread=none,v=10":  # holds all of it
        assert sent.sum() == 60 * 4
    assert sent[:, :2].sum() == sent[:, 2:].sum()


@pytest.mark.parametrize("spec", NEAR_ONLY)
def test_sends_all_that_lanes_and_limit_allow_if_no_task_is_near(spec: str) -> None:
    for number, given in enumerate(cases()):
        given.lanes.cost[:] += 1.0
        able = sum(given.able(queue) for queue in range(len(given.queues.waiting)))
        assert decide(spec, given).sent.sum() == min(given.limit, able), number


@EVERY_FREE
def test_sends_nothing_without_tuples_room_or_permission(spec: str) -> None:
    assert decide(spec, tables((3, 1))).sent.sum() == 0
    assert decide(spec, tables(3, waiting=5, arrived=5, room=0)).sent.sum() == 0
    assert decide(spec, tables(3, waiting=5, arrived=5, limit=0)).sent.sum() == 0
    assert decide(spec, tables(3, waiting=5, arrived=5, allowed=0)).sent.sum() == 0


@EVERY_FREE
def test_one_lane_gets_everything(spec: str) -> None:
    assert decide(spec, tables(1, waiting=7, arrived=7)).sent.tolist() == [7]


@EVERY_FREE
def test_handles_a_thousand_lanes(spec: str) -> None:
    given = tables(1000, waiting=5000, arrived=5000, backlog=np.arange(1000) % 5, cost=1.0, room=6, speed=3.0)
    sent = decide(spec, given).sent
    assert (sent <= 6).all()
    assert sent.sum() == 5000


def test_queues_of_other_tasks_are_not_changed() -> None:
    given = tables((2, 2, 2), waiting=4)
    for spec in FREE:
        rule, sent = registry.routing_policy(spec).rule, np.zeros(6, dtype=np.int64)
        own = given.copy()
        route(*rule, own.queues, own.lanes, 1, 2, UNLIMITED, np.random.default_rng(0), sent)
        assert sent[[0, 1, 4, 5]].sum() == 0
        assert sent[2:4].sum() == 4


def keyed_case(rng: np.random.Generator) -> tuple[Tables, Longs, Longs]:
    """A queue behind another, its lanes' loads and room, and the two lanes of each tuple's key."""
    given = drawn(rng, queues=1, width=6)
    width = len(given.lanes.room)
    amount = int(rng.integers(0, 15))
    own = rng.integers(0, width, amount)
    other = (own + rng.integers(1, max(2, width), amount)) % width
    return given, own, other


@pytest.mark.parametrize("name", KEYED)
def test_tuples_go_to_a_lane_of_their_key_in_order_until_there_is_no_room(name: str) -> None:
    rng, rule = np.random.default_rng(SEED), registry.routing_policy(name).rule
    stopped = 0
    for _ in range(300):
        given, own, other = keyed_case(rng)
        sent, chosen = np.zeros_like(given.lanes.room), np.full(len(own), -1, dtype=np.int64)
        went = route_keyed(rule.kind, given.lanes, 0, own, other, len(own), chosen, sent)
        both = name == "partial-key"
        for place in range(went):
            assert chosen[place] in ((own[place], other[place]) if both else (own[place],))
        assert (np.bincount(chosen[:went], minlength=len(sent)) == sent).all()
        assert (sent <= given.lanes.room).all()
        assert (chosen[went:] == -1).all()
        if went < len(own):
            stopped += 1
            full = sent >= given.lanes.room
            assert full[own[went]]
            assert full[other[went]] or not both
    assert stopped > 50


@pytest.mark.parametrize("name", KEYED)
def test_compiled_decisions_by_key_equal_interpreted_ones(name: str) -> None:
    rng, rule = np.random.default_rng(SEED), registry.routing_policy(name).rule
    for _ in range(100):
        given, own, other = keyed_case(rng)
        answers = []
        for how in (route_keyed, interpreted(route_keyed)):
            sent, chosen = np.zeros_like(given.lanes.room), np.full(len(own), -1, dtype=np.int64)
            went = how(rule.kind, given.lanes, 0, own, other, len(own), chosen, sent)
            answers.append((went, sent.tolist(), chosen.tolist()))
        assert answers[0] == answers[1]


class Link:
    """The random input of a sending policy for a link."""

    def __init__(self, rng: np.random.Generator) -> None:
        size = int(rng.integers(1, 7))
        self.backlog = rng.integers(0, 6, size)
        self.oldest = rng.integers(0, 9, size).astype(np.float64)
        self.budget = int(rng.integers(0, 9))

    def shared(self, spec: str, seed: int, how: Callable[..., int] = send) -> tuple[Longs, Floats]:
        """Return what is allowed to each queue in three consecutive slots, and the policy's state afterwards."""
        rule, rng = registry.sending_policy(spec).rule, np.random.default_rng(seed)
        state, allowed = np.zeros(REMEMBERED), np.zeros((3, len(self.backlog)), dtype=np.int64)
        for slot, row in enumerate(allowed):
            before = self.backlog.copy(), self.oldest.copy()
            given = how(*rule, float(slot), self.budget, self.backlog, self.oldest, state, rng, row)
            assert given == row.sum()
            assert (before[0] == self.backlog).all()
            assert (before[1] == self.oldest).all()
        return allowed, state


@EVERY_SENDING
def test_sending_is_within_limits_repeatable_and_equal_if_interpreted(spec: str) -> None:
    rng, plain = np.random.default_rng(SEED), interpreted(send)
    for number in range(100):
        link = Link(rng)
        allowed, state = link.shared(spec, number)
        assert (allowed >= 0).all()
        assert (allowed <= link.backlog).all()
        assert (allowed.sum(axis=1) <= link.budget).all()
        for other in (link.shared(spec, number), link.shared(spec, number, plain)):
            assert (other[0] == allowed).all()
            assert (other[1] == state).all()


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("routing", "potus:v=-1", "routing.potus.v: expected a number ≥ 0, got '-1'"),
        ("routing", "potus:beta=0", "routing.potus.beta: expected a number > 0, got '0'"),
        ("routing", "potus:spread=wide", "routing.potus.spread: expected one of even, least, none, random, got 'wide'"),
        ("routing", "potus:gamma=3", "routing.potus: no parameter is named 'gamma'"),
        ("routing", "potus-plus:v=inf", "routing.potus-plus.v: "),
        ("routing", "shuffle:seed=1", "routing.shuffle: no parameter is named 'seed'; it has none"),
        ("routing", "load-aware-shuffle:low=0", "routing.load-aware-shuffle.low: expected a number > 0, got '0'"),
        ("routing", "load-aware-shuffle:low=5", "routing.load-aware-shuffle.low: expected ≤ high, 4, got 5; lower it"),
        ("routing", "fifo", "routing: no routing policy is named 'fifo'; 'fifo' is a sending policy; there are "),
        ("sending", "longest-backlog-first:tau=-2", "sending.longest-backlog-first.tau: expected a number ≥ 0"),
        ("sending", "potus", "sending: no sending policy is named 'potus'; 'potus' is a routing policy; there are "),
    ],
)
def test_a_wrong_parameter_is_a_one_line_error(kind: str, spec: str, message: str) -> None:
    with pytest.raises(PenstockError) as caught:
        getattr(registry, f"{kind}_policy")(spec)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
