from collections.abc import Callable

import numpy as np
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.model.cluster import Machine
from penstock.model.errors import InvalidInput
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.policies import registry
from penstock.policies.api import PlacementView
from penstock.policies.placement.predictive import Predictive
from penstock.policies.placement.predictive_search import PredictiveSearch
from tests.estimate.latency_cases import random_model
from tests.policies.cases import answer, chain, cluster, equal_machines, placed, refused

SEARCH = "predictive-search"


def random_view(seed: int) -> PlacementView:
    """A view with a latency model in odd cases, with the rate in even ones."""
    model = random_model(seed)
    instance = model.instance
    score = model.scorer() if seed % 2 else Evaluator(instance.topology, instance.cluster).scorer(Objective.THROUGHPUT)
    return PlacementView(instance.topology, instance.cluster, "own", score)


def algorithm_1(view: PlacementView) -> list[int]:
    """Algorithm 1 line by line, one prediction at a time; on a machine, the slot with least work."""
    assert view.evaluate is not None

    def pred(slots: list[int]) -> float:
        assert view.evaluate is not None
        return -float(view.evaluate(np.array([slots], dtype=np.int32))[0])

    start = registry.placement_policy("round-robin").place(view, np.random.default_rng(0))
    assert isinstance(start, Placement)
    x = list(start.slots)
    machine = view.slots.machine
    for i in range(view.tasks.number):
        home = x[i]
        others = [(slot, view.work[task]) for task, slot in enumerate(x) if task != i]
        for j in range(view.slots.machines):
            if machine[x[i]] == j or view.pins[i] not in (-1, j):
                continue
            own = [slot for slot in range(view.slots.number) if machine[slot] == j]
            slot = (
                home if machine[home] == j else min(own, key=lambda s: round(sum(w for o, w in others if o == s), 12))
            )
            x_new = [*x[:i], slot, *x[i + 1 :]]
            if pred(x_new) < pred(x):
                x = x_new
    return x


def score_of(view: PlacementView, slots: list[int]) -> float:
    assert view.evaluate is not None
    return float(view.evaluate(np.array([slots], dtype=np.int32))[0])


def test_equals_algorithm_1_of_the_paper() -> None:
    moved = 0
    for seed in range(60):
        view = random_view(seed)
        ours, theirs = placed("predictive", view), algorithm_1(view)
        assert view.slots.machine[ours].tolist() == view.slots.machine[theirs].tolist(), f"seed {seed}"
        assert score_of(view, ours) == score_of(view, theirs), f"seed {seed}"
        moved += ours != placed("round-robin", view)
    assert moved > 30


def test_never_scores_worse_than_its_initial_placement() -> None:
    for seed in range(30):
        view = random_view(seed)
        for start in ("round-robin", "i-storm"):
            assert score_of(view, placed(f"predictive:start={start}", view)) >= score_of(view, placed(start, view))


def test_the_search_is_never_worse_than_algorithm_1_and_often_better() -> None:
    gains = []
    for seed in range(60):
        view = random_view(seed)
        plain, searched = (score_of(view, placed(name, view)) for name in ("predictive", SEARCH))
        assert searched >= plain, f"seed {seed}"
        gains.append(searched > plain)
    assert sum(gains) > 10


def test_no_move_or_swap_improves_the_result_of_the_search() -> None:
    for seed in range(1, 30, 4):
        view = random_view(seed)
        found = placed(SEARCH, view)
        score, machine = score_of(view, found), view.slots.machine
        for task in range(view.tasks.number):
            for other in range(view.tasks.number):
                swapped = list(found)
                swapped[task], swapped[other] = found[other], found[task]
                if view.pins[task] < 0 and view.pins[other] < 0:
                    assert score_of(view, swapped) <= score + 1e-8 * abs(score), f"seed {seed}"
            for slot in range(view.slots.number):
                moved = [*found[:task], slot, *found[task + 1 :]]
                # The latency depends on machines alone, as long as no thread is too busy.
                if view.pins[task] in (-1, machine[slot]) and machine[slot] != machine[found[task]]:
                    assert score_of(view, moved) <= score + 1e-8 * abs(score) or score < -1e9, f"seed {seed}"


def test_swaps_help_if_moves_do_not() -> None:
    topology = chain(1, 1, memory_mb=60.0, cpu=0.1)
    machines = equal_machines(2, memory_mb=100.0)
    wanted = np.array([1, 0])
    view = PlacementView(topology, machines, "own", _matching(wanted))
    assert placed("predictive", view) == [0, 1]
    assert placed(f"{SEARCH}:swaps=false", view) == [0, 1]
    assert placed(SEARCH, view) == [1, 0]


def _matching(
    wanted: "np.ndarray[tuple[int], np.dtype[np.int64]]",
) -> Callable[..., "np.ndarray[tuple[int], np.dtype[np.float64]]"]:
    def score(
        rows: "np.ndarray[tuple[int, int], np.dtype[np.int32]]",
    ) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
        alone = rows[:, 0] != rows[:, 1]
        return np.where(alone, (rows == wanted).all(axis=1).astype(np.float64), -np.inf)

    return score


def test_takes_the_least_loaded_slot_of_a_machine() -> None:
    topology = chain(1, 3, cpu=0.1)
    machines = cluster(Machine(name="a"), Machine(name="b", cores=3, slots=3))
    view = PlacementView(topology, machines, "own", lambda rows: (rows > 0).sum(axis=1).astype(np.float64))
    found = placed("predictive", view)  # dealt to a/0, b/0, b/1, b/2; the first then goes to b
    assert found[1:] == [1, 2, 3]
    assert found[0] == 1


def test_ties_go_to_the_first_machine_and_do_not_cause_moves() -> None:
    topology, machines = chain(1, 1, cpu=0.1), equal_machines(4)
    start = placed("round-robin", PlacementView(topology, machines))
    level = PlacementView(topology, machines, "own", lambda rows: np.zeros(len(rows)))
    assert placed("predictive", level) == start == [0, 1]
    away = PlacementView(topology, machines, "own", lambda rows: (rows[:, 0] >= 2).astype(np.float64))
    assert placed("predictive", away) == [2, 1]


def test_the_search_scores_about_the_allowed_number_of_placements() -> None:
    view = random_view(7)
    result = answer(f"{SEARCH}:steps=1", view)
    assert isinstance(result, Placement)
    assert list(result.slots) == placed("predictive", view)
    assert "step limit reached" in result.note


def test_refuses_if_no_placement_is_allowed() -> None:
    view = PlacementView(chain(1, 1), equal_machines(2), "own", lambda rows: np.full(len(rows), -np.inf))
    for name in ("predictive", SEARCH):
        assert "'own'" in refused(name, view).reason


def test_finds_an_allowed_placement_from_an_initial_one_that_is_not() -> None:
    view = PlacementView(
        chain(1, 1), equal_machines(2), "own", lambda rows: np.where(rows[:, 0] == rows[:, 1], 0.0, -np.inf)
    )
    for name in ("predictive", SEARCH):
        assert len(set(placed(name, view))) == 1


@pytest.mark.parametrize("policy", [Predictive(), PredictiveSearch()])
def test_requires_a_view_that_scores(policy: Predictive | PredictiveSearch) -> None:
    with pytest.raises(ValueError, match="evaluate"):
        policy.place(PlacementView(chain(1, 1), equal_machines(2)), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ("predictive:start=predictive-search", "predictive.start"),
        ("predictive:start=moon", "predictive.start"),
        ("predictive-search:start=predictive", "predictive-search.start"),
        ("predictive-search:steps=0", "predictive-search.steps"),
    ],
)
def test_rejects_invalid_parameters(spec: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.placement_policy(spec)
    assert caught.value.path == f"policy.{field}"
