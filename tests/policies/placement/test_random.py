import numpy as np

from penstock.model.cluster import Machine
from penstock.policies.api import PlacementView
from tests.policies.cases import chain, cluster, equal_machines, placed

SEED = 20


def test_draws_all_slots_evenly() -> None:
    view = PlacementView(chain(3000, 3000), cluster(Machine(name="a", slots=9), Machine(name="b")))
    drawn = np.bincount(placed("random", view, SEED), minlength=10)
    spread = np.sqrt(6000 * 0.1 * 0.9)
    assert np.abs(drawn - 600).max() < 4 * spread, f"seed {SEED}"


def test_draws_only_slots_with_room() -> None:
    machines = cluster(Machine(name="full", memory_mb=5.0), Machine(name="one", memory_mb=15.0), Machine(name="rest"))
    view = PlacementView(chain(20, 20, memory_mb=10.0), machines)
    taken = [np.bincount(placed("random", view, seed), minlength=3).tolist() for seed in range(20)]
    assert [0, 1, 39] in taken
    assert all(full == 0 and one <= 1 for full, one, _ in taken)


def test_draws_differently_with_another_seed() -> None:
    view = PlacementView(chain(10, 10), equal_machines(10))
    assert placed("random", view, 1) != placed("random", view, 2)
