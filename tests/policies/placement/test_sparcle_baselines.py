"""SPARCLE's baselines on its reference instances: all with routes, all rated by (1a), so they can be compared.

GS, GR, HEFT, VNE and the optimum have further tests in the files of their policies.
"""

from functools import cache

import numpy as np
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.model.objective import Objective
from penstock.model.placement import Placement
from penstock.model.taskgraph import Floats
from penstock.policies.api import PlacementView
from tests.policies.cases import answer
from tests.shared_data import needs_shared
from tests.sparcle_cases import build, hosts, instances

BASELINES = {
    "t-storm": "t_storm",
    "vne": "vne",
    "heft": "heft",
    "cloud-only": "cloud_only",
    "greedy-sorted:measure=cpu,ties=lowest": "gs",
    "greedy-random:ties=lowest": "gr_mean_over_orders",
    "random": "random_mean_over_placements",
}
SEEDS = 6  # of those that draw


@cache
def views() -> tuple[PlacementView, ...]:
    found = []
    for instance in instances():
        application, network = build(instance)
        scorer = Evaluator(application, network).scorer(Objective.THROUGHPUT)
        found.append(PlacementView(application, network, "throughput", scorer))
    return tuple(found)


def rates(spec: str, seeds: int) -> Floats:
    """Mean rate over seeds, as shares of the optimum with joint routing; `answer` checks that all hops have routes."""
    found = []
    for view, instance in zip(views(), instances(), strict=True):
        own = []
        for seed in range(seeds):
            placement = answer(spec, view, seed)
            assert isinstance(placement, Placement)
            own.append(Evaluator(view.topology, view.cluster).evaluate(placement).throughput_tps)
        found.append(np.mean(own) / instance["optimum_ii"]["rate"])
    return np.array(found)


@pytest.mark.slow
@needs_shared
@pytest.mark.parametrize("spec", BASELINES)
def test_baselines_are_within_the_band_of_the_reference_answers(spec: str) -> None:
    ours = rates(spec, SEEDS if "random" in spec else 1)
    theirs = [i["baselines"][BASELINES[spec]]["rate"] / i["optimum_ii"]["rate"] for i in instances()]
    assert ours.max() <= 1 + 1e-6
    assert ours.mean() == pytest.approx(np.mean(theirs), abs=0.03)


@pytest.mark.slow
@needs_shared
@pytest.mark.parametrize("spec", [spec for spec, name in BASELINES.items() if name in ("t_storm", "vne", "heft", "gs")])
def test_deterministic_baselines_equal_the_reference_answers(spec: str) -> None:
    for view, instance in zip(views(), instances(), strict=True):
        placement, reference = answer(spec, view), instance["baselines"][BASELINES[spec]]
        assert isinstance(placement, Placement)
        assert hosts(view.cluster, placement) == reference["host"], instance["id"]
        rate = Evaluator(view.topology, view.cluster).evaluate(placement).throughput_tps
        assert rate == pytest.approx(reference["rate"], rel=1e-9), instance["id"]


@pytest.mark.slow
@needs_shared
def test_sparcle_is_above_every_baseline_and_refined_above_sparcle() -> None:
    ours = {spec: rates(spec, 1).mean() for spec in ("t-storm", "vne", "heft", "greedy-sorted", "random")}
    sparcle, refined = rates("sparcle", 1).mean(), rates("sparcle-refined:seconds=none,evaluations=500", 1).mean()
    assert max(ours.values()) < sparcle < refined
