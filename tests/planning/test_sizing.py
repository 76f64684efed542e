"""Sizes against exhaustive search on small cases, and their claims against the twin."""

from itertools import product

import numpy as np
import pytest

from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import InvalidInput
from penstock.model.parallelism import bounds, parallelism_of, resized
from penstock.model.placement import Infeasible
from penstock.model.topology import Application, Component, Grouping, Kind, Stream
from penstock.planning.planner import Planner
from penstock.planning.sizing import Sizer
from penstock.policies.api import Sized
from penstock.policies.checks import violations
from penstock.sim.events import Twin
from penstock.workloads.applications import application
from penstock.workloads.clusters import cluster

SEEDS = range(8)
CASES = pytest.mark.parametrize("seed", SEEDS)


def random_case(seed: int, most: int = 3) -> tuple[Application, Cluster]:
    """Return a chain or a fork of four components, on two or three equal or unequal machines."""
    rng = np.random.default_rng(seed)
    fork = bool(rng.integers(2))
    cpu = rng.uniform(0.002, 0.02, 4).round(4)
    names = ("in", "left", "right", "out")
    kinds = (Kind.SOURCE, Kind.OPERATOR, Kind.OPERATOR, Kind.SINK)
    pairs = [(0, 1), (0, 2), (1, 3), (2, 3)] if fork else [(0, 1), (1, 2), (2, 3)]
    app = Application(
        name="random",
        components=tuple(
            Component(name=name, kind=kind, cpu=float(cost), max_parallelism=1 if kind is Kind.SOURCE else most)
            for name, kind, cost in zip(names, kinds, cpu, strict=True)
        ),
        streams=tuple(
            Stream(source=names[a], target=names[b], selectivity=float(rng.choice([0.5, 1.0, 2.0]))) for a, b in pairs
        ),
    )
    machines = tuple(
        Machine(name=f"m{n}", cores=cores, slots=cores, speed=float(rng.choice([1.0, 2.0])))
        for n, cores in enumerate(rng.integers(1, 4, int(rng.integers(2, 4))).tolist())
    )
    return app, Cluster(name="random", machines=machines)


def found(answer: Sized | Infeasible) -> Sized:
    assert isinstance(answer, Sized), answer
    return answer


def all_sizes(sizer: Sizer) -> list[Sized]:
    """Return every parallelism within the bounds on every number of machines, placed by the sizer's policy."""
    limits = sizer.bounds
    numbers = [range(limits[name].least, limits[name].most + 1) for name in parallelism_of(sizer.topology)]
    names = list(parallelism_of(sizer.topology))
    tried = [
        sizer._sized(machines, dict(zip(names, tasks, strict=True)))
        for machines in range(1, len(sizer.cluster.machines) + 1)
        for tasks in product(*numbers)
    ]
    return [one for one in tried if isinstance(one, Sized)]


@pytest.mark.slow
@CASES
def test_finds_the_least_machines(seed: int) -> None:
    app, machines = random_case(seed)
    sizer = Sizer(app, machines)
    everything, highest = all_sizes(sizer), found(sizer.highest_rate())
    for share in (0.2, 0.5, 0.9):
        rate = share * highest.throughput_tps
        size = found(sizer.for_rate(rate))
        enough = [one for one in everything if one.throughput_tps >= rate * (1 - 1e-9)]
        assert size.throughput_tps >= rate * (1 - 1e-9)
        assert size.machines == min(one.machines for one in enough)


@pytest.mark.slow
def test_finds_the_highest_rate_in_most_cases() -> None:
    """The search changes one or two components at a time, so it may miss a rate that takes three."""
    shares = []
    for seed in SEEDS:
        sizer = Sizer(*random_case(seed))
        top = max(one.throughput_tps for one in all_sizes(sizer))
        shares.append(found(sizer.highest_rate()).throughput_tps / top)
    assert min(shares) > 0.85
    assert sum(share > 0.99 for share in shares) >= len(SEEDS) - 1


@pytest.mark.slow
@CASES
def test_no_task_of_a_size_can_be_removed(seed: int) -> None:
    app, machines = random_case(seed)
    sizer = Sizer(app, machines)
    rate = 0.7 * found(sizer.highest_rate()).throughput_tps
    size = found(sizer.for_rate(rate))
    for name, number in size.parallelism.items():
        if number > 1:
            fewer = sizer._sized(size.machines, {**size.parallelism, name: number - 1})
            assert isinstance(fewer, Infeasible) or fewer.throughput_tps < rate


@pytest.mark.slow
@CASES
def test_the_twin_carries_the_rate_of_a_size(seed: int) -> None:
    app, machines = random_case(seed)
    sizer = Sizer(app, machines)
    highest = found(sizer.highest_rate())
    for size in (highest, found(sizer.for_rate(0.5 * highest.throughput_tps))):
        planner, decision = sizer.decision(size)
        assert violations(planner.view, size.placement) == []
        assert decision.evaluation is not None
        assert decision.evaluation.throughput_tps == pytest.approx(size.throughput_tps)
        carried = Twin(resized(app, size.parallelism), machines).maximum_tps(size.placement.slots)
        assert carried == pytest.approx(size.throughput_tps, rel=0.04)


@CASES
def test_more_rate_never_takes_fewer_machines(seed: int) -> None:
    app, machines = random_case(seed)
    sizer = Sizer(app, machines)
    highest = found(sizer.highest_rate()).throughput_tps
    used = [found(sizer.for_rate(share * highest)).machines for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert used == sorted(used)
    assert found(sizer.for_rate(0.0)).parallelism == dict.fromkeys(parallelism_of(app), 1)


def test_an_impossible_rate_returns_the_highest_found() -> None:
    sizer = Sizer(application("word-count"), cluster("homogeneous-8"))
    highest = found(sizer.highest_rate())
    size = found(sizer.for_rate(10 * highest.throughput_tps))
    assert size.throughput_tps == pytest.approx(highest.throughput_tps, rel=0.02)
    with pytest.raises(InvalidInput, match="rate: expected a number of tuples per second ≥ 0, got -1"):
        sizer.for_rate(-1.0)


def test_places_a_parallelism_on_the_fewest_machines_that_do_not_slow_it_down() -> None:
    app, machines = application("word-count"), cluster("homogeneous-8")
    sizer = Sizer(app, machines)
    everywhere = Planner(app, machines).decide("greedy-sorted").evaluation
    assert everywhere is not None
    size = found(sizer.place(parallelism_of(app)))
    assert size.throughput_tps >= 0.98 * everywhere.throughput_tps
    assert size.machines < everywhere.machines


def test_respects_limits_pins_and_forward_streams() -> None:
    app = Application(
        name="bound",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=0.001, pinned="small"),
            Component(name="a", cpu=0.01),
            Component(name="b", cpu=0.002),
            Component(name="out", kind=Kind.SINK, cpu=0.001, parallelisable=False),
        ),
        streams=(
            Stream(source="in", target="a"),
            Stream(source="a", target="b", grouping=Grouping.FORWARD),
            Stream(source="b", target="out", grouping=Grouping.GLOBAL),
        ),
    )
    machines = Cluster(
        name="two", machines=(Machine(name="small"), *(Machine(name=f"big{n}", cores=4, slots=4) for n in range(2)))
    )
    size = found(Sizer(app, machines).for_rate(250.0))
    assert size.parallelism == {"in": 1, "a": 3, "b": 3, "out": 1}
    planner, _ = Sizer(app, machines).decision(size)
    assert violations(planner.view, size.placement) == []
    limited = found(Sizer(app, machines, most=2).for_rate(250.0))
    assert limited.parallelism["a"] == 2
    assert limited.throughput_tps == pytest.approx(2 / 0.01, rel=0.05)
    assert bounds(app, machines, most=2)["a"].most == 2


def test_unused_machines_of_a_routed_network_still_relay() -> None:
    app = Application(
        name="relayed",
        components=(
            Component(name="in", kind=Kind.SOURCE, cpu=0.001, pinned="left"),
            Component(name="out", kind=Kind.SINK, cpu=0.001, pinned="right"),
        ),
        streams=(Stream(source="in", target="out"),),
    )
    line = Cluster(
        name="line",
        machines=(Machine(name="left"), Machine(name="middle", cores=9), Machine(name="right")),
        links=(
            Link(source="left", target="middle", bandwidth_mbps=10.0),
            Link(source="middle", target="right", bandwidth_mbps=10.0),
        ),
    )
    size = found(Sizer(app, line).for_rate(100.0))
    assert size.placement.slots == (0, 2)
    assert list(size.placement.routes.values()) == [(0, 1)]
