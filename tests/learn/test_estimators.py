"""The estimators in JAX against those of `penstock.estimate`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from penstock.estimate.bottleneck import bottleneck_rates, mean_delays
from penstock.estimate.evaluator import Evaluator
from penstock.estimate.flow import TATA
from penstock.estimate.flow_kernels import MAX_ROUNDS, estimate_flows
from penstock.learn.estimators import even_estimate, expand, fits_memory, one_hot, published_estimate
from penstock.learn.instances import KINDS, SMALL, draw_pairs, to_arrays
from penstock.learn.training import level_count
from penstock.model.topology import Grouping
from penstock.policies.api import PlacementView
from tests.policies.cases import tata_cases
from tests.shared_data import needs_shared

pytestmark = pytest.mark.slow

PLACED = 8


def draw_placements(view: PlacementView, rng: np.random.Generator) -> NDArray[np.int32]:
    """Return placements of all sorts: spread over all slots, and over a few of them."""
    used = rng.integers(1, view.slots.number + 1, (PLACED, 1))
    drawn = rng.integers(0, view.slots.number, (PLACED, view.tasks.number))
    return (drawn % used).astype(np.int32)


def padded(placed: NDArray[np.int32], tasks: int) -> jax.Array:
    return jnp.asarray(np.pad(placed, ((0, 0), (0, tasks - placed.shape[1]))))


@pytest.mark.parametrize("kind", ["published", "varied"])
def test_estimates_equal_those_of_the_planner(kind: str) -> None:
    rng, groupings, joins = np.random.default_rng(1), set[Grouping](), 0
    shape = KINDS[kind][1]
    paper = jax.jit(published_estimate, static_argnames=("levels", "rounds"))
    own = jax.jit(even_estimate, static_argnames="levels")
    for view, reference in draw_pairs(kind, 60, seed=5):
        row = to_arrays(view, shape, reference)
        net, placed = expand(row), draw_placements(view, rng)
        wide = padded(placed, shape.tasks)
        evaluator = Evaluator(view.topology, view.cluster, TATA)
        rate, delay = paper(net, wide, levels=shape.components, rounds=MAX_ROUNDS)
        rates, delays = estimate_flows(evaluator.flow_net, placed)
        np.testing.assert_allclose(rate, rates, rtol=2e-3)
        np.testing.assert_allclose(delay, delays, rtol=2e-3, atol=1e-3)
        rate, delay = own(net, wide, levels=shape.components)
        np.testing.assert_allclose(rate, bottleneck_rates(evaluator.rate_net, placed), rtol=1e-4)
        np.testing.assert_allclose(delay, mean_delays(evaluator.rate_net, placed), rtol=1e-4, atol=1e-4)
        assert fits_memory(net, one_hot(net, wide)).tolist() == evaluator._fits(placed).tolist()
        groupings |= {stream.grouping for stream in view.topology.streams}
        targets = [stream.target for stream in view.topology.streams]
        joins += len(set(targets)) < len(targets)
    assert {Grouping.SHUFFLE, Grouping.FORWARD} <= groupings
    if kind == "varied":
        assert {Grouping.FIELDS, Grouping.GLOBAL} <= groupings
        assert joins >= 10


@needs_shared
def test_estimates_equal_the_authors() -> None:
    paper = jax.jit(published_estimate, static_argnames=("levels", "rounds"))
    for view, placements in tata_cases():
        row = to_arrays(view, SMALL, np.ones((2, 2)))
        placed = np.array(list(placements.values()), dtype=np.int32)
        rate, delay = paper(expand(row), padded(placed, SMALL.tasks), levels=6)
        rates, delays = estimate_flows(Evaluator(view.topology, view.cluster, TATA).flow_net, placed)
        np.testing.assert_allclose(rate, rates, rtol=1e-5)
        np.testing.assert_allclose(delay, delays, rtol=1e-5)
    assert level_count([row]) <= 6
