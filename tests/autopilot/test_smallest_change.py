import numpy as np
import pytest

from penstock.autopilot.smallest_change import Waypoint, choose_waypoint, find_nearest, order_moves
from penstock.model.objective import Objective
from penstock.planning.planner import Planner
from tests.autopilot.fake_target import APPLICATION, CLUSTER

PLANNER = Planner(APPLICATION, CLUSTER, Objective.DELAY)


def distance(now: list[int], wanted: list[int]) -> int:
    evaluate = PLANNER.view.evaluate
    assert evaluate is not None
    found = find_nearest(PLANNER.view, evaluate, np.array(now), np.array(wanted))
    scores = evaluate(np.array([wanted, found], dtype=np.int32))
    assert scores[0] == pytest.approx(scores[1])
    return int((found != np.array(now)).sum())


def test_machines_that_are_alike_are_exchanged_back() -> None:
    assert distance([0, 0, 1, 1, 2, 0], [2, 2, 3, 3, 0, 2]) == 0


def test_slots_of_a_machine_are_exchanged_back() -> None:
    assert distance([0, 0, 1, 2, 2, 3], [1, 1, 0, 3, 3, 2]) == 0


def test_tasks_of_a_component_are_exchanged_back() -> None:
    assert distance([0, 0, 1, 2, 3, 0], [0, 3, 2, 1, 0, 0]) == 0


def test_a_different_placement_needs_all_its_moves() -> None:
    assert distance([0, 0, 0, 2, 2, 0], [0, 0, 0, 0, 0, 0]) == 2


@pytest.mark.parametrize(("loss", "moves"), [(0.0, 3), (0.005, 3), (0.05, 1)])
def test_exchanges_similar_tasks_if_that_costs_little_gain(loss: float, moves: int) -> None:
    """What one task of a component gets more than another by chance is not worth a move of its own."""
    tuples = np.array([0.0, 25.1, 24.9, 24.8, 25.2, 0.0])

    def evaluate(placed: np.ndarray) -> np.ndarray:
        return np.asarray(-np.abs((placed < 2) @ tuples - 74.9))  # what the first machine gets, against the best

    now, wanted = np.array([0, 0, 0, 2, 2, 0]), np.array([0, 2, 0, 0, 0, 0])
    assert int((find_nearest(PLANNER.view, evaluate, now, wanted, loss) != now).sum()) == moves


@pytest.mark.parametrize("start", [-1e16, -np.inf])
def test_nothing_is_lost_of_a_placement_that_rescues(start: float) -> None:
    def evaluate(placed: np.ndarray) -> np.ndarray:
        return np.where((placed[:, 1:5] == [0, 0, 2, 2]).all(axis=1), start, -1.0 - (placed[:, 1] != 2))

    now, wanted = np.array([0, 0, 0, 2, 2, 0]), np.array([0, 2, 0, 0, 0, 0])
    assert find_nearest(PLANNER.view, evaluate, now, wanted, 0.05).tolist() == wanted.tolist()


def test_the_move_with_the_highest_gain_comes_first() -> None:
    def evaluate(placed: np.ndarray) -> np.ndarray:
        return np.asarray(placed @ np.array([1.0, 10.0, 5.0]))

    stops = order_moves(evaluate, np.array([0, 0, 0]), np.array([1, 1, 1]), most=2)
    assert stops == [Waypoint((), 0.0), Waypoint((1,), 10.0), Waypoint((1, 2), 15.0)]


def test_the_shortest_stop_has_nearly_all_of_the_gain() -> None:
    assert choose_waypoint([Waypoint((), -10.0), Waypoint((3,), -2.1), Waypoint((3, 1), -2.0)]).tasks == (3,)
    assert choose_waypoint([Waypoint((), -10.0), Waypoint((3,), -6.0), Waypoint((3, 1), -2.0)]).tasks == (3, 1)
    assert choose_waypoint([Waypoint((), -10.0), Waypoint((3,), -12.0)]).tasks == ()
    assert choose_waypoint([Waypoint((), -np.inf), Waypoint((3,), -np.inf), Waypoint((3, 1), -2.0)]).tasks == (3, 1)
