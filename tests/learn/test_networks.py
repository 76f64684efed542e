"""Placement without JAX equals the networks in JAX, on shared weights."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from penstock.learn import networks, published
from penstock.learn.estimators import expand
from penstock.learn.instances import KINDS, draw_pairs, to_arrays
from penstock.policies.api import PlacementView
from penstock.policies.placement.learned.network import Decoder, encode
from penstock.policies.placement.learned.published_network import PublishedDecoder, encode_slots, encode_tasks
from penstock.policies.placement.learned.room import Room
from penstock.policies.placement.learned.weights import Network, Provenance

pytestmark = pytest.mark.slow

PROVENANCE = Provenance("neural", {}, "", 0, "", 0, 0, "", [])
SMALL_FORM = networks.Form(width=16, layers=2, heads=2, hidden=32)


def random_network(params: dict[str, Any], seed: int = 3) -> Network:
    """Return weights in which every array matters, and no score is at its limit, where several would be equal."""
    rng = np.random.default_rng(seed)
    noisy = {name: 0.7 * np.asarray(array) + 0.02 * rng.normal(size=array.shape) for name, array in params.items()}
    return Network({name: array.astype(np.float32) for name, array in noisy.items()}, PROVENANCE)


def cases(kind: str, single: bool = False) -> list[tuple[PlacementView, dict[str, Any]]]:
    """Return instances; `single`: without two slots that are alike, from which rounding would choose."""
    rng, found = np.random.default_rng(2), []
    for drawn, reference in draw_pairs(kind, 15, seed=9):
        machines = [replace(machine, speed=machine.speed * rng.uniform(0.8, 1.2)) for machine in drawn.cluster.machines]
        if single:
            machines = [replace(machine, slots=1, processes=1) for machine in machines]
        view = PlacementView(drawn.topology, replace(drawn.cluster, machines=tuple(machines)))
        found.append((view, to_arrays(view, KINDS[kind][1], reference)))
    return found


class Recorded(Room):
    """Keeps the scores by which each task was placed."""

    def __init__(self, view: PlacementView) -> None:
        super().__init__(view, 1)
        self.scores: list[NDArray[np.float32]] = []

    def choose(self, task: int, scores: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.int32]:
        self.scores.append(scores[0].copy())
        return super().choose(task, scores, rng)


@pytest.mark.parametrize("kind", ["published", "varied"])
def test_places_as_the_trained_network_does(kind: str) -> None:
    known = cases(kind)
    row = known[0][1]
    shared = len(row["shared_features"]) + 1
    sizes = [row[f"{token}_features"].shape[1] + shared for token in ("component", "machine")]
    network = random_network(networks.initial(jax.random.key(0), SMALL_FORM, *sizes))
    params: Any = network.arrays
    score = jax.jit(networks.scores)
    for view, row in known:
        coded, ours = networks.encode(params, row, jnp.array(0.3)), encode(network, view, 0.3)
        component, machine = coded["component.score"][: len(ours.component)], coded["machine.pair"][: len(ours.machine)]
        np.testing.assert_allclose(component, ours.component, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(machine, ours.machine_pair, rtol=1e-3, atol=1e-4)
        decoder = Decoder(network, view, 0.3, 1)
        decoder.room = room = Recorded(view)
        decoder.run(np.random.default_rng(0))
        seen = networks.view_of(expand(row), row)
        state = networks.start(seen, 1, SMALL_FORM.hidden)
        for task, slot in enumerate(room.placed[0].tolist()):
            at = jnp.array(task)
            expected = score(params, seen, coded, state, at)[0, : view.slots.number]
            np.testing.assert_allclose(expected, room.scores[task], rtol=1e-3, atol=1e-4)
            allowed = networks.has_room(seen, state, at)[0]
            assert bool(allowed[slot])
            state = networks.put(seen, coded, state, at, jnp.array([slot]))


@pytest.mark.parametrize("kind", ["published", "varied"])
@pytest.mark.parametrize("numbered", [False, True])
def test_places_as_the_published_network_does(kind: str, numbered: bool) -> None:
    form = published.PublishedForm(numbered=numbered, masked=True)
    network = random_network(published.initial(jax.random.key(0), form))
    params: Any = network.arrays
    params["query"] *= 0.2  # scores below their limit, also for slots whose memory is not limited
    roll = jax.jit(published.roll_out, static_argnames=("form", "rows", "greedy"))
    equal = 0
    for view, row in cases(kind, single=True):
        if view.slots.number > published.NUMBERED and numbered:
            continue
        net = expand(row)
        tasks, slots = view.tasks.number, view.slots.number
        np.testing.assert_allclose(
            np.asarray(published.encode_tasks(params, net))[:tasks],
            encode_tasks(network, view.tasks),
            rtol=2e-3,
            atol=2e-3,
        )
        np.testing.assert_allclose(
            np.asarray(published.encode_slots(params, net, row["slot_mask"]))[:slots],
            encode_slots(network, view),
            rtol=2e-3,
            atol=2e-3,
        )
        made = roll(params, form, net, row, jax.random.key(0), rows=1, greedy=True)
        decoder = PublishedDecoder(network, view, 1)
        decoder.room = room = Recorded(view)
        decoder.run(np.random.default_rng(0))
        expected = np.asarray(made.placed[0, :tasks])
        different = np.flatnonzero(room.placed[0] != expected)
        equal += not len(different)
        for task in different[:1]:  # the first difference may be of rounding, on which the later ones depend
            scores = room.scores[task]
            assert scores[room.placed[0, task]] == pytest.approx(scores[expected[task]], rel=2e-3, abs=2e-3)
    assert equal > 7
