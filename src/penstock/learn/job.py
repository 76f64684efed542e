"""A training from nothing to a file of weights: instances, steps, curve; it continues where it was stopped."""

import csv
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np

from penstock.learn.instances import draw_table
from penstock.learn.training import Point, Settings, train
from penstock.model.errors import InvalidInput
from penstock.policies.placement.learned.weights import Provenance, save_network

VALIDATION = 100  # pairs, by another seed than those of the training
APART = 1_000_000  # between the seeds


def train_network(
    settings: Settings,
    kinds: Sequence[str],
    pairs: int,
    folder: Path,
    on_point: Callable[[Point], object] = tuple,
    on_step: Callable[[str], object] = str,
) -> Path:
    """Train a network on random instances, `pairs` of each kind, and return its file in the folder.

    The folder gets the weights, the curve and a checkpoint, from which a training with the same settings continues.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables = []
    for kind in kinds:
        on_step(f"drawing {pairs} instances: {kind}")
        tables.append(draw_table(kind, pairs, settings.seed))
    on_step("training")
    validation = draw_table("published", VALIDATION, settings.seed + APART)
    try:
        every = max(1, settings.steps // 40)
        progress, curve = train(settings, tables, validation, folder / "checkpoint.npz", every, on_point=on_point)
    except ValueError as error:
        raise InvalidInput("output", f"{error}; choose another folder, or the settings of its training") from None
    with (folder / "curve.csv").open("w", newline="") as file:
        csv.writer(file).writerows([Point._fields, *curve])
    made = folder / f"{settings.network}.npz"
    arrays = {name: np.asarray(values) for name, values in progress.params.items()}
    steps = int(progress.step)
    provenance = Provenance(
        network=settings.network,
        settings=settings.to_dict(),
        data=f"{pairs} pairs each of {', '.join(kinds)}",
        seed=settings.seed,
        commit=_commit(),
        steps=steps,
        placements=steps * settings.instances * settings.samples,
        device=jax.devices()[0].device_kind,
        curve=[(point.step, round(point.greedy, 4)) for point in curve],
    )
    save_network(made, arrays, provenance)
    return made


def _commit() -> str:
    """Return the commit of the code, empty outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        return ""
