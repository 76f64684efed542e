from penstock.model.cluster import Machine
from penstock.model.topology import Component, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from tests.policies.cases import chain, cluster, equal_machines, machines_of, placed, tata_cases
from tests.shared_data import needs_shared


@needs_shared
def test_equals_the_authors_storm_in_all_cases_with_machines_in_their_order() -> None:
    # their order of the machines of one host is arbitrary, so it is read from their placement
    for view, theirs in tata_cases():
        seen = dict.fromkeys(machines_of(view, theirs["storm"]).tolist())
        order = [*seen, *(machine for machine in range(view.slots.machines) if machine not in seen)]
        listed = cluster(*(view.cluster.machines[machine] for machine in order))
        number = [slot for m in order for slot in range(view.slots.first[m], view.slots.first[m + 1])]
        ours = placed("round-robin:order=listed", PlacementView(view.topology, listed))
        assert [number[slot] for slot in ours] == theirs["storm"]


@needs_shared
def test_equals_the_authors_storm_if_every_host_has_one_machine() -> None:
    alone = [(view, theirs) for view, theirs in tata_cases() if view.slots.host[-1] + 1 == view.slots.machines]
    assert len(alone) > 100
    for view, theirs in alone:
        assert placed("round-robin:order=listed", view) == theirs["storm"]


def test_takes_the_first_slot_of_every_machine_before_any_second_one() -> None:
    machines = cluster(Machine(name="a", slots=2), Machine(name="b"), Machine(name="c", slots=3))
    assert placed("round-robin", PlacementView(chain(3, 4), machines)) == [0, 2, 3, 1, 4, 5, 0]


def test_passes_over_a_slot_without_memory() -> None:
    machines = cluster(Machine(name="a", memory_mb=10.0), Machine(name="b", memory_mb=25.0), Machine(name="c"))
    view = PlacementView(chain(2, 4, memory_mb=10.0), machines)
    assert placed("round-robin", view) == [0, 1, 2, 1, 2, 2]


def test_places_a_pinned_task_before_free_tasks_can_fill_its_machine() -> None:
    pinned = Component(name="c1", kind=Kind.SINK, memory_mb=30.0, pinned="m0")
    topology = Topology(
        name="pinned",
        components=(Component(name="c0", kind=Kind.SOURCE, parallelism=3, memory_mb=10.0), pinned),
        streams=(Stream(source="c0", target="c1"),),
    )
    view = PlacementView(topology, equal_machines(2, memory_mb=35.0))
    assert machines_of(view, placed("round-robin", view)).tolist() == [1, 1, 1, 0]


def test_deals_the_tasks_of_a_pinned_component_to_all_slots_of_its_machine() -> None:
    source = Component(name="c0", kind=Kind.SOURCE, parallelism=4, cpu=1.0, pinned="m1")
    topology = Topology(
        name="pinned",
        components=(source, Component(name="c1", kind=Kind.SINK, parallelism=2)),
        streams=(Stream(source="c0", target="c1"),),
    )
    assert placed("round-robin", PlacementView(topology, equal_machines(2, slots=2))) == [2, 3, 2, 3, 0, 2]


def test_i_storm_starts_with_the_host_that_has_most_slots_on_all_its_machines() -> None:
    machines = cluster(
        Machine(name="a", slots=2),  # slots 0 and 1, alone on its host
        Machine(name="b", slots=1, host="rack"),  # slot 2
        Machine(name="c", slots=2, host="rack"),  # slots 3 and 4: three on the host
        Machine(name="d", slots=1),  # slot 5
    )
    assert placed("i-storm", PlacementView(chain(4, 4), machines)) == [2, 0, 5, 3, 1, 4, 2, 0]


def test_i_storm_takes_hosts_of_one_size_as_listed() -> None:
    view = PlacementView(chain(2, 4), equal_machines(3, slots=2))
    assert placed("i-storm", view) == placed("round-robin", view) == [0, 2, 4, 1, 3, 5]
