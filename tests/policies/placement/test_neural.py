"""Policies with trained networks: their weights, and what they return."""

from pathlib import Path

import numpy as np
import pytest

from penstock.estimate.evaluator import Evaluator
from penstock.estimate.flow import TATA, FlowEstimate
from penstock.model.errors import FileProblem
from penstock.model.placement import Placement
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.network import weight_of
from penstock.policies.placement.learned.weights import NETWORKS, SHIPPED, load_network, save_network, shipped_network
from penstock.policies.placement.neural import propose
from penstock.policies.registry import placement_policy
from penstock.workloads.clusters import draw_slots
from penstock.workloads.topologies import draw_job

MOST_BYTES = 5_000_000  # of all weights that are shipped


def balanced_view(seed: int) -> PlacementView:
    """A random pair of the paper's kind, with the reward relative to round-robin."""
    rng, dealt = np.random.default_rng(seed), None
    while not isinstance(dealt, Placement):  # until memory suffices
        job, cluster = draw_job(rng), draw_slots(rng)
        dealt = placement_policy("round-robin").place(PlacementView(job, cluster), rng)
    evaluator = Evaluator(job, cluster, TATA)
    found = evaluator.evaluate(dealt)
    reference = FlowEstimate(found.throughput_tps, found.delay_ms)
    return PlacementView(job, cluster, "balanced", evaluator.scorer("balanced", reference))


def mean_score(policy: str, views: list[PlacementView]) -> float:
    scores = []
    for view in views:
        placed = placement_policy(policy).place(view, np.random.default_rng(0))
        assert isinstance(placed, Placement)
        assert view.evaluate is not None
        scores.append(view.evaluate(np.array([placed.slots], dtype=np.int32))[0])
    return float(np.mean(scores))


@pytest.mark.parametrize("network", NETWORKS)
def test_shipped_weights_are_whole_and_have_their_provenance(network: str) -> None:
    provenance = shipped_network(network).provenance
    assert provenance.placements > 0
    assert provenance.commit
    assert provenance.data
    assert len(provenance.curve) >= 2


def test_shipped_weights_are_small() -> None:
    assert sum(file.stat().st_size for file in SHIPPED.iterdir()) <= MOST_BYTES


@pytest.mark.parametrize("damage", ["cut", "text", "flipped", "missing", "foreign", "other"])
def test_damaged_or_foreign_weights_are_rejected_in_one_line(damage: str, tmp_path: Path) -> None:
    file, whole = tmp_path / "own.npz", (SHIPPED / "ni.npz").read_bytes()
    if damage == "cut":
        file.write_bytes(whole[: len(whole) // 2])
    elif damage == "text":
        file.write_text("weights")
    elif damage == "foreign":
        file.write_bytes(whole)
    elif damage == "other":
        np.savez(file, numbers=np.zeros(3))
    elif damage == "flipped":
        network = load_network(SHIPPED / "ni.npz", "ni")
        save_network(file, network.arrays, network.provenance)
        with np.load(file) as held:
            arrays = {name: held[name] for name in held.files}
        arrays["query"][0, 0] += 1
        np.savez(file, **arrays)
    with pytest.raises(FileProblem) as caught:
        placement_policy(f"{'neural' if damage == 'foreign' else 'ni'}:file={file}").place(
            balanced_view(0), np.random.default_rng(0)
        )
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_networks_are_better_than_random_placement_and_samples_help() -> None:
    views = [balanced_view(seed) for seed in range(40)]
    drawn, greedy, several = (mean_score(policy, views) for policy in ("random", "neural:samples=1", "neural"))
    assert drawn + 0.2 < greedy < several
    assert mean_score("greedy-sorted", views) < several
    assert mean_score("tata", views) > mean_score("tata:samples=1", views)


@pytest.mark.slow
def test_the_search_is_never_worse_than_what_it_starts_from() -> None:
    for seed in range(10):
        view = balanced_view(seed)
        proposed, stuck = propose(view, 16, np.random.default_rng(3), None, None)
        assert view.evaluate is not None
        best = view.evaluate(proposed[stuck < 0]).max()
        policy = placement_policy("neural-search:seconds=none,steps=50,samples=16")
        found = policy.place(view, np.random.default_rng(3))
        assert isinstance(found, Placement)
        assert view.evaluate(np.array([found.slots], dtype=np.int32))[0] >= min(
            best, mean_score("neural:samples=1", [view])
        )


def test_the_weight_of_throughput_follows_the_objective() -> None:
    assert [weight_of(name) for name in ("throughput", "balanced", "latency", "delay")] == [1.0, 0.8, 0.8, 0.0]


@pytest.mark.slow
def test_the_network_trades_throughput_for_delay_by_its_weight() -> None:
    rates, delays = [], []
    for weight in (0.0, 0.5, 1.0):
        found = []
        for seed in range(20):
            view = balanced_view(seed)
            placed = placement_policy(f"neural:samples=1,weight={weight}").place(view, np.random.default_rng(0))
            assert isinstance(placed, Placement)
            found.append(Evaluator(view.topology, view.cluster, TATA).evaluate(placed))
        rates.append(np.mean([one.throughput_tps for one in found]))
        delays.append(np.mean([one.delay_ms for one in found]))
    assert rates[0] < rates[1] < rates[2]
    assert delays[0] < delays[1] < delays[2]
