import numpy as np
import pytest

from penstock.model.cluster import Machine
from penstock.model.placement import Constraint
from penstock.model.topology import Component, Grouping, Kind, Stream, Topology
from penstock.policies.api import PlacementView
from tests.policies.cases import chain, cluster, equal_machines, machines_of, placed, refused, tata_cases
from tests.shared_data import needs_shared

BOTH = pytest.mark.parametrize("policy", ["flink", "flink-spread"])


def pinned_sink(width: int, memory_mb: float = 0.0) -> Topology:
    return Topology(
        name="pinned",
        components=(
            Component(name="c0", kind=Kind.SOURCE, parallelism=3, memory_mb=memory_mb),
            Component(name="c1", kind=Kind.SINK, parallelism=width, pinned="m1", memory_mb=memory_mb),
        ),
        streams=(Stream(source="c0", target="c1"),),
    )


def shares_slots(view: PlacementView, slots: list[int]) -> None:
    """Assert the properties that all of the authors' Flink placements share."""
    where, tasks = np.array(slots), view.tasks
    width = np.diff(tasks.first)
    for component in range(len(width)):
        own = where[tasks.of(component)]
        assert len(set(own.tolist())) == len(own)
    assert len(set(slots)) == width.max()
    for flow in tasks.flows:
        if flow.grouping is Grouping.FORWARD:
            assert np.array_equal(where[tasks.of(flow.source)], where[tasks.of(flow.target)])


@pytest.mark.slow
@needs_shared
@BOTH
def test_shares_slots_as_the_authors_flink_does_in_all_their_cases(policy: str) -> None:
    for view, theirs in tata_cases():
        shares_slots(view, theirs["flink"])
        shares_slots(view, placed(policy, view))


def test_puts_subtask_k_of_every_component_in_the_kth_slot_as_listed() -> None:
    view = PlacementView(chain(1, 3, 5, 2), equal_machines(3, slots=2))
    assert placed("flink", view) == [0, 0, 1, 2, 0, 1, 2, 3, 4, 0, 1]


@BOTH
def test_names_the_widest_component_when_there_are_too_few_slots(policy: str) -> None:
    refusal = refused(policy, PlacementView(chain(5, 7, 1), equal_machines(2, slots=2)))
    assert (refusal.constraint, refusal.needed, refusal.available) == (Constraint.SLOTS, 7.0, 4.0)
    assert "'c1'" in refusal.reason


def test_puts_a_pinned_component_in_the_slots_of_its_machine() -> None:
    assert placed("flink", PlacementView(pinned_sink(2), equal_machines(2, slots=2))) == [0, 1, 2, 2, 3]


@BOTH
def test_names_the_machine_that_has_too_few_slots_for_a_pinned_component(policy: str) -> None:
    refusal = refused(policy, PlacementView(pinned_sink(3), equal_machines(3, slots=2)))
    assert (refusal.constraint, refusal.needed, refusal.available) == (Constraint.SLOTS, 3.0, 2.0)
    assert "'m1'" in refusal.reason


def test_moves_a_task_on_to_the_next_slot_with_memory_and_none_of_its_component() -> None:
    machines = cluster(*(Machine(name=f"m{i}", memory_mb=memory) for i, memory in enumerate((20.0, 10.0, 20.0, 30.0))))
    view = PlacementView(chain(3, 3, memory_mb=10.0), machines)
    assert placed("flink", view) == [0, 1, 2, 0, 3, 2]  # the second sink finds no room in slot 1 and slot 2 taken


@BOTH
def test_names_slots_if_only_a_slot_with_its_component_has_memory(policy: str) -> None:
    machines = cluster(Machine(name="a", memory_mb=100.0), Machine(name="b", memory_mb=5.0))
    refusal = refused(policy, PlacementView(chain(1, 2, memory_mb=10.0), machines))
    assert (refusal.constraint, refusal.needed, refusal.available) == (Constraint.SLOTS, 2.0, 1.0)


@BOTH
def test_names_memory_if_no_slot_has_enough(policy: str) -> None:
    refusal = refused(policy, PlacementView(chain(2, 2, memory_mb=10.0), equal_machines(2, memory_mb=15.0)))
    assert (refusal.constraint, refusal.needed) == (Constraint.MEMORY, 10.0)
    assert refusal.available == pytest.approx(5.0)
    assert refusal.task == 2


@BOTH
def test_gives_pinned_components_the_memory_of_their_machine_first(policy: str) -> None:
    view = PlacementView(pinned_sink(1, memory_mb=10.0), equal_machines(4, memory_mb=15.0))
    assert placed(policy, view) == [0, 3, 2, 1]


def test_flink_spread_takes_the_first_slot_of_every_machine_before_any_second_one() -> None:
    view = PlacementView(chain(1, 3, 5, 2), equal_machines(3, slots=2))
    assert placed("flink-spread", view) == [0, 0, 2, 4, 0, 2, 4, 1, 3, 0, 2]


def test_flink_spread_uses_all_machines_where_flink_uses_one() -> None:
    view = PlacementView(chain(4, 4), equal_machines(4, slots=4))
    assert set(machines_of(view, placed("flink", view))) == {0}
    assert set(machines_of(view, placed("flink-spread", view))) == {0, 1, 2, 3}
