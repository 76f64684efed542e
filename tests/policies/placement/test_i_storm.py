from penstock.model.cluster import Machine
from penstock.policies.api import PlacementView
from tests.policies.cases import chain, cluster, equal_machines, placed


def test_starts_with_the_host_that_has_most_slots_on_all_its_machines() -> None:
    machines = cluster(
        Machine(name="a", slots=2),  # slots 0 and 1, alone on its host
        Machine(name="b", slots=1, host="rack"),  # slot 2
        Machine(name="c", slots=2, host="rack"),  # slots 3 and 4: three on the host
        Machine(name="d", slots=1),  # slot 5
    )
    assert placed("i-storm", PlacementView(chain(4, 4), machines)) == [2, 0, 5, 3, 1, 4, 2, 0]


def test_takes_hosts_of_one_size_as_listed() -> None:
    view = PlacementView(chain(2, 4), equal_machines(3, slots=2))
    assert placed("i-storm", view) == placed("round-robin", view) == [0, 2, 4, 1, 3, 5]
