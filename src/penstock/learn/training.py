"""Training by policy gradients (TATA, eq. (9)-(13)); a whole step is one compiled function.

Two baselines for the reward. `batch`: the mean over a batch of different instances (REINFORCE as published).
`samples`: the mean over the other placements of the same instance (RLOO). The state of a training is a file, from which
it continues. For a seed, the result is the same on the same device.

This module and those that it imports need JAX and NumPy only, so that a training can run where nothing else is.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from penstock.learn import networks, published
from penstock.learn.estimators import Estimate, even_estimate, expand, fits_memory, published_estimate

Params = dict[str, Array]
Table = dict[str, Any]

PENALTY = -5.0  # the reward of a placement that exceeds a memory limit; the least reward
PUBLISHED, EVEN = 0, 1  # estimators
SMALL = 1e-8


@dataclass(frozen=True)
class Settings:
    """The settings of a training.

    network: neural, tata or ni.
    instances: number per step, fewer of larger ones; samples: placements of each.
    baseline: samples (RLOO) or batch (REINFORCE as published).
    weight: of throughput in the reward; None: random, so that the network is conditioned on it.
    planning: fraction of instances whose reward is planning's estimate instead of TATA's.
    rate, last_rate: of learning, at the beginning and the end (cosine).
    entropy: bonus for the mean entropy of a choice, at the beginning; it decreases linearly to 0.
    masked, sees_load: parts of ours that the published network may have.
    blind: ours without what it sees of slots, for an ablation.
    """

    network: str = "neural"
    steps: int = 4000
    instances: int = 256
    samples: int = 32
    baseline: str = "samples"
    weight: float | None = None
    planning: float = 0.3
    rate: float = 1e-3
    last_rate: float = 1e-5
    entropy: float = 0.02
    clip: float = 1.0
    masked: bool = True
    sees_load: bool = False
    blind: bool = False
    seed: int = 0
    form: networks.Form = field(default_factory=networks.Form)

    @classmethod
    def as_published(cls, **changes: Any) -> "Settings":
        """Return TATA's settings: 20 different instances per step, one placement each, Adam at 1e-4."""
        own = cls(
            network="tata", instances=20, samples=1, baseline="batch", weight=0.8, planning=0.0, rate=1e-4,
            last_rate=1e-4, entropy=0.0, masked=False,
        )  # fmt: skip
        return replace(own, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings for a file."""
        return {**asdict(self), "form": self.form._asdict()}


class Progress(NamedTuple):
    """The state of a training."""

    params: Params
    mean: Params  # of Adam
    square: Params
    step: Array
    key: Array


def begin(settings: Settings, table: Table, start: Params | None = None) -> Progress:
    """Return the state of a training that has not started, with random weights or given ones."""
    key, own = jax.random.split(jax.random.key(settings.seed))
    params = initial_params(settings, own, table)
    if start is not None:
        if {name: values.shape for name, values in start.items()} != {name: v.shape for name, v in params.items()}:
            raise ValueError("the weights to start from are of another network")
        params = {name: jnp.asarray(start[name]) for name in params}
    mean, square = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
    return Progress(params, mean, square, jnp.array(0), key)


def initial_params(settings: Settings, key: Array, table: Table) -> Params:
    """Return random weights for a network."""
    if settings.network == "neural":
        shared = table["shared_features"].shape[-1] + 1
        sizes = (table[f"{token}_features"].shape[-1] + shared for token in ("component", "machine"))
        return networks.initial(key, settings.form, *sizes)
    return published.initial(key, published_form(settings))


def published_form(settings: Settings) -> published.PublishedForm:
    """Return the published network's parts."""
    return published.PublishedForm(settings.network == "ni", settings.sees_load, settings.masked)


def place(settings: Settings, params: Params, net: Any, row: Table, weight: Array, key: Array, rows: int,
          greedy: bool = False) -> networks.Rollout:  # fmt: skip
    """Place an instance's tasks with a network."""
    if settings.network != "neural":
        return published.roll_out(params, published_form(settings), net, row, key, rows, greedy)
    if settings.blind:
        params = {**params, "slot.in": jnp.zeros_like(params["slot.in"])}
        params["component.left"] = jnp.zeros_like(params["component.left"])
    return networks.roll_out(params, net, row, weight, key, rows, greedy, settings.masked)


def rewards(net: Any, row: Table, placed: Array, weight: Array, planning: Array, levels: int) -> Array:
    """Return the reward (13) of placements [K, T], by TATA's estimate or planning's."""
    paper, own = published_estimate(net, placed, levels), even_estimate(net, placed, levels)
    chosen = Estimate(*(jnp.where(planning > 0, b, a) for a, b in zip(paper, own, strict=True)))
    reference = row["reference"][planning.astype(jnp.int32)]
    gain = weight * (chosen.rate / reference[0] - 1.0) + (1.0 - weight) * (1.0 - chosen.delay / reference[1])
    fits = fits_memory(net, jax.nn.one_hot(placed, net.slot_cpu.shape[0]) * net.task_mask[:, None])
    return jnp.where(fits & jnp.isfinite(gain), jnp.maximum(gain, PENALTY), PENALTY)


def advantages(reward: Array, baseline: str) -> Array:
    """Return by how much each reward [B, K] is above its baseline.

    Rewards of an instance whose references are poor are large: so the unit is the spread of an instance's own rewards,
    plus the usual one, which keeps instances small where all placements are alike.
    """
    if baseline == "batch":
        return reward - reward.mean()
    others = (reward.sum(1, keepdims=True) - reward) / (reward.shape[1] - 1)
    own = reward - others
    spread = reward.std(1, keepdims=True)
    return own / (spread + jnp.median(spread) + 1e-3)


class Measures(NamedTuple):
    """What a step reports."""

    reward: Array
    best: Array  # mean over instances of the best placement
    entropy: Array
    gradient: Array


def learning_rate(settings: Settings, step: Array) -> Array:
    """Return the rate of a step, after a short warm-up."""
    done = jnp.clip(step / settings.steps, 0.0, 1.0)
    cosine = settings.last_rate + (settings.rate - settings.last_rate) * 0.5 * (1 + jnp.cos(jnp.pi * done))
    warm = 1.0 if settings.rate == settings.last_rate else jnp.minimum(1.0, (step + 1) / 50.0)
    return cosine * warm


def batch_sizes(settings: Settings, tables: Sequence[Table]) -> list[int]:
    """Return the instances per step of each table: fewer of larger ones, by the square root of tasks × slots."""
    sizes = [table["cpu"].shape[1] * table["slot_cpu"].shape[1] for table in tables]
    return [max(1, round(settings.instances * (min(sizes) / size) ** 0.5)) for size in sizes]


@partial(jax.jit, static_argnames=("settings", "levels", "instances"))
def train_step(
    progress: Progress, table: Table, settings: Settings, levels: int, instances: int
) -> tuple[Progress, Measures]:
    """Draw instances, place them, and improve the network."""
    key, pick, weigh, estimate, draw = jax.random.split(progress.key, 5)
    size = table["level"].shape[0]
    rows = {name: values[jax.random.randint(pick, (instances,), 0, size)] for name, values in table.items()}
    weight = _weights(settings, weigh, instances)
    planning = (jax.random.uniform(estimate, (instances,)) < settings.planning).astype(jnp.float32)
    keys = jax.random.split(draw, instances)

    def loss(params: Params) -> tuple[Array, Measures]:
        def one(row: Table, share: Array, which: Array, own: Array) -> tuple[Array, Array, Array]:
            net = expand(row)
            made = place(settings, params, net, row, share, own, settings.samples)
            reward = rewards(net, row, jax.lax.stop_gradient(made.placed), share, which, levels)
            return made.log_probability, made.entropy, jax.lax.stop_gradient(reward)

        logs, entropy, reward = jax.vmap(one)(rows, weight, planning, keys)
        bonus = settings.entropy * (1.0 - progress.step / settings.steps)
        surrogate = -(advantages(reward, settings.baseline) * logs).mean() - bonus * entropy.mean()
        return surrogate, Measures(reward.mean(), reward.max(1).mean(), entropy.mean(), jnp.array(0.0))

    gradient, measures = jax.grad(loss, has_aux=True)(progress.params)
    moved, norm = _adam(settings, progress, gradient)
    return moved._replace(key=key), measures._replace(gradient=norm)


def _weights(settings: Settings, key: Array, instances: int) -> Array:
    """Return the weights of throughput: half of them the paper's, the others uniform."""
    if settings.weight is not None:
        return jnp.full(instances, settings.weight)
    one, other = jax.random.split(key)
    usual = jax.random.uniform(one, (instances,)) < 0.5
    return jnp.where(usual, 0.8, jax.random.uniform(other, (instances,)))


def _adam(settings: Settings, progress: Progress, gradient: Params) -> tuple[Progress, Array]:
    """Return the state after a step of Adam with the gradient's norm clipped (Kingma and Ba 2015)."""
    norm = jnp.sqrt(sum((each**2).sum() for each in gradient.values()))
    gradient = {name: jnp.where(jnp.isfinite(norm), each, 0.0) for name, each in gradient.items()}
    norm = jnp.where(jnp.isfinite(norm), norm, 0.0)  # a step without a finite gradient changes nothing
    scale = jnp.minimum(1.0, settings.clip / (norm + SMALL))
    step = progress.step + 1
    mean = {name: 0.9 * progress.mean[name] + 0.1 * scale * each for name, each in gradient.items()}
    square = {name: 0.999 * progress.square[name] + 0.001 * (scale * each) ** 2 for name, each in gradient.items()}
    rate = learning_rate(settings, progress.step) / (1 - 0.9**step)
    params = {
        name: each - rate * mean[name] / (jnp.sqrt(square[name] / (1 - 0.999**step)) + SMALL)
        for name, each in progress.params.items()
    }
    return Progress(params, mean, square, step, progress.key), norm


@partial(jax.jit, static_argnames=("settings", "levels", "samples"))
def evaluate(
    params: Params, table: Table, key: Array, settings: Settings, levels: int, weight: float, samples: int
) -> tuple[Array, Array, Array]:
    """Return per instance TATA's reward of the greedy placement, of the mean and of the best of some samples. [B]"""

    def one(row: Table, own: Array) -> tuple[Array, Array, Array]:
        net, share = expand(row), jnp.array(weight)
        greedy = place(settings, params, net, row, share, own, 1, greedy=True)
        drawn = place(settings, params, net, row, share, own, samples)
        found = rewards(net, row, jnp.concatenate([greedy.placed, drawn.placed]), share, jnp.array(0), levels)
        return found[0], found[1:].mean(), found.max()

    return jax.vmap(one)(table, jax.random.split(key, table["level"].shape[0]))


class Point(NamedTuple):
    """A row of the curve of a training."""

    step: int
    seconds: float
    reward: float  # mean of the training's placements since the last row
    entropy: float
    greedy: float  # validation
    sampled: float
    best: float  # of 64


def level_count(tables: Sequence[Table]) -> int:
    """Return the number of components in the longest path of any instance."""
    return int(max(int(np.max(table["level"])) for table in tables)) + 1


def train(
    settings: Settings,
    tables: Sequence[Table],
    validation: Table,
    checkpoint: Path | None = None,
    every: int = 100,
    seconds: float = float("inf"),
    on_point: Callable[[Point], object] = tuple,
    start: Params | None = None,
) -> tuple[Progress, list[Point]]:
    """Train on instances, a table after another, and return the final state and the curve.

    A training with a checkpoint continues from it, and writes it with each row of the curve. After `seconds` it stops.
    `start` has the weights with which one begins, random without it.
    """
    began, known = time.perf_counter(), [level_count([table]) for table in tables]
    progress, curve = begin(settings, tables[0], start), list[Point]()
    if checkpoint is not None and checkpoint.exists():
        progress, curve = load_checkpoint(checkpoint, settings)
    before = curve[-1].seconds if curve else 0.0
    on_device = [jax.device_put(table) for table in tables]
    unseen, seen = jax.device_put(validation), list[Measures]()
    levels, batches = level_count([validation]), batch_sizes(settings, tables)
    for step in range(int(progress.step), settings.steps):
        turn = step % len(tables)
        progress, measures = train_step(progress, on_device[turn], settings, known[turn], batches[turn])
        seen.append(measures)
        late = time.perf_counter() - began > seconds
        if (step + 1) % every == 0 or step + 1 == settings.steps or late:
            found = evaluate(progress.params, unseen, jax.random.key(1), settings, levels, 0.8, 64)
            greedy, sampled, best = (float(jnp.mean(each)) for each in found)
            reward, entropy = (float(np.mean([getattr(one, name) for one in seen])) for name in ("reward", "entropy"))
            spent = before + time.perf_counter() - began
            curve.append(Point(step + 1, spent, reward, entropy, greedy, sampled, best))
            on_point(curve[-1])
            seen.clear()
            if checkpoint is not None:
                save_checkpoint(checkpoint, settings, progress, curve)
        if late:
            break
    return progress, curve


def save_checkpoint(path: Path, settings: Settings, progress: Progress, curve: Sequence[Point]) -> None:
    """Write the state of a training, whole or not at all."""
    arrays = {f"{part}/{name}": np.asarray(values) for part in ("params", "mean", "square")
              for name, values in getattr(progress, part).items()}  # fmt: skip
    arrays |= {"step": np.asarray(progress.step), "key": np.asarray(jax.random.key_data(progress.key))}
    arrays |= {"curve": np.array(curve, dtype=np.float64).reshape(len(curve), len(Point._fields))}
    arrays |= {"settings": np.array(repr(settings))}
    unfinished = path.with_name(f"{path.name}.part")
    with unfinished.open("wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    unfinished.replace(path)


def load_checkpoint(path: Path, settings: Settings) -> tuple[Progress, list[Point]]:
    """Read the state of a training; raise `ValueError` for one with other settings."""
    with np.load(path, allow_pickle=False) as file:
        held = {name: file[name] for name in file.files}
    if str(held["settings"]) != repr(settings):
        raise ValueError(f"{path}: is of a training with other settings")
    parts = dict(_parts(held))
    step, key = jnp.asarray(held["step"]), jax.random.wrap_key_data(jnp.asarray(held["key"]))
    curve = [Point(int(row[0]), *map(float, row[1:])) for row in held["curve"]]
    return Progress(parts["params"], parts["mean"], parts["square"], step, key), curve


def _parts(held: dict[str, Any]) -> Iterator[tuple[str, Params]]:
    for part in ("params", "mean", "square"):
        yield part, {name.partition("/")[2]: jnp.asarray(values) for name, values in held.items()
                     if name.startswith(f"{part}/")}  # fmt: skip
