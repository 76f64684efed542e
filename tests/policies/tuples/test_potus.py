"""POTUS against the problem that it solves, (15), and its behaviour beyond that problem."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import block_diag, csr_array
from scipy.stats import chisquare

from penstock.model.slotted import UNLIMITED
from penstock.model.taskgraph import Floats
from penstock.policies.registry import routing_policy
from penstock.policies.tuples.potus import Potus
from tests.policies.tuples.tables import Decision, Tables, decide, drawn, repeat, tables

STATES = 2000
SPREADS = ("even", "random", "least", "none")


class Case(NamedTuple):
    """A state, the parameters drawn for it, and l (16)."""

    given: Tables
    policy: Potus
    weights: Floats  # [L] l


def weights_of(given: Tables, policy: Potus) -> Floats:
    """l = V·U + Q_in − β·Q_out; with tuples in flight, Q_in is its value when a tuple arrives."""
    queues, lanes, _ = given
    queue = np.repeat(np.arange(len(queues.waiting)), np.diff(queues.lanes))
    known = lanes.backlog
    if policy.in_flight:
        known = np.maximum(0.0, lanes.backlog + lanes.flying - lanes.speed)
    return np.asarray(policy.v * lanes.cost + known - policy.beta * queues.waiting[queue])


def cases(seed: int, number: int, roomy: bool, source: bool, spread: Any = "least") -> list[Case]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(number):
        given = drawn(rng, roomy=roomy, source=source)
        policy = Potus(
            v=float(rng.choice([0.0, 1.0, 2.5])),
            beta=float(rng.choice([0.5, 1.0, 2.0])),
            spread=spread,
            in_flight=bool(rng.random() < 0.5),
        )
        found.append(Case(given, policy, weights_of(given, policy)))
    return found


def least(found: list[Case]) -> Floats:
    """Return the minimum of (15) for every state, by one linear program, as states are independent."""
    rows, bounds = [], []
    for given, _, _ in found:
        queues = np.repeat(np.arange(len(given.queues.waiting)), np.diff(given.queues.lanes))
        own = (queues == np.arange(len(given.queues.waiting))[:, None]).astype(np.float64)
        rows.append(np.vstack([own, np.ones((1, len(queues)))]))
        bounds += [*np.minimum(given.queues.waiting, given.queues.allowed), given.limit]  # (10), (1)
    weights = np.concatenate([case.weights for case in found])
    room = np.concatenate([case.given.lanes.room for case in found]).astype(np.float64)
    solved: Any = linprog(  # type: ignore[call-overload]
        weights,
        A_ub=csr_array(block_diag(rows)),
        b_ub=np.array(bounds, dtype=np.float64),
        bounds=np.column_stack([np.zeros_like(room), np.where(room >= UNLIMITED, np.inf, room)]),
    )
    starts = np.concatenate([[0], np.cumsum([len(case.weights) for case in found])])[:-1]
    return np.asarray(np.add.reduceat(weights * solved.x, starts))


def decisions(found: list[Case]) -> list[Decision]:
    return [decide(case.policy.rule, case.given, number) for number, case in enumerate(found)]


@pytest.mark.slow
@pytest.mark.parametrize("roomy", [True, False])
def test_minimises_15_exactly_if_no_tuple_must_leave(roomy: bool) -> None:
    found = cases(1, STATES if roomy else STATES // 4, roomy, source=False)
    values = [float((case.weights * made.sent).sum()) for case, made in zip(found, decisions(found), strict=True)]
    np.testing.assert_allclose(values, least(found), atol=1e-6)
    assert sum(value < 0 for value in values) > len(found) / 2


def test_minimises_15_exactly_if_arrived_tuples_may_wait() -> None:
    found = cases(2, STATES // 4, roomy=True, source=True, spread="none")
    values = [float((case.weights * made.sent).sum()) for case, made in zip(found, decisions(found), strict=True)]
    np.testing.assert_allclose(values, least(found), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("spread", SPREADS[:-1])
def test_candidates_get_the_minimum_of_15_and_other_arrived_tuples_are_spread(spread: str) -> None:
    found = cases(3, STATES // 2, roomy=False, source=True, spread=spread)
    made = decisions(found)
    candidates = [
        float((case.weights * one.sent)[case.weights < 0].sum()) for case, one in zip(found, made, strict=True)
    ]
    np.testing.assert_allclose(candidates, least(found), atol=1e-6)
    spread_at_all = 0
    for (given, _, weights), one in zip(found, made, strict=True):
        beyond = given.sums(np.where(weights >= 0, one.sent, 0))
        spread_at_all += bool(beyond.any())
        room = given.sums(np.minimum(given.lanes.room, 99))
        must = np.minimum(np.minimum(given.queues.arrived, given.queues.allowed), room)
        gone = given.sums(one.sent)
        assert (gone[beyond > 0] <= must[beyond > 0]).all()  # only tuples that must leave are forced
        assert (gone >= must).all() or one.sent.sum() == given.limit  # (4), as far as (1) allows
    assert spread_at_all > len(found) / 10


def test_tuples_go_to_the_lowest_l_first_and_none_to_l_of_zero_or_more() -> None:
    given = tables(4, waiting=10, backlog=[3, 0, 10, 5], room=4)
    assert decide("potus:v=0", given).sent.tolist() == [4, 4, 0, 2]
    assert decide("potus:v=0", tables(4, waiting=10, backlog=[3, 0, 10, 5])).sent.tolist() == [0, 10, 0, 0]
    assert decide("potus:v=0", tables(2, waiting=5, backlog=[5, 9])).sent.tolist() == [0, 0]


def test_out_queues_share_the_limit_by_lowest_l() -> None:
    given = tables((2, 1, 2), limit=9, waiting=[6, 5, 4], backlog=[0, 1, 2, 0, 0])
    # l: queue 0 has −6 and −5, queue 1 has −3, queue 2 has −4 and −4
    sent = decide("potus:v=0", given).sent
    assert sent[:3].tolist() == [6, 0, 0]
    assert sorted(sent[3:].tolist()) == [0, 3]


def test_cost_holds_tuples_back_by_v_and_beta() -> None:
    given = tables(2, waiting=4, cost=[1.0, 3.0])
    assert decide("potus:v=3", given).sent.tolist() == [4, 0]
    assert decide("potus:v=4", given).sent.tolist() == [0, 0]
    assert decide("potus:v=4,beta=1.5", given).sent.tolist() == [4, 0]


@pytest.mark.parametrize("spread", SPREADS)
def test_arrived_tuples_are_spread_by_the_named_rule_within_limit_and_room(spread: str) -> None:
    given = tables(3, limit=7, waiting=9, arrived=8, backlog=[50, 40, 60], room=[9, 4, 9])
    sent = decide(f"potus:v=0,spread={spread}", given).sent
    if spread == "none":
        assert sent.tolist() == [0, 0, 0]
        return
    assert sent.sum() == 7  # of the 8 that should
    if spread == "even":
        assert sorted(sent.tolist()) == [2, 2, 3]
    if spread == "least":
        assert sent.tolist() == [3, 4, 0]  # one is full: the next
    assert sent[1] <= 4


def test_spread_at_random_has_the_mean_and_variance_of_a_multinomial() -> None:
    each = repeat("potus:v=0,spread=random", tables(4, waiting=6, arrived=6, backlog=99), 3000)
    np.testing.assert_allclose(each.mean(axis=0), 6 / 4, atol=0.08)
    np.testing.assert_allclose(each.var(axis=0), 6 * 0.25 * 0.75, atol=0.1)


def test_ties_are_broken_evenly_at_random_also_between_queues() -> None:
    given = tables((3, 2), limit=4, waiting=4, backlog=1)
    chosen = repeat("potus:v=0", given, 5000)
    assert (chosen.max(axis=1) == 4).all()  # all to one of them
    assert chisquare((chosen == 4).sum(axis=0)).pvalue > 1e-4
    forced = repeat("potus:v=0,spread=least", tables(4, waiting=2, arrived=2, backlog=9), 5000)
    assert chisquare((forced == 2).sum(axis=0)).pvalue > 1e-4


def test_a_queue_that_may_send_little_counts_in_full() -> None:
    given = tables((1, 1), waiting=[9, 5], allowed=[2, 9], backlog=6)
    assert decide("potus:v=0", given).sent.tolist() == [2, 0]  # l: −3, and 1


def test_parameters_become_settings() -> None:
    assert routing_policy("potus:v=2,beta=0.5,spread=random,in_flight=true").rule.settings.tolist()[:4] == [
        2.0,
        0.5,
        1.0,
        1.0,
    ]
