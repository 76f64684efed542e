"""The network probe measures delays and bandwidths of emulated machines as they are, whatever was described."""

import msgspec
import pytest

import penstock as ps
from penstock import testing
from penstock.control.calibration.network import Sent, measure_network
from penstock.control.calibration.probe import ends, network_flow, sent_between
from penstock.model.cluster import Cluster, Distances, Machine
from penstock.model.placement import Hop
from penstock.model.plan import to_plan
from tests.control.calibration.observed import observed


def probed(cluster: Cluster) -> tuple[list[Sent], dict[Hop, tuple[int, ...]]]:
    flow, placement, seconds = network_flow(cluster)
    plan = to_plan(flow.application, cluster, placement, policy="calibration", objective="throughput")
    run = testing.TestCluster(flow, emulate=cluster, plan=plan, capture=False).start()
    run.advance(seconds)
    return sent_between(flow, cluster, placement, observed(run.result().records)), dict(placement.routes)


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


def test_a_card_that_is_never_the_limit_stays_unlimited() -> None:
    real = Cluster(name="two", machines=machines(None, None))
    found = measure_network(real, probed(real)[0])
    assert [machine.network_mbps for machine in found.cluster.machines] == [None, None]
    assert "no slower" in next(one.why for one in found.left if one.what == "bandwidth of m0")


def test_sends_within_and_between_processes() -> None:
    cluster = Cluster(
        name="c",
        machines=(Machine(name="a", slots=4, processes=2), msgspec.structs.replace(machines(None)[0], slots=1)),
    )
    assert ends(cluster) == ([0, 4], [0, 1, 3, 4])
