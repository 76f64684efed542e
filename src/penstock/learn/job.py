"""A training from nothing to a file of weights: instances, steps, curve; it continues where it was stopped."""

import csv
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from penstock.learn.instances import draw_table
from penstock.learn.networks import Form
from penstock.learn.training import Point, Settings, batch_sizes, train
from penstock.model.errors import InvalidInput
from penstock.policies.placement.learned.weights import Network, Provenance, load_network, save_network

VALIDATION = 100  # pairs, by another seed than those of the training
APART = 1_000_000  # between the seeds


def train_network(
    settings: Settings,
    kinds: Sequence[str],
    pairs: int,
    folder: Path,
    on_point: Callable[[Point], object] = tuple,
    on_step: Callable[[str], object] = str,
    start: Path | None = None,
) -> Path:
    """Train a network on random instances, `pairs` of each kind, and return its file in the folder.

    The folder gets the weights, the curve and a checkpoint, from which a training with the same settings continues.
    `start`: a file with the weights to begin with, random without it.
    """
    first = None if start is None else load_network(start, settings.network)
    settings = settings if first is None else replace(settings, form=Form(**first.provenance.settings["form"]))
    folder.mkdir(parents=True, exist_ok=True)
    tables = []
    for kind in kinds:
        on_step(f"drawing {pairs} instances: {kind}")
        tables.append(draw_table(kind, pairs, settings.seed))
    on_step("training")
    validation = draw_table("published", VALIDATION, settings.seed + APART)
    try:
        every = max(10, settings.steps // 40)
        weights = None if first is None else {name: jnp.asarray(values) for name, values in first.arrays.items()}
        checkpoint = folder / "checkpoint.npz"
        progress, curve = train(settings, tables, validation, checkpoint, every, on_point=on_point, start=weights)
    except ValueError as error:
        raise InvalidInput("output", f"{error}; choose another folder, or the settings of its training") from None
    with (folder / "curve.csv").open("w", newline="") as file:
        csv.writer(file).writerows([Point._fields, *curve])
    made = folder / f"{settings.network}.npz"
    arrays = {name: np.asarray(values) for name, values in progress.params.items()}
    steps, batches = int(progress.step), batch_sizes(settings, tables)
    provenance = Provenance(
        network=settings.network,
        settings=settings.to_dict(),
        data=f"{pairs} pairs each of {', '.join(kinds)}{_after(first)}",
        seed=settings.seed,
        commit=_commit(),
        steps=steps,
        placements=sum(batches[step % len(batches)] for step in range(steps)) * settings.samples,
        device=jax.devices()[0].device_kind,
        curve=[(point.step, round(point.greedy, 4)) for point in curve],
    )
    save_network(made, arrays, provenance)
    return made


def _after(first: Network | None) -> str:
    if first is None:
        return ""
    before = first.provenance
    return f", after {before.steps} steps with {before.data}"


def _commit() -> str:
    """Return the commit of the code, empty outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return ""
