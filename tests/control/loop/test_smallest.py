import numpy as np
import pytest

from penstock.control.loop.smallest import Stop, nearest, shortest, way
from penstock.control.planner import Planner
from penstock.estimate.evaluator import Objective
from tests.control.loop.fake_plant import APPLICATION, CLUSTER

PLANNER = Planner(APPLICATION, CLUSTER, Objective.DELAY)


def distance(now: list[int], wanted: list[int]) -> int:
    evaluate = PLANNER.view.evaluate
    assert evaluate is not None
    found = nearest(PLANNER.view, evaluate, np.array(now), np.array(wanted))
    scores = evaluate(np.array([wanted, found], dtype=np.int32))
    assert scores[0] == pytest.approx(scores[1])
    return int((found != np.array(now)).sum())


def test_machines_that_are_alike_are_exchanged_back() -> None:
    assert distance([0, 0, 1, 1, 2, 0], [2, 2, 3, 3, 0, 2]) == 0


def test_slots_of_a_machine_are_exchanged_back() -> None:
    assert distance([0, 0, 1, 2, 2, 3], [1, 1, 0, 3, 3, 2]) == 0


def test_tasks_of_a_component_are_exchanged_back() -> None:
    assert distance([0, 0, 1, 2, 3, 0], [0, 3, 2, 1, 0, 0]) == 0


def test_what_is_really_another_placement_takes_as_many_moves_as_it_must() -> None:
    assert distance([0, 0, 0, 2, 2, 0], [0, 0, 0, 0, 0, 0]) == 2


def test_the_way_makes_the_move_that_gains_most_first() -> None:
    def evaluate(placed: np.ndarray) -> np.ndarray:
        return np.asarray(placed @ np.array([1.0, 10.0, 5.0]))

    stops = way(evaluate, np.array([0, 0, 0]), np.array([1, 1, 1]), most=2)
    assert stops == [Stop((), 0.0), Stop((1,), 10.0), Stop((1, 2), 15.0)]


def test_the_shortest_stop_has_nearly_all_of_the_gain() -> None:
    assert shortest([Stop((), -10.0), Stop((3,), -2.1), Stop((3, 1), -2.0)]).tasks == (3,)
    assert shortest([Stop((), -10.0), Stop((3,), -6.0), Stop((3, 1), -2.0)]).tasks == (3, 1)
    assert shortest([Stop((), -10.0), Stop((3,), -12.0)]).tasks == ()
    assert shortest([Stop((), -np.inf), Stop((3,), -np.inf), Stop((3, 1), -2.0)]).tasks == (3, 1)
