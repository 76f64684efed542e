import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.estimate.evaluator import Evaluator
from penstock.estimate.flow import TATA, FlowEstimate, estimate_flow
from penstock.model.cluster import Cluster, Link, Machine
from penstock.model.errors import InvalidInput
from penstock.model.objective import Objective
from penstock.model.placement import Constraint, Placement
from penstock.model.taskgraph import Floats
from penstock.policies import registry
from penstock.policies.api import PlacementView
from penstock.policies.placement.local_search import LocalSearch
from penstock.policies.placement.rearrangement import first_placements
from tests.policies.cases import answer, chain, cluster, equal_machines, placed, refused, tata_cases
from tests.policies.placement.small_cases import SMALL, small_case
from tests.shared_data import needs_shared

SHORT = "local-search:seconds=none,steps=3000"


class Scorer:
    """The rate as a score, times a factor; counts the placements that it scores."""

    def __init__(self, width: int = 4, factor: float = 1.0) -> None:
        speeds = (1.0, 1.3, 1.7, 2.2)
        topology = chain(1, width, width + 1, 2, cpu=0.3)
        machines = cluster(*(Machine(name=f"m{speed}", speed=speed, slots=2) for speed in speeds))
        self.scored, self._factor = 0, factor
        self._rate = Evaluator(topology, machines).scorer(Objective.THROUGHPUT)
        self.view = PlacementView(topology, machines, "throughput", self)

    def __call__(self, placements: NDArray[np.int32]) -> Floats:
        self.scored += len(placements)
        return self._rate(placements) * self._factor


@pytest.mark.slow
def test_comes_within_two_percent_of_the_best_on_small_cases() -> None:
    cases = [case for seed in SMALL if (case := small_case(seed)).possible]
    found = [answer(SHORT, case.view) for case in cases]
    close = [
        isinstance(result, Placement) and case.value(result) >= case.best - 0.02 * abs(case.best) - 1e-9
        for case, result in zip(cases, found, strict=True)
    ]
    assert len(cases) >= 150
    assert np.mean(close) >= 0.95


def test_is_never_worse_than_its_initial_placements() -> None:
    compared = 0
    for seed in range(30):
        view = small_case(seed).view
        first = first_placements(view, np.random.default_rng(seed))
        assert view.evaluate is not None
        if isinstance(first, np.ndarray) and view.evaluate(first).max() > -np.inf:
            slots = placed("local-search:seconds=none,steps=20", view, seed)
            assert view.evaluate(np.array([slots], dtype=np.int32))[0] >= view.evaluate(first).max()
            compared += 1
    assert compared >= 20


def test_improves_on_its_initial_placements_if_balance_is_hard() -> None:
    scorer = Scorer(width=7)
    first = first_placements(scorer.view, np.random.default_rng(0))
    assert isinstance(first, np.ndarray)
    found = scorer(np.array([placed(SHORT, scorer.view)], dtype=np.int32))[0]
    best = scorer(np.array([placed("optimal", scorer.view)], dtype=np.int32))[0]
    assert scorer(first).max() < found
    assert found >= 0.98 * best


@pytest.mark.parametrize("steps", [1, 100, 5000])
def test_scores_no_more_placements_than_allowed(steps: int) -> None:
    scorer = Scorer()
    result = answer(f"local-search:seconds=none,steps={steps}", scorer.view)
    assert isinstance(result, Placement)
    first = first_placements(scorer.view, np.random.default_rng(0))
    assert isinstance(first, np.ndarray)
    assert scorer.scored <= max(steps, len(first))
    assert f"{scorer.scored} placements" in result.note


def test_equal_seeds_give_equal_placements_if_bounded_by_steps() -> None:
    first, again, other = (placed(SHORT, Scorer(width=7).view, seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_the_scale_of_scores_makes_no_difference() -> None:
    plain, large = (placed(SHORT, Scorer(width=7, factor=factor).view) for factor in (1.0, 2.0**60))
    assert plain == large


def test_finds_an_allowed_placement_if_no_initial_one_is_allowed() -> None:
    topology, machines = chain(1, 3, 1), equal_machines(3)
    wanted = np.array([2, 0, 1, 1, 0])

    def allow_near(placements: NDArray[np.int32]) -> Floats:
        right = (placements == wanted).sum(axis=1).astype(np.float64)
        return np.where(right >= 4, right, -np.inf)

    view = PlacementView(topology, machines, "own", allow_near)
    first = first_placements(view, np.random.default_rng(0))
    assert isinstance(first, np.ndarray)
    assert allow_near(first).max() == -np.inf
    assert placed(SHORT, view) == wanted.tolist()


def test_refuses_if_no_placement_is_allowed() -> None:
    view = PlacementView(chain(1, 1), equal_machines(2), "own", lambda placements: np.full(len(placements), -np.inf))
    assert "'own'" in refused(SHORT, view).reason


def test_refuses_with_the_refusal_of_packing_if_tasks_do_not_fit() -> None:
    topology, machines = chain(2, 2, memory_mb=60.0), equal_machines(3, memory_mb=100.0)
    view = PlacementView(topology, machines, "throughput", Evaluator(topology, machines).scorer(Objective.THROUGHPUT))
    refusal = refused(SHORT, view)
    assert refusal.constraint is Constraint.MEMORY
    assert len(refusal.placed) == 3


def test_refuses_machines_that_are_not_connected() -> None:
    topology = chain(1, 1, memory_mb=60.0)
    machines = tuple(Machine(name=name, memory_mb=100.0) for name in ("a", "b"))
    apart = Cluster(name="apart", machines=machines, links=(Link(source="a", target="b", bandwidth_mbps=0.0),))
    view = PlacementView(topology, apart, "delay", Evaluator(topology, apart).scorer(Objective.DELAY))
    assert refused(SHORT, view).constraint is Constraint.ROUTE


def test_requires_a_view_that_scores() -> None:
    with pytest.raises(ValueError, match="evaluate"):
        LocalSearch().place(PlacementView(chain(1, 1), equal_machines(2)), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ("seconds=none", "seconds"),
        ("seconds=-1", "seconds"),
        ("steps=0", "steps"),
        ("chains=0", "chains"),
        ("cold=0", "cold"),
        ("swaps=2", "swaps"),
    ],
)
def test_rejects_invalid_parameters(settings: str, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.placement_policy(f"local-search:{settings}")
    assert caught.value.path == f"policy.local-search.{field}"


def test_stops_if_no_time_is_left_at_the_start() -> None:
    scorer = Scorer()
    answer("local-search:seconds=0", scorer.view)
    first = first_placements(scorer.view, np.random.default_rng(0))
    assert isinstance(first, np.ndarray)
    assert scorer.scored == 2 * len(first)  # once to know them, once to know how long that takes


@needs_shared
def test_has_a_higher_reward_than_both_baselines_of_tata() -> None:
    rewards = []
    for bare, theirs in tata_cases()[:12]:
        evaluator = Evaluator(bare.topology, bare.cluster, model=TATA)
        baselines = [estimate_flow(evaluator.flow_net, slots) for slots in theirs.values()]
        reference = FlowEstimate(*np.mean(baselines, axis=0).tolist())
        score = evaluator.scorer(Objective.BALANCED, reference=reference, weight=0.8)
        view = PlacementView(bare.topology, bare.cluster, "balanced", score)
        both = score(np.array(list(theirs.values()), dtype=np.int32))
        found = score(np.array([placed("local-search:seconds=none,steps=2000", view)], dtype=np.int32))[0]
        assert found >= both.max() - 1e-9
        rewards.append(found)
    assert np.mean(rewards) > 0.4
