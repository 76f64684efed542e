"""`penstock models train placement` and `evaluate placement`: networks that place tasks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from penstock.cli.inputs import JsonOption, SeedOption
from penstock.cli.output import console, duration, print_json, print_line, table
from penstock.cli.plots import BAR, BEST, GREY, panels, save_figure, tidy
from penstock.cli.progress import counting, spinning
from penstock.learn.comparison import TRAINABLE, Compared, compare
from penstock.learn.instances import KINDS
from penstock.model.errors import FileProblem, InvalidInput, UnknownName, nearest
from penstock.runtime.storage.run_folder import refuse_unwritable

if TYPE_CHECKING:
    from penstock.learn.training import Point, Settings

POLICIES = ("local-search:seconds=0.1", "neural:samples=1", "neural", "neural-search:seconds=0.1", "greedy-sorted")

InstancesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--instances",
        help="published, varied, large or huge; repeatable: they take turns. Default: published and varied; "
        "tata and ni: published.",
    ),
]


def train(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder for weights, curve and checkpoint.")],
    network: Annotated[str, typer.Option(help="neural; tata or ni with the published settings.")] = "neural",
    instances: InstancesOption = None,
    pairs: Annotated[int, typer.Option(help="Random instances of each kind.", min=1)] = 2000,
    steps: Annotated[int, typer.Option(help="Steps of the training.", min=1)] = 400,
    batch: Annotated[int | None, typer.Option(help="Instances per step; default: 64; tata and ni: 20.", min=1)] = None,
    samples: Annotated[int | None, typer.Option(help="Placements of each; default: 16; tata and ni: 1.", min=1)] = None,
    rate: Annotated[
        float | None, typer.Option(help="Learning rate; default: 0.001; tata and ni: 0.0001.", min=1e-9)
    ] = None,
    start: Annotated[Path | None, typer.Option(metavar="FILE", help="Weights to begin with, else random.")] = None,
    seed: SeedOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Train a network that places tasks.

    It learns from random applications on random clusters, by policy gradients on TATA's estimate and on planning's. The
    same command continues a training that was stopped. Small trainings run on a CPU; the shipped weights are from a
    GPU: 256 instances × 32 placements per step, thousands of steps. Use the result with --policy neural:file=FILE
    (or tata:file=FILE, ni:file=FILE). Needs JAX: pip install 'penstock[learn]'.

    Example: penstock models train placement --output networks/small --steps 200 --pairs 500
    """
    _refuse(network, TRAINABLE, "network")
    kinds = instances or (["published", "varied"] if network == "neural" else ["published"])
    for kind in kinds:
        _refuse(kind, tuple(KINDS), "instances")
    refuse_unwritable(output, "--output")
    settings = _settings(network, steps, batch, samples, rate, seed)
    from penstock.learn.job import train_network  # needs JAX

    curve: list[Point] = []
    with spinning("drawing instances", as_json) as step:

        def show(point: "Point") -> None:
            curve.append(point)
            step(f"step {point.step} of {steps}: reward {point.greedy:+.3f} greedy, {point.best:+.3f} best of 64")

        made = train_network(settings, kinds, pairs, output, show, step, start)
    if curve:
        _plot(curve, network, output / "curve.png")
    if as_json:
        print_json({"file": str(made), "curve": [point._asdict() for point in curve]})
        return
    rows = table("step", "seconds", "training", "greedy", "mean sample", "best of 64")
    for point in curve[-10:]:
        cells = (point.reward, point.greedy, point.sampled, point.best)
        rows.add_row(str(point.step), f"{point.seconds:.0f}", *(f"{value:+.3f}" for value in cells))
    console.print(f"[bold]{network}[/]: reward (13), λ = 0.8, on 100 instances kept apart\n")
    console.print(rows)
    print_line(f"saved {made}")


def _settings(
    network: str, steps: int, batch: int | None, samples: int | None, rate: float | None, seed: int
) -> "Settings":
    try:
        from penstock.learn.training import Settings
    except ModuleNotFoundError as error:
        if error.name not in ("jax", "jaxlib"):
            raise
        raise FileProblem("jax: is not installed, and training needs it; pip install 'penstock[learn]'") from None
    if network == "neural":
        if samples == 1:
            raise InvalidInput("samples", "expected ≥ 2, as each placement is compared with the others, got 1")
        return Settings(steps=steps, instances=batch or 64, samples=samples or 16, rate=rate or 1e-3, seed=seed)
    weight = 1.0 if network == "ni" else 0.8
    changes = {"network": network, "steps": steps, "seed": seed, "weight": weight}
    rates = {} if rate is None else {"rate": rate, "last_rate": rate}
    return Settings.as_published(**changes, **rates, instances=batch or 20, samples=samples or 1)


def evaluate(
    policy: Annotated[
        list[str] | None,
        typer.Option(help="Policy to compare, the first is what others are compared with; repeatable."),
    ] = None,
    instances: Annotated[
        str, typer.Option(help="Kind of random instances: published, varied, large or huge.")
    ] = "published",
    pairs: Annotated[int, typer.Option(help="Number of instances.", min=1)] = 100,
    seed: SeedOption = 7,
    as_json: JsonOption = False,
) -> None:
    """Compare networks with other policies on random instances.

    The reward is TATA's (13) with λ = 0.8, relative to the mean of i-storm and flink. Networks of your own:
    --policy neural:file=FILE.

    Example: penstock models evaluate placement --instances varied --pairs 50
    """
    _refuse(instances, tuple(KINDS), "instances")
    with counting("comparing", pairs, as_json) as advance:
        found = compare(policy or POLICIES, instances, pairs, seed, lambda done: advance(f"comparing {done}", 1))
    if as_json:
        print_json([_row(one, found[0]) for one in found])
        return
    rows = table("policy", "reward", "difference", "placed", "decided in")
    for one in found:
        row = _row(one, found[0])
        difference = "" if one is found[0] else f"{row['difference']:+.4f} ±{row['interval']:.4f}"
        rows.add_row(
            one.policy, f"{row['reward']:+.4f}", difference, str(row["placed"]), duration(float(row["seconds"]))
        )
    console.print(f"[bold]{pairs} random instances: {instances}[/]; differences are to the first, 95 % intervals\n")
    console.print(rows)


def _row(one: Compared, first: Compared) -> dict[str, float | str]:
    difference, interval = one.against(first)
    placed = np.isfinite(one.rewards)
    return {
        "policy": one.policy,
        "reward": float(one.rewards[placed].mean()) if placed.any() else float("nan"),
        "difference": difference,
        "interval": interval,
        "placed": int(placed.sum()),
        "seconds": float(np.median(one.seconds)),
    }


def _refuse(name: str, known: tuple[str, ...], field: str) -> None:
    if name not in known:
        raise UnknownName(field, f"nothing is named {name!r}; {nearest(name, known)}")


def _plot(curve: "list[Point]", network: str, path: Path) -> None:
    figure, axes = panels(1, 1, 6, 3.5, squeeze=False)
    axis, steps = axes[0, 0], [point.step for point in curve]
    for label, colour in (("best", BEST), ("greedy", BAR), ("sampled", GREY)):
        axis.plot(steps, [getattr(point, label) for point in curve], color=colour, label=label)
    axis.set_xlabel("step")
    axis.set_ylabel("reward (13), λ = 0.8, on instances kept apart")
    axis.legend(frameon=False, fontsize=8)
    axis.set_title(f"{network}: best of 64, greedy, mean sample", fontsize=9)
    tidy(axis, "y")
    save_figure(figure, path)
