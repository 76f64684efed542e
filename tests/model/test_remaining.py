"""The remaining capacity of a cluster."""

import numpy as np
import pytest

from penstock.model.book import BANDWIDTH, CPU, RECEIVING, SENDING
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.remaining import add_up, capacities, remaining, scaled

ROUTED = Cluster(
    name="routed",
    machines=(
        Machine(name="a", cores=4, speed=2.0, slots=4, memory_mb=100.0, resources={"gpu": 6.0}),
        Machine(name="b", speed=3.0),
        Machine(name="c", speed=1.0),
    ),
    links=(Link(source="a", target="b", bandwidth_mbps=10.0), Link(source="b", target="c", bandwidth_mbps=5.0)),
)
MESH = Cluster(name="mesh", machines=(Machine(name="a", network_mbps=8.0), Machine(name="b")))


def test_lists_every_kind_of_capacity() -> None:
    assert capacities(ROUTED)["a"] == {CPU: 8.0, "gpu": 6.0}
    assert capacities(ROUTED)["b--c"] == {BANDWIDTH: 5e6}
    assert capacities(MESH) == {"a": {CPU: 1.0, SENDING: 8e6, RECEIVING: 8e6}, "b": {CPU: 1.0}}


def test_leaves_the_capacity_that_is_not_used() -> None:
    taken = {"a": {CPU: 3.0, "gpu": 2.0}, "a--b": {BANDWIDTH: 4e6}}
    left = capacities(remaining(ROUTED, taken, held_mb={"a": 30.0}))
    assert left["a"] == pytest.approx({CPU: 5.0, "gpu": 4.0})
    assert left["a--b"] == pytest.approx({BANDWIDTH: 6e6})
    assert left["b"] == capacities(ROUTED)["b"]
    assert remaining(ROUTED, taken, held_mb={"a": 30.0}).machines[0].memory_mb == 70.0


def test_a_thread_keeps_its_speed_if_whole_cores_are_free() -> None:
    half = remaining(ROUTED, {"a": {CPU: 4.0}}).machines[0]
    assert (half.cores, half.speed) == (2, 2.0)
    odd = remaining(ROUTED, {"a": {CPU: 3.0}}).machines[0]
    assert odd.cores == 3
    assert odd.speed == pytest.approx(5.0 / 3)


def test_a_fully_used_capacity_leaves_almost_nothing() -> None:
    left = remaining(ROUTED, {"a": {CPU: 8.0, "gpu": 6.0}, "b--c": {BANDWIDTH: 5e6 * (1 - 1e-12)}})
    assert 0 < left.machines[0].cpu < 1e-11
    assert left.machines[0].resources == {"gpu": 0.0}
    assert left.links[1].bandwidth_mbps == 0.0


def test_a_failed_machine_neither_works_nor_relays() -> None:
    left = remaining(ROUTED, {}, failed=["b"])
    assert [machine.name for machine in left.machines] == ["a", "c"]
    assert left.switches == ("b",)
    assert [link.bandwidth_mbps for link in left.links] == [0.0, 0.0]
    assert left.routed


def test_a_failed_link_carries_nothing() -> None:
    assert [link.bandwidth_mbps for link in remaining(ROUTED, {}, failed=["a--b"]).links] == [0.0, 5.0]


def test_a_failed_machine_of_a_mesh_is_left_out() -> None:
    assert [machine.name for machine in remaining(MESH, {}, failed=["a"]).machines] == ["b"]


def test_a_card_keeps_its_unused_capacity_in_each_direction() -> None:
    left = remaining(MESH, {"a": {SENDING: 2e6, RECEIVING: 5e6}})
    assert left.machines[0].card_mbps == pytest.approx((6.0, 3.0))
    assert left.machines[1].card_mbps is None
    full = remaining(left, {"a": {RECEIVING: 3e6}}).machines[0].card_mbps
    assert full is not None
    assert full[0] == pytest.approx(6.0)
    assert 0 < full[1] < 1e-11


def test_an_unused_card_is_unchanged() -> None:
    assert remaining(MESH, {}) == MESH
    slow = Cluster(name="mesh", machines=(Machine(name="a", network_mbps=8.0, receive_mbps=2.0),))
    assert remaining(slow, {}) == slow
    assert remaining(slow, {"a": {SENDING: 6e6}}).machines[0].receive_mbps is None


def test_rejects_a_cluster_without_machines() -> None:
    with pytest.raises(ValueError, match="no machine is left"):
        remaining(MESH, {}, failed=["a", "b"])


def test_scales_speeds_and_bandwidths() -> None:
    half = scaled(ROUTED, {"b": 0.5, "a--b": 2.0})
    assert [machine.speed for machine in half.machines] == [2.0, 1.5, 1.0]
    assert [link.bandwidth_mbps for link in half.links] == [20.0, 5.0]


def test_using_capacity_in_parts_or_at_once_leaves_the_same() -> None:
    seed = 4
    print(f"seed {seed}")
    rng = np.random.default_rng(seed)
    for _ in range(20):
        one, two = ({"a": {CPU: float(rng.random())}, "a--b": {BANDWIDTH: float(rng.random()) * 1e6}} for _ in "12")
        at_once = capacities(remaining(ROUTED, add_up([(one, 1.0), (two, 2.0)])))
        doubled = add_up([(two, 2.0)])
        in_parts = capacities(remaining(remaining(ROUTED, one), doubled))
        for element in at_once:
            assert in_parts[element] == pytest.approx(at_once[element])
