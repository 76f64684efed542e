"""The estimate of throughput beside the twin and beside a linear program, on random graphs.

The seeds are the first ones of `python -m benchmarks saturation`, which takes minutes.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from benchmarks.saturation import Case, case, lanes, most_tps

from penstock.estimate import saturation
from penstock.estimate.evaluator import Evaluator
from penstock.estimate.saturation import saturated_rates
from penstock.model.cluster import Cluster, Machine
from penstock.model.kernel import interpreted
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.sim.events import Twin

SEEDS = range(60)
NOISE = 0.025  # of the maximum that the twin finds


class Rates(NamedTuple):
    """Source tuples per second."""

    estimate: float
    even: float
    most: float
    twin: float


@cache
def rates(seed: int) -> Rates:
    one = case(seed)
    found = one.evaluator.evaluate(one.placement)
    return Rates(found.throughput_tps, found.even_tps, most_tps(one), one.twin_tps)


def score(one: Case) -> float:
    return float(one.evaluator.scorer(Objective.THROUGHPUT)(np.array([one.placement.slots], dtype=np.int32))[0])


def coinciding_tps(one: Case) -> float:
    """Return the rate of an even split if all slots of a machine are busy at the same times, as rarely as possible."""
    table, slowest = lanes(one), 0.0
    done = table.share_of_source.copy()
    for task in range(len(done)):
        own = range(table.lanes[table.queues[task]], table.lanes[table.queues[task + 1]])
        np.add.at(done, table.target[own], done[task] * table.share[own])
    work = np.bincount(table.slot, done * table.cpu, len(table.slot_cpu)) / table.slot_cpu
    for machine, cpu in enumerate(table.machine_cpu):
        mine = np.sort(work[(table.slot_machine == machine) & (work > 0)])
        cores = cpu / table.slot_cpu[table.slot_machine == machine][0]
        running = np.arange(len(mine), 0, -1)
        slowest = max(slowest, float((np.diff(mine, prepend=0.0) * np.maximum(1.0, running / cores)).sum()))
    return 1.0 / slowest if slowest > 0 else np.inf


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_neither_the_estimate_nor_the_twin_exceeds_the_best_split(seed: int) -> None:
    found = rates(seed)
    assert found.estimate <= found.most * (1 + 1e-6)
    assert found.twin <= found.most * (1 + NOISE)


@pytest.mark.parametrize("seed", range(300))
def test_the_estimate_is_no_less_than_an_even_split(seed: int) -> None:
    """Only slots that wait for cores process less than the bottleneck; no less than if all waited for each other."""
    one = case(seed)
    found = one.evaluator.evaluate(one.placement)
    assert found.throughput_tps >= min(found.even_tps, coinciding_tps(one)) * (1 - 1e-9)
    assert found.limits[0].rate_tps == pytest.approx(found.throughput_tps, rel=1e-8)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_search_uses_the_estimate_that_is_shown(seed: int) -> None:
    one = case(seed)
    assert score(one) == pytest.approx(one.estimate_tps, rel=1e-9)


@pytest.mark.slow
def test_the_estimate_agrees_with_the_twin(record_property: Callable[[str, object], None]) -> None:
    found = np.array([rates(seed) for seed in SEEDS])
    estimate, even = found[:, 0] / found[:, 3], found[:, 1] / found[:, 3]
    for name, ratio in (("estimate", estimate), ("even", even)):
        record_property(name, np.percentile(ratio, (0, 5, 25, 50, 75, 95, 100)).round(3).tolist())
    assert np.mean(np.abs(estimate - 1) <= 0.02) >= 0.95
    assert np.mean(np.abs(estimate - 1) <= 0.05) >= 0.98
    assert np.abs(estimate - 1).max() <= 0.10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1035, 1298, 1343, 1601, 1981, 2182])
def test_tasks_that_are_blocked_far_from_the_bottleneck(seed: int) -> None:
    """Graphs on which senders avoid blocked tasks, or would if they were blocked."""
    one = case(seed)
    assert one.estimate_tps == pytest.approx(one.twin_tps, rel=0.04)


def uneven(grouping: Grouping) -> tuple[Application, Cluster, Placement]:
    """Two senders and two receivers, of which one is three times as fast as the other."""
    application = Application(
        name="uneven",
        components=(
            Component(name="in", kind=Kind.SOURCE, parallelism=2, cpu=1e-5),
            Component(name="out", kind=Kind.SINK, parallelism=2, cpu=1e-3),
        ),
        streams=(Stream(source="in", target="out", grouping=grouping),),
    )
    machines = (Machine(name="a"), Machine(name="b"), Machine(name="slow"), Machine(name="fast", speed=3.0))
    return application, Cluster(name="uneven", machines=machines), Placement((0, 1, 2, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grouping", "expected"), [(Grouping.SHUFFLE, 4000.0), (Grouping.FIELDS, 2000.0), (Grouping.ALL, 1000.0)]
)
def test_only_senders_that_choose_avoid_a_slow_receiver(grouping: Grouping, expected: float) -> None:
    application, cluster, placement = uneven(grouping)
    found = Evaluator(application, cluster).evaluate(placement)
    assert found.throughput_tps == pytest.approx(expected, rel=0.005)
    assert Twin(application, cluster).maximum_tps(placement.slots) == pytest.approx(expected, rel=0.02)


def test_limiting_elements_are_listed_with_their_load() -> None:
    application, cluster, placement = uneven(Grouping.SHUFFLE)
    found = Evaluator(application, cluster).evaluate(placement)
    slow, fast = (next(e for e in found.limits if e.name == name) for name in ("slow", "fast"))
    assert found.even_tps == pytest.approx(2000.0)
    assert slow.utilisation(found.throughput_tps) == pytest.approx(1.0, rel=0.01)
    assert fast.utilisation(found.throughput_tps) == pytest.approx(1.0, rel=0.01)


@pytest.mark.slow
def test_slots_that_are_always_busy_wait_for_cores() -> None:
    """Two cores, a slot that is always busy, and two that are busy for 60 % of the time, sometimes together."""
    application = Application(
        name="crowd",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=1e-5),
            Component(name="long", kind=Kind.SINK, cpu=1e-3),
            Component(name="one", kind=Kind.SINK, cpu=5e-4),
            Component(name="two", kind=Kind.SINK, cpu=5e-4),
        ),
        streams=tuple(Stream(source="in", target=name, grouping=Grouping.FIELDS) for name in ("long", "one", "two")),
    )
    cluster = Cluster(name="crowd", machines=(Machine(name="a", cores=2, slots=3), Machine(name="b")))
    found = Evaluator(application, cluster).evaluate(Placement((3, 0, 1, 2)))
    assert found.even_tps == pytest.approx(1000.0)
    assert found.throughput_tps < 0.95 * found.even_tps
    assert Twin(application, cluster).maximum_tps((3, 0, 1, 2)) == pytest.approx(found.throughput_tps, rel=0.1)


def test_too_many_lanes_are_assumed_to_split_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    application, cluster, placement = uneven(Grouping.SHUFFLE)
    monkeypatch.setattr(saturation, "PAIRS", 3)
    net = Evaluator(application, cluster).rate_net
    found = interpreted(saturated_rates)(net, np.array([placement.slots], dtype=np.int32))
    assert found == pytest.approx([2000.0])


@pytest.mark.parametrize("seed", range(12))
def test_compiled_equals_interpreted(seed: int) -> None:
    one = case(seed)
    placed = np.array([one.placement.slots, one.placement.slots[::-1]], dtype=np.int32)
    with np.errstate(divide="ignore"):
        plain = interpreted(saturated_rates)(one.evaluator.rate_net, placed)
    np.testing.assert_allclose(plain, saturated_rates(one.evaluator.rate_net, placed), rtol=1e-6)
