import numpy as np
import pytest

from penstock.model.cluster import Machine
from penstock.model.errors import UnknownMachine
from penstock.model.placement import Constraint
from penstock.model.topology import Component, Kind, Stream, Topology
from penstock.policies import registry
from penstock.policies.api import PlacementView
from tests.policies.cases import chain, cluster, equal_machines, machines_of, placed, refused

FIELD_AND_CLOUD = cluster(
    Machine(name="camera", cores=1, speed=3.0),
    Machine(name="cloud", cores=4, speed=3.8, slots=4),
    Machine(name="gateway", cores=5, speed=3.0, slots=5),
)


def test_puts_all_free_tasks_on_the_machine_with_most_cores_times_speed() -> None:
    source = Component(name="c0", kind=Kind.SOURCE, pinned="camera")
    topology = Topology(
        name="faces",
        components=(source, Component(name="c1", kind=Kind.SINK, parallelism=6, cpu=1.0)),
        streams=(Stream(source="c0", target="c1"),),
    )
    assert placed("cloud-only", PlacementView(topology, FIELD_AND_CLOUD)) == [0, 1, 2, 3, 4, 1, 2]


def test_takes_the_first_of_equal_machines() -> None:
    view = PlacementView(chain(2, 2), equal_machines(3))
    assert placed("cloud-only", view) == [0, 0, 0, 0]


def test_uses_the_named_machine() -> None:
    view = PlacementView(chain(2, 2), FIELD_AND_CLOUD)
    assert set(machines_of(view, placed("cloud-only:machine=gateway", view))) == {2}


def test_an_unknown_machine_is_rejected_with_the_choices() -> None:
    view = PlacementView(chain(2, 2), FIELD_AND_CLOUD)
    with pytest.raises(UnknownMachine, match="no 'moon'; there are camera, cloud, gateway"):
        registry.placement_policy("cloud-only:machine=moon").place(view, np.random.default_rng(0))


def test_refuses_if_the_cloud_is_full_even_if_others_have_room() -> None:
    machines = cluster(Machine(name="cloud", cores=8, memory_mb=25.0), Machine(name="field", memory_mb=1000.0))
    refusal = refused("cloud-only", PlacementView(chain(1, 2, memory_mb=10.0), machines))
    assert (refusal.constraint, refusal.needed) == (Constraint.MEMORY, 10.0)
    assert refusal.available == pytest.approx(5.0)
    assert "c1[1]" in refusal.reason
    assert "'cloud'" in refusal.reason


def test_fills_the_slots_that_have_memory() -> None:
    machines = cluster(Machine(name="cloud", slots=3, slot_memory_mb=20.0, memory_mb=60.0))
    view = PlacementView(chain(1, 5, memory_mb=10.0), machines)
    assert np.bincount(placed("cloud-only", view)).tolist() == [2, 2, 2]
