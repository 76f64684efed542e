"""The compiled and the interpreted event loop have equal results, to the last bit."""

import numpy as np
import pytest

from penstock.model.cluster import Cluster, Machine
from penstock.model.costs import Costs
from penstock.model.kernel import interpreted
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream
from penstock.sim.events import Twin, TwinSpan
from penstock.sim.events.clocks import first_clock, new_clocks, set_clock
from penstock.sim.events.loop import run_events


def application() -> Application:
    services = [
        ServiceTime(),
        ServiceTime(distribution=Distribution.EXPONENTIAL),
        ServiceTime(distribution=Distribution.GAMMA, cv=0.5),
        ServiceTime(distribution=Distribution.LOGNORMAL, cv=0.5),
        ServiceTime(distribution=Distribution.GAMMA, cv=2.0),
    ]
    names = ("in", "a", "b", "c", "out")
    kinds = (Kind.SOURCE, Kind.OPERATOR, Kind.OPERATOR, Kind.OPERATOR, Kind.SINK)
    components = [
        Component(name=name, kind=kind, parallelism=2, cpu=0.002, service=service)
        for name, kind, service in zip(names, kinds, services, strict=True)
    ]
    ways = [
        ("in", "a", Grouping.SHUFFLE), ("in", "b", Grouping.FIELDS), ("a", "c", Grouping.PARTIAL_KEY),
        ("b", "c", Grouping.ALL), ("b", "out", Grouping.LOCAL_OR_SHUFFLE), ("c", "out", Grouping.DIRECT),
    ]  # fmt: skip
    streams = [Stream(source=s, target=t, grouping=g, selectivity=0.7) for s, t, g in ways]
    return Application(name="mixed", components=tuple(components), streams=tuple(streams), rate_tps={"in": 60.0})


def spans(plain: bool, delay_variation: float) -> list[TwinSpan]:
    machines = [Machine(name=f"m{number}", slots=3, cores=2, network_mbps=10.0) for number in range(3)]
    costs = Costs(
        window=3,
        in_flight=20,
        hop_cpu=1e-5,
        send_cpu=1e-5,
        receive_cpu=1e-5,
        move_s=0.1,
        delay_variation=delay_variation,
    )
    run = Twin(application(), Cluster(name="c", machines=tuple(machines)), costs).start(
        [0, 1, 3, 4, 6, 7, 1, 3, 8, 0], seed=4, records=-1.0
    )
    if plain:
        run._loop = interpreted(run_events)
    found = [run.advance(1.5)]
    run.move({4: 2, 7: 8})
    run.fail("m1")
    found.append(run.advance(0.7))
    run.restore("m1")
    found.append(run.advance(1.5))
    return found


@pytest.mark.parametrize("variation", [0.0, 1.5])
def test_compiled_events_equal_interpreted_ones(variation: float) -> None:
    for compiled, plain in zip(spans(False, variation), spans(True, variation), strict=True):
        assert compiled.completed > 0
        assert np.array_equal(compiled.latencies, plain.latencies)
        assert np.array_equal(compiled.edge_transfer_s, plain.edge_transfer_s)
        assert np.array_equal(compiled.busy_s, plain.busy_s)
        assert np.array_equal(compiled.machine_cpu, plain.machine_cpu)
        assert (compiled.lost, compiled.in_flight) == (plain.lost, plain.in_flight)


@pytest.mark.parametrize("leaves", [1, 2, 5, 8, 37])
def test_the_tree_of_clocks_knows_the_earliest_and_of_equal_ones_the_first(leaves: int) -> None:
    clocks, rng = new_clocks(leaves), np.random.default_rng(leaves)
    change, first = interpreted(set_clock), interpreted(first_clock)
    plain = np.full(leaves, np.inf)
    for _ in range(400):
        leaf, time = int(rng.integers(leaves)), float(rng.choice([1.0, 2.0, 3.0, 4.0, np.inf]))
        plain[leaf] = time
        change(clocks, leaf, time)
        assert first(clocks) == np.argmin(plain)
        assert clocks[1] == plain.min()
