"""The twin's maximum throughput of a placement, and measured costs."""

import numpy as np
import pytest
from benchmarks.saturation import case

from penstock.model.cluster import Cluster, Distances, Link, Machine
from penstock.model.costs import ComponentCosts, Costs, StreamCosts
from penstock.model.errors import InvalidInput
from penstock.model.placement import Hop
from penstock.model.topology import Application, Component, Distribution, Grouping, Kind, ServiceTime, Stream
from penstock.sim.events import Twin
from tests.sim.events.cases import EXPONENTIAL, SERVICE, line, machines


@pytest.mark.slow
def test_the_maximum_rate_of_a_chain_is_that_of_its_slowest_component() -> None:
    application = line(1.0, ServiceTime(), ServiceTime())
    assert Twin(application, machines((1, 1), (1, 1), (1, 1))).maximum_tps([0, 1, 2]) == pytest.approx(
        1.0 / SERVICE, rel=0.01
    )
    assert Twin(application, machines((1, 1), (1, 1))).maximum_tps([0, 1, 1]) == pytest.approx(0.5 / SERVICE, rel=0.01)
    assert Twin(application, machines((1, 1), (2, 1))).maximum_tps([0, 1, 2]) == pytest.approx(0.5 / SERVICE, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_finer_resolution_finds_a_maximum_more_precisely(seed: int) -> None:
    """A sink that takes random times, and whose true maximum is known."""
    twin = Twin(line(1.0, ServiceTime(), EXPONENTIAL), machines((1, 1), (1, 1), (1, 1)))
    assert twin.maximum_tps([0, 1, 2], seed=seed, resolution=0.004) == pytest.approx(1.0 / SERVICE, rel=0.004)


def test_a_resolution_is_a_fraction() -> None:
    twin = Twin(line(1.0, ServiceTime(), ServiceTime()), machines((1, 1), (1, 1), (1, 1)))
    with pytest.raises(InvalidInput, match="resolution: expected a number between 0 and 1"):
        twin.maximum_tps([0, 1, 2], resolution=0.0)


def test_back_pressure_finds_the_rate_of_machines_that_share_shuffled_work() -> None:
    """Shuffle follows credits: a slow task gets less, so that both are fully used."""
    application = line(1.0, EXPONENTIAL, parallelism=2)
    fast, slow = Machine(name="fast", speed=3.0), Machine(name="slow")
    cluster = Cluster(name="uneven", machines=(fast, slow, Machine(name="from")))
    even = 2.0 / SERVICE  # if each gets half, the slow one is the limit
    assert 1.5 * even < Twin(application, cluster, Costs(window=64)).maximum_tps([2, 0, 1]) <= 1.02 * 2.0 * even


@pytest.mark.slow
def test_a_placement_may_carry_less_after_an_overload_than_before() -> None:
    """Five lanes share a card: four carry an eighth of the tuples each, 1,000 bytes long, and one half, 100 bytes long.

    The card is used up at 550 bytes per source tuple. Under overload, every lane gets a fifth of the tuples on it.
    """
    application = Application(
        name="collapse",
        components=(
            Component(name="in", kind=Kind.SOURCE, parallelism=4, cpu=1e-6),
            Component(name="work", kind=Kind.OPERATOR, parallelism=2, cpu=1e-6),
            Component(name="out", kind=Kind.SINK, cpu=1e-6),
        ),
        streams=(
            Stream(source="in", target="work", tuple_bytes=1000.0),
            Stream(source="work", target="out", tuple_bytes=100.0),
        ),
    )
    free, limited = Machine(name="free"), Machine(name="limited", network_mbps=1000.0, receive_mbps=8.0)
    twin = Twin(application, Cluster(name="two", machines=(free, limited)), Costs(window=128))
    before, after = 1e6 / 550, 5 * 1e6 / 4100
    slots = [0, 0, 0, 0, 0, 1, 1]
    assert twin.maximum_tps(slots) == pytest.approx(before, rel=0.02)
    run = twin.start(slots, rates={"in": 0.95 * before})
    assert run.advance(20.0).throughput_tps == pytest.approx(0.95 * before, rel=0.02)
    run.scale(2.0)
    run.advance(20.0)
    run.scale(1.0)
    run.advance(20.0)
    assert run.advance(20.0).throughput_tps == pytest.approx(after, rel=0.03)


def test_sources_that_share_a_card_fill_it_in_their_ratio() -> None:
    """The source with a single channel falls behind unless the other is held back evenly."""
    application = Application(
        name="two",
        components=(
            Component(name="few", kind=Kind.SOURCE, cpu=1e-5),
            Component(name="many", kind=Kind.SOURCE, cpu=1e-5),
            Component(name="one", kind=Kind.SINK, cpu=1e-5),
            Component(name="all", kind=Kind.SINK, parallelism=4, cpu=1e-5),
        ),
        streams=(
            Stream(source="few", target="one", tuple_bytes=100.0),
            Stream(source="many", target="all", grouping=Grouping.DIRECT, tuple_bytes=2_500.0),
        ),
    )
    carried = Twin(application, machines((1, 1), (1, 1), network_mbps=10.0)).maximum_tps([0, 0, 1, 1, 1, 1, 1])
    assert carried == pytest.approx(2 * 10e6 / 8 / 2_600.0, rel=0.01)


@pytest.mark.slow
def test_a_saturated_source_has_priority_over_the_other_tasks_of_its_slot() -> None:
    """Its backlog is the oldest: tuples sent to a task of its slot wait, and senders choose the other receiver."""
    application = Application(
        name="beside",
        components=(
            Component(name="in", kind=Kind.SOURCE, parallelism=2, cpu=1e-3),
            Component(name="out", kind=Kind.SINK, parallelism=2, cpu=2.5e-4),
        ),
        streams=(Stream(source="in", target="out"),),
    )
    twin = Twin(application, machines((1, 1), (1, 1), (1, 1)))
    assert twin.saturated_tps([0, 1, 0, 2]) == pytest.approx(2000.0, rel=0.01)
    assert twin.maximum_tps([0, 1, 0, 2]) == pytest.approx(2000.0, rel=0.01)


@pytest.mark.slow
def test_a_maximum_is_not_measured_while_tasks_process_a_backlog() -> None:
    """In two spans equal numbers of source tuples start and complete, while an operator still has a backlog."""
    one = case(1109)
    assert one.twin_tps == pytest.approx(one.evaluator.evaluate(one.placement).even_tps, rel=0.02)


def test_an_application_without_costs_has_no_limit() -> None:
    application = line(1.0, ServiceTime(), cpu=0.0)
    assert Twin(application, machines((1, 1))).maximum_tps([0, 0]) == np.inf


def test_measured_costs_replace_declared_ones() -> None:
    measured = Costs(
        components={"out": ComponentCosts(cpu=0.004, service=ServiceTime(distribution=Distribution.GAMMA, cv=0.1))},
        streams={"in->out": StreamCosts(selectivity=2.0, tuple_bytes=10.0)},
    )
    span = Twin(line(20.0, ServiceTime()), machines((1, 1), (1, 1)), measured).start([0, 1], seed=1).advance(100.0)
    assert span.component_processing_s["out"] == pytest.approx(0.004, rel=0.02)
    assert span.stream_tuples["in->out"] == pytest.approx(2 * span.emitted, abs=3)


def test_a_frame_takes_its_bytes_on_every_card() -> None:
    """1,000 bytes at 1 Mbps take 8 ms on each of two cards, then the delay."""
    distances = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=5.0)
    application = line(1.0, ServiceTime(), cpu=0.0, tuple_bytes=900.0)
    cluster = machines((1, 1), (1, 1), network_mbps=1.0, distances=distances)
    span = Twin(application, cluster, Costs(frame_bytes=100.0)).start([0, 1], seed=1).advance(60.0)
    assert np.median(span.latencies) == pytest.approx(0.008 + 0.005 + 0.008, abs=1e-9)


def test_a_card_may_receive_at_another_rate_than_it_sends() -> None:
    """1,000 bytes take 8 ms to leave at 1 Mbps, and 2 ms to arrive at 4."""
    distances = Distances(same_slot_ms=0.0, same_process_ms=0.0, same_host_ms=0.0, other_host_ms=5.0)
    both = tuple(Machine(name=name, network_mbps=1.0, receive_mbps=4.0) for name in ("m0", "m1"))
    application = line(1.0, ServiceTime(), cpu=0.0, tuple_bytes=1000.0)
    span = (
        Twin(application, Cluster(name="two", machines=both, distances=distances)).start([0, 1], seed=1).advance(60.0)
    )
    assert np.median(span.latencies) == pytest.approx(0.008 + 0.005 + 0.002, abs=1e-9)


def star(third: float = 10.0) -> Cluster:
    links = (
        Link(source="m0", target="hub", bandwidth_mbps=10.0, latency_ms=1.0),
        Link(source="hub", target="m1", bandwidth_mbps=10.0, latency_ms=2.0),
        Link(source="m0", target="m1", bandwidth_mbps=third, latency_ms=7.0),
    )
    bare = tuple(Machine(name=name) for name in ("m0", "m1"))
    return Cluster(name="star", machines=bare, switches=("hub",), links=links)


def test_frames_take_the_planned_route_or_the_widest_path() -> None:
    application = line(1.0, ServiceTime(), cpu=0.0, tuple_bytes=1000.0)
    direct = Twin(application, star(20.0)).start([0, 1], seed=1).advance(60.0)
    assert np.median(direct.latencies) == pytest.approx(0.0004 + 0.007, abs=1e-9)
    routed = Twin(application, star(20.0)).start([0, 1], seed=1, routes={Hop(0, 0, 1): (0, 1)}).advance(60.0)
    assert np.median(routed.latencies) == pytest.approx(2 * 0.0008 + 0.003, abs=1e-9)
    assert Twin(application, star()).maximum_tps([0, 1]) == pytest.approx(10e6 / 8000, rel=0.02)


def test_a_network_without_a_path_is_rejected() -> None:
    bare = tuple(Machine(name=name) for name in ("m0", "m1", "m2"))
    cluster = Cluster(name="cut", machines=bare, links=(Link(source="m0", target="m1", bandwidth_mbps=1.0),))
    with pytest.raises(InvalidInput, match="no path from 'm0' to 'm2'; add a link"):
        Twin(line(1.0, ServiceTime()), cluster).start([0, 2])
