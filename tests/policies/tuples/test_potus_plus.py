"""POTUS-plus: how tuples fill lanes, against a water level found by bisection; and the benefit of prices."""

from typing import Any

import numpy as np
import pytest

from penstock.estimate.communication import CommunicationBound, communication_bound
from penstock.model.cluster import Cluster, Machine
from penstock.model.kernel import interpreted
from penstock.model.slotted import Longs, PlacedApplication, SlottedSystem, build_slotted_system
from penstock.model.taskgraph import Floats
from penstock.model.topology import Component, Grouping, Kind, Stream, Topology
from penstock.policies.registry import routing_policy
from penstock.policies.tuples.filling import FEW, fill
from penstock.policies.tuples.lanes import Lanes
from penstock.policies.tuples.potus_plus import EASE
from penstock.sim.slotted import Arrivals, SlottedResult, simulate
from penstock.workloads.potus import potus_workload
from tests.policies.tuples.tables import Tables, decide, repeat, tables

FILL = interpreted(fill)


def filled(lanes: Lanes, amount: int, others: float, turn: int, sent: Longs) -> int:
    return FILL(lanes, 0, len(sent), amount, others, turn, sent)


def level(score: Floats, speed: Floats, amount: float) -> float:
    """Return the water level in vessels that start at `score` and are `speed` wide."""
    low, high = score.min(), score.max() + amount / speed.min()
    for _ in range(200):
        middle = (low + high) / 2
        poured = (np.maximum(0.0, middle - score) * speed).sum()
        low, high = (middle, high) if poured < amount else (low, middle)
    return float(high)


def vessels(rng: np.random.Generator, width: int) -> Lanes:
    made = tables(width, speed=rng.integers(1, 7, width)).lanes
    made.score[:] = np.round(rng.gamma(1.0, 4.0, width), 2)
    made.weight[:] = rng.uniform(-1, 1, width)
    return made


@pytest.mark.parametrize("width", [1, 2, 5, FEW, FEW + 1, 200])
def test_every_lane_gets_the_tuples_that_fill_all_to_one_level(width: int) -> None:
    rng = np.random.default_rng(width)
    for _ in range(60):
        lanes = vessels(rng, width)
        before, score = lanes.weight.copy(), lanes.score.copy()
        amount, others = int(rng.integers(1, 40)), float(rng.integers(1, 9))
        sent = np.zeros(width, dtype=np.int64)
        assert filled(lanes, amount, others, int(rng.integers(width)), sent) == amount == sent.sum()
        top = level(score, lanes.speed, amount * others)
        parts = np.maximum(0.0, top - score) * lanes.speed / others
        np.testing.assert_allclose(sent + lanes.weight, before + parts, atol=1e-6)  # fractions are carried over
        assert (sent[parts < 1e-9] == 0).all()


@pytest.mark.parametrize("width", [5, 100])
def test_fractions_are_rounded_up_where_they_are_largest(width: int) -> None:
    rng, compared = np.random.default_rng(width), 0
    for _ in range(100):
        lanes = vessels(rng, width)
        lanes.score[:] = 0.0
        lanes.weight[:] -= lanes.weight.mean()  # as much is due as is sent
        amount, sent = int(rng.integers(1, 3 * width)), np.zeros(width, dtype=np.int64)
        due = np.minimum(1.0, lanes.weight) + amount * lanes.speed / lanes.speed.sum()
        filled(lanes, amount, 1.0, 0, sent)
        whole = np.maximum(0, due.astype(np.int64))
        up = np.argsort(whole - due, kind="stable")[: amount - whole.sum()]
        if whole.sum() <= amount:  # otherwise the first lanes get theirs
            assert (sent == whole + np.bincount(up, minlength=width)).all()
            compared += 1
    assert compared > 80


def test_equal_lanes_get_exact_shares_by_their_speed_over_time() -> None:
    speed = np.array([1.0, 2.0, 3.0, 4.0])
    for amount in (1, 3, 7):
        sent = repeat("potus-plus", tables(4, waiting=amount, speed=speed, senders=3.0), 500).cumsum(axis=0)
        exact = np.outer(np.arange(1, 501) * amount, speed / speed.sum())
        assert np.abs(sent - exact).max() <= 1.0


def test_tuples_that_full_lanes_do_not_take_fill_the_others() -> None:
    given = tables(3, waiting=10, backlog=[0, 50, 90], room=[2, 5, 99])
    assert decide("potus-plus", given).sent.tolist() == [2, 5, 3]


def test_tuples_are_sent_even_if_they_do_not_change_a_score() -> None:
    given = tables(2, waiting=3, cost=[1.0, 2.0], speed=1e9)
    assert decide("potus-plus:v=1e9", given).sent.tolist() == [3, 0]


def test_a_score_is_cost_and_waiting_on_the_path_to_the_sinks() -> None:
    columns: dict[str, Any] = {
        "backlog": [9, 4],
        "flying": [3, 0],
        "speed": [3, 2],
        "cost": [1, 2],
        "onward": [4, 1],
        "ahead": [5, 7],
    }
    given = tables(2, waiting=0, **columns)
    # waits: (9 + 3) / 3 − 1 = 3 and 4 / 2 − 1 = 1
    assert decide("potus-plus:v=2", given).tables.queues.price[0] == min(2 * 1 + 3 + 5, 2 * 2 + 1 + 7)
    assert decide("potus-plus:v=2,prices=false", given).tables.queues.price[0] == min(2 * (1 + 4) + 3, 2 * (2 + 1) + 1)


def test_only_a_part_of_a_difference_is_corrected_because_other_senders_do_the_same() -> None:
    def share(senders: float) -> float:
        given: Tables = tables(2, waiting=8, backlog=[0, 40], senders=senders)
        return float(repeat("potus-plus", given, 100)[:, 1].mean())

    assert share(1.0) == 0.0  # 8 · 1 · EASE poured: the level stays below the other lane
    assert EASE == 4.0
    # 8 · 4 · 4 = 128 poured over 0 and 39: the level is 83.5, of which the second lane gets 44.5 / 16
    assert share(4.0) == pytest.approx(44.5 / 16, abs=0.05)


def trap(slow: float) -> SlottedSystem:
    """A source and two workers; the near one sends to a slow sink, the far one to a fast sink."""
    topology = Topology(
        name="trap",
        components=(
            Component(name="source", kind=Kind.SOURCE),
            Component(name="worker", parallelism=2, cpu=0.001),
            Component(name="sink", kind=Kind.SINK, parallelism=2, cpu=0.001),
        ),
        streams=(
            Stream(source="source", target="worker"),
            Stream(source="worker", target="sink", grouping=Grouping.FORWARD),
        ),
    )
    cluster = Cluster(name="five", machines=tuple(Machine(name=f"m{number}") for number in range(5)))
    cost = np.zeros((5, 5))
    cost[0, 2] = 1.0
    system = build_slotted_system([PlacedApplication(topology, range(5))], cluster, cost=cost, limit=50)
    return system._replace(service=np.array([np.inf, 10.0, 10.0, slow, 10.0]))


def run(system: SlottedSystem, spec: str, rate: int = 3, slots: int = 2000) -> SlottedResult:
    counts = np.zeros((system.tasks, slots), dtype=np.int64)
    counts[0] = rate
    return simulate(system, Arrivals(counts), routing_policy(spec), warm_up=slots // 4, check=True)


def test_prices_avoid_a_cheap_path_to_a_long_queue() -> None:
    system = trap(slow=1.0)
    blind, priced = run(system, "potus-plus:v=2,prices=false"), run(system, "potus-plus:v=2")
    assert blind.cost == 0.0  # all take the free hop, and two of three wait forever
    assert blind.response > 200
    assert 1.9 < priced.cost < 2.5
    assert priced.response < 10


def test_prices_keep_the_cheap_path_if_queues_are_short() -> None:
    assert run(trap(slow=10.0), "potus-plus:v=2").cost == 0.0


@pytest.mark.parametrize("grouping", [Grouping.FIELDS, Grouping.ALL])
def test_prices_pass_through_streams_without_a_decision(grouping: Grouping) -> None:
    """The worker that is near the source is far from both sinks, the other one next to them."""
    topology = Topology(
        name="keys",
        components=(
            Component(name="source", kind=Kind.SOURCE),
            Component(name="worker", parallelism=2, cpu=0.0005),
            Component(name="sink", kind=Kind.SINK, parallelism=2, cpu=0.0005),
        ),
        streams=(Stream(source="source", target="worker"), Stream(source="worker", target="sink", grouping=grouping)),
    )
    cluster = Cluster(name="five", machines=tuple(Machine(name=f"m{number}") for number in range(5)))
    cost = np.zeros((5, 5))
    cost[0, 2], cost[1, 3:] = 1.0, 4.0
    system = build_slotted_system([PlacedApplication(topology, range(5))], cluster, cost=cost)
    assert run(system, "potus-plus:v=5").cost == pytest.approx(3.0, abs=0.01)  # 3 per slot, each by the hop of cost 1


@pytest.mark.parametrize("v", [1, 10, 100])
def test_has_minimum_cost_where_potus_takes_a_free_hop_before_an_expensive_one(v: int) -> None:
    """Theorem 1's counterexample: a source, two workers, a sink; the near worker is the expensive one."""
    topology = Topology(
        name="detour",
        components=(
            Component(name="source", kind=Kind.SOURCE),
            Component(name="worker", parallelism=2, cpu=0.002),
            Component(name="sink", kind=Kind.SINK, cpu=0.001),
        ),
        streams=(Stream(source="source", target="worker"), Stream(source="worker", target="sink")),
    )
    cluster = Cluster(name="four", machines=tuple(Machine(name=f"m{number}") for number in range(4)))
    cost = np.zeros((4, 4))
    cost[0, 2], cost[1, 3] = 1.0, 5.0
    system = build_slotted_system([PlacedApplication(topology, range(4))], cluster, cost=cost)
    bound = communication_bound(system, [3.0, 0, 0, 0])
    assert isinstance(bound, CommunicationBound)
    assert bound.cost == pytest.approx(3.0)
    assert run(system, f"potus:v={v}").cost == pytest.approx(15.0, abs=0.1)
    assert run(system, f"potus-plus:v={v}").cost == pytest.approx(bound.cost, abs=0.1)
    assert run(system, f"potus-plus:v={v},prices=false").cost == pytest.approx(bound.cost, abs=0.1)


@pytest.mark.parametrize("fabric", ["fat-tree", "jellyfish"])
def test_by_default_cost_counts_as_described(fabric: Any) -> None:
    """On the paper's systems, the cost is closer to the optimum than without V, at about equal response times."""
    setting = potus_workload(fabric, 1)
    counts = np.random.default_rng(1).poisson(setting.rates[:, None], (len(setting.rates), 1200))
    bound = communication_bound(setting.system, counts[:, 400:].mean(axis=1))
    assert isinstance(bound, CommunicationBound)
    found = {
        spec: simulate(setting.system, Arrivals(counts), routing_policy(spec), warm_up=400, seed=1)
        for spec in ("shuffle", "potus-plus", "potus-plus:v=0")
    }
    above = {spec: outcome.cost - bound.cost for spec, outcome in found.items()}
    assert above["potus-plus"] < 0.75 * min(above["shuffle"], above["potus-plus:v=0"])
    assert found["potus-plus"].response < 1.25 * found["potus-plus:v=0"].response
