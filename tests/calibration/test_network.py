"""The network probe measures delays and bandwidths of emulated machines as they are, whatever was described."""

import msgspec
import numpy as np
import pytest

import penstock as ps
from penstock import testing
from penstock.calibration.calibrator import combine
from penstock.calibration.findings import Measured, Unmeasured
from penstock.calibration.network import (
    FEWEST,
    VARIATION,
    Transfer,
    convert_to_means,
    measure_network,
    measure_variation,
)
from penstock.calibration.probe import ProbeResults, measure_transfers, network_flow, probe_slots
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.placement import Hop
from penstock.model.plan import to_plan
from penstock.model.slotgraph import expand_slots
from tests.calibration.observed import observed


def probed(cluster: Cluster) -> tuple[list[Transfer], dict[Hop, tuple[int, ...]]]:
    flow, placement, seconds = network_flow(cluster)
    plan = to_plan(flow.application, cluster, placement, policy="calibration", objective="throughput")
    run = testing.TestCluster(flow, emulate=cluster, plan=plan, capture=False).start()
    run.advance(seconds)
    return measure_transfers(flow, cluster, placement, observed(run.result().records)), dict(placement.routes)


def machines(*mbps: float | None, **fields: object) -> tuple[Machine, ...]:
    return tuple(
        Machine(name=f"m{number}", slots=2, network_mbps=width, **fields)  # type: ignore[arg-type]
        for number, width in enumerate(mbps)
    )


def test_measures_cards_and_delays_that_differ_from_the_description() -> None:
    real = Cluster(name="mesh", machines=machines(100.0, 200.0, 400.0), distances=Distances(other_host_ms=2.5))
    sent, _ = probed(real)
    described = Cluster(name="mesh", machines=machines(1000.0, 1000.0, None))
    found = measure_network(described, sent)
    assert [machine.network_mbps for machine in found.cluster.machines] == [
        pytest.approx(width, rel=1e-3) for width in (100.0, 200.0, 400.0)
    ]
    assert found.cluster.distances.other_host_ms == pytest.approx(2.5, rel=1e-3)
    assert found.cluster.distances.same_slot_ms == pytest.approx(1.0, rel=1e-6)
    assert found.cluster.distances.same_process_ms == pytest.approx(1.5, rel=1e-6)
    assert {one.what for one in found.left} == {"delay, same host"}


def test_measures_the_links_of_a_routed_network() -> None:
    real = ps.cluster("star-8:machines=4,bandwidth_mbps=50,latency_ms=3")
    sent, routes = probed(real)
    described = ps.cluster("star-8:machines=4")
    found = measure_network(described, sent, routes)
    assert len(found.cluster.links) == 4
    for link in found.cluster.links:  # frames of both ways may meet on one
        assert link.bandwidth_mbps == pytest.approx(50.0, rel=0.03)
        assert link.latency_ms == pytest.approx(3.0, rel=0.01)


def test_two_machines_leave_their_cards_apart_as_described() -> None:
    real = Cluster(name="two", machines=machines(100.0, 400.0))
    found = measure_network(real, probed(real)[0])
    assert [machine.network_mbps for machine in found.cluster.machines] == [
        pytest.approx(100.0, rel=1e-3),
        pytest.approx(400.0, rel=1e-3),
    ]
    assert {one.what for one in found.left} >= {"bandwidth of m0", "bandwidth of m1"}


def test_a_card_keeps_the_ratio_of_what_it_receives_to_what_it_sends() -> None:
    real = Cluster(name="mesh", machines=machines(100.0, 200.0, 400.0, receive_mbps=50.0))
    described = Cluster(
        name="mesh",
        machines=tuple(
            msgspec.structs.replace(m, network_mbps=2 * (m.network_mbps or 0), receive_mbps=100.0)
            for m in real.machines
        ),
    )
    found = measure_network(described, probed(real)[0])
    assert [machine.card_mbps for machine in found.cluster.machines] == [
        pytest.approx((width, 50.0), rel=1e-3) for width in (100.0, 200.0, 400.0)
    ]


def test_a_card_that_is_never_the_limit_stays_unlimited() -> None:
    real = Cluster(name="two", machines=machines(None, None))
    found = measure_network(real, probed(real)[0])
    assert [machine.network_mbps for machine in found.cluster.machines] == [None, None]
    assert "not slower" in next(one.why for one in found.left if one.what == "bandwidth of m0")


def test_sends_within_and_between_processes() -> None:
    cluster = Cluster(
        name="c",
        machines=(Machine(name="a", slots=4, processes=2), msgspec.structs.replace(machines(None)[0], slots=1)),
    )
    assert probe_slots(cluster) == ([0, 4], [0, 1, 3, 4])


def timed(delay: float, variation: float, repeats: int, seed: int = 0) -> tuple[Cluster, list[Transfer]]:
    """Times of single tuples between three machines of 80 Mbit/s, as a probe would have them."""
    cluster = Cluster(name="mesh", machines=machines(80.0, 80.0, 80.0), distances=Distances(other_host_ms=1e3 * delay))
    rng, spread, sent = np.random.default_rng(seed), np.sqrt(np.log1p(variation**2)), []
    for source, target in ((a, b) for a in (0, 2, 4) for b in range(6)):
        for size in (32.0, 2_048.0, 16_384.0):
            far = source // 2 != target // 2
            travel = delay * np.exp(spread * rng.standard_normal(repeats) - spread**2 / 2) if far else 0.001
            times = np.broadcast_to(travel + (2 * size * 1e-7 if far else 0.0), repeats)
            sent.append(Transfer(source, target, size, float(np.median(times)), repeats, tuple(times.tolist())))
    return cluster, sent


@pytest.mark.parametrize("variation", [0.0, 0.1, 0.3, 0.8])
def test_recovers_how_delays_vary(variation: float) -> None:
    """Within four standard errors of the estimate from quartiles."""
    cluster, sent = timed(0.002, variation, repeats=200)
    found = measure_variation(cluster, sent)
    assert isinstance(found, Measured)
    assert found.count == 12 * 3 * 200
    assert found.value == pytest.approx(variation, abs=4 * found.spread + 1e-9)
    assert found.spread < 0.02


@pytest.mark.parametrize("variation", [0.0, 0.1, 0.3])
def test_recovers_how_delays_of_links_vary_and_their_means(variation: float) -> None:
    """Two links of 1 ms a way; what their times add up to is nearly lognormal, so within 3 % of it."""
    cluster = ps.cluster("star-8:machines=3,bandwidth_mbps=80,latency_ms=1")
    placement = network_flow(cluster)[1]
    slots, spread = expand_slots(cluster), np.sqrt(np.log1p(variation**2))
    rng, sent = np.random.default_rng(2), []
    for (_, source, target), links in placement.routes.items():
        for size in (32.0, 16_384.0):
            drawn = 1e-3 * np.exp(spread * rng.standard_normal((2_000, len(links))) - spread**2 / 2)
            times = drawn.sum(axis=1) + len(links) * size * 1e-7
            ends = int(slots.first[source]), int(slots.first[target])
            sent.append(Transfer(*ends, size, float(np.median(times)), len(times), tuple(times.tolist())))
    routes = dict(placement.routes)
    found = measure_variation(cluster, sent, routes)
    assert isinstance(found, Measured)
    assert found.value == pytest.approx(variation, rel=0.03, abs=1e-9)
    means = measure_network(cluster, convert_to_means(cluster, sent, found.value, routes), routes).cluster
    used = {link for links in routes.values() for link in links}
    assert [means.links[link].latency_ms for link in used] == pytest.approx([1.0] * len(used), rel=0.01)


def test_machines_that_are_further_apart_than_others_are_no_variation() -> None:
    cluster, sent = timed(0.002, 0.1, repeats=200)
    far = [
        one._replace(seconds=one.seconds + 0.001, times=tuple(0.001 + time for time in one.times))
        if {one.source // 2, one.target // 2} == {0, 2}
        else one
        for one in sent
    ]
    found = measure_variation(cluster, far)
    assert isinstance(found, Measured)
    assert found.value == pytest.approx(0.1 * 0.002 / 0.00233, rel=0.1)  # the same deviation over a longer mean


def test_tuples_that_the_host_held_up_hardly_count() -> None:
    cluster, sent = timed(0.002, 0.2, repeats=200)
    late = [one._replace(times=(*one.times[:-10], *(0.5 + time for time in one.times[-10:]))) for one in sent]
    found = measure_variation(cluster, late)
    assert isinstance(found, Measured)
    assert found.value == pytest.approx(0.2, rel=0.12)  # where the standard deviation would be 50 times the mean
    assert np.std([time for one in late for time in one.times]) > 0.1


def test_clock_errors_above_the_delays_prevent_a_variation() -> None:
    cluster, sent = timed(1e-5, 0.2, repeats=50)
    rng = np.random.default_rng(1)
    off = [one._replace(times=tuple(time + 0.01 * rng.standard_normal() for time in one.times)) for one in sent]
    ahead = [one._replace(seconds=one.seconds - 1.0, times=tuple(time - 1.0 for time in one.times)) for one in sent]
    for wrong in (off, ahead):
        found = measure_variation(cluster, wrong)
        assert found == Unmeasured(what=VARIATION, why="clock errors exceed the delays")


def test_too_few_tuples_prevent_a_variation() -> None:
    cluster, sent = timed(0.002, 0.2, repeats=FEWEST)
    near = [one for one in sent if one.source // 2 == one.target // 2]
    found = measure_variation(cluster, near)
    assert found == Unmeasured(what=VARIATION, why=f"only 0 tuples went to another host, at least {FEWEST} are needed")


def test_variation_is_in_the_costs_of_real_machines_and_left_on_emulated_ones() -> None:
    cluster, sent = timed(0.002, 0.3, repeats=200)
    flow, placement, _ = network_flow(cluster)
    plan = to_plan(flow.application, cluster, placement, policy="calibration", objective="throughput")
    run = testing.TestCluster(flow, emulate=cluster, plan=plan, capture=False).start()
    run.advance(3.0)
    seen, probe = observed(run.result().records), ProbeResults(sent, {}, [], [], 0.0)
    real = combine(flow.application, cluster, seen._replace(emulated=False), probe)
    assert real.costs.delay_variation == pytest.approx(0.3, rel=0.07)
    assert real.costs.delay_variation in [one.value for one in real.measured if one.what == VARIATION]
    assert real.cluster.distances.other_host_ms == pytest.approx(2.0, rel=0.015)  # the mean; the median is 1.92
    assert real.cluster.distances.same_host_ms == pytest.approx(1.0)  # which does not vary
    emulated = combine(flow.application, cluster, seen, probe)
    assert emulated.costs.delay_variation == 0.0
    assert VARIATION not in {one.what for one in emulated.measured}
    assert "constant" in next(one.why for one in emulated.left if one.what == VARIATION)
    alone = combine(flow.application, cluster, seen._replace(emulated=False), None)
    assert "no probe" in next(one.why for one in alone.left if one.what == VARIATION)
