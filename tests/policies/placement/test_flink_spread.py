from penstock.policies.api import PlacementView
from tests.policies.cases import chain, equal_machines, machines_of, placed


def test_takes_the_first_slot_of_every_machine_before_any_second_one() -> None:
    view = PlacementView(chain(1, 3, 5, 2), equal_machines(3, slots=2))
    assert placed("flink-spread", view) == [0, 0, 2, 4, 0, 2, 4, 1, 3, 0, 2]


def test_uses_all_machines_where_the_default_uses_one() -> None:
    view = PlacementView(chain(4, 4), equal_machines(4, slots=4))
    assert set(machines_of(view, placed("flink", view))) == {0}
    assert set(machines_of(view, placed("flink-spread", view))) == {0, 1, 2, 3}
