import numpy as np
import pytest

from penstock.estimate.energy import Energy, Power, energy
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import InvalidInput
from penstock.model.instance import Instance
from penstock.model.placement import Hop, Placement
from penstock.model.topology import Component, Kind, Stream, Topology

POWER = Power(cpu_watts=10.0, send_joules_a_megabit=3.0, receive_joules_a_megabit=1.0)


def camera() -> Topology:
    """A source tuple takes 1 + 4 core-seconds, and 2 Mbit between the two components."""
    return Topology(
        name="camera",
        components=(Component(name="eye", kind=Kind.SOURCE, cpu=1.0), Component(name="brain", kind=Kind.SINK, cpu=4.0)),
        streams=(Stream(source="eye", target="brain", tuple_bytes=2e6 / 8),),
    )


def machines() -> tuple[Machine, ...]:
    return (Machine(name="a", speed=2.0), Machine(name="b", speed=5.0), Machine(name="c", cores=2, speed=4.0, slots=2))


def line(switches: tuple[str, ...] = ()) -> Cluster:
    """`a` to `b` to `c`; the second link is described from its far end."""
    links = (
        Link(source="a", target="b", bandwidth_mbps=1.0),
        *(Link(source=end, target="b", bandwidth_mbps=1.0) for end in ("c",)),
    )
    return Cluster(
        name="line", machines=tuple(m for m in machines() if m.name not in switches), switches=switches, links=links
    )


def drawn(cluster: Cluster, placement: Placement) -> Energy:
    instance = Instance(camera(), cluster)
    return energy(instance.tasks, instance.slots, cluster, placement, POWER)


def test_adds_up_processors_and_radios_of_a_worked_example() -> None:
    found = drawn(line(), Placement((0, 2), {Hop(0, 0, 2): (0, 1)}))
    assert found.processing.tolist() == pytest.approx([10 * 1 / 2, 0.0, 10 * 4 / 8])
    assert found.sending.tolist() == pytest.approx([3 * 2.0, 3 * 2.0, 0.0])  # `b` relays what `a` sends
    assert found.receiving.tolist() == pytest.approx([0.0, 2.0, 2.0])
    assert found.joules == pytest.approx(5 + 5 + 12 + 4)
    assert found.tuples_a_joule == pytest.approx(1 / 26)


def test_a_switch_on_the_route_does_not_count() -> None:
    found = drawn(line(switches=("b",)), Placement((0, 1), {Hop(0, 0, 1): (0, 1)}))
    assert found.sending.tolist() == pytest.approx([6.0, 0.0])
    assert found.receiving.tolist() == pytest.approx([0.0, 2.0])


def test_a_mesh_has_no_relays() -> None:
    found = drawn(Cluster(name="mesh", machines=machines()), Placement((0, 2)))
    assert found.sending.tolist() == pytest.approx([6.0, 0.0, 0.0])
    assert found.receiving.tolist() == pytest.approx([0.0, 0.0, 2.0])


def test_tasks_on_one_machine_need_no_radio() -> None:
    found = drawn(line(), Placement((1, 1)))
    assert found.joules == pytest.approx(10 * 5 / 5)


def test_efficiency_is_infinite_without_costs() -> None:
    assert Energy(np.zeros(2), np.zeros(2), np.zeros(2)).tuples_a_joule == np.inf


def test_rejects_negative_power() -> None:
    with pytest.raises(InvalidInput, match="cpu_watts"):
        Power(cpu_watts=-1.0)
