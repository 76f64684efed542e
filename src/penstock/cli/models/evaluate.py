"""`penstock models evaluate`: compare latency models with measured latencies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from penstock.cli.inputs import JsonOption, MasterOption, refuse_outputs
from penstock.cli.models.train import TablesArgument, percent, working
from penstock.cli.output import console, duration, print_json, table
from penstock.estimate.latency_models import LatencyModels, load_models
from penstock.pipeline.accuracy import Compared, evaluate_latency
from penstock.pipeline.training import window_of

EXAMPLE = "penstock models evaluate other-tables --model word-count.npz --plot accuracy.png"
NAMES = {"paths": "overall, by paths", "trees": "overall, whole tuples"}


def evaluate(
    tables: TablesArgument,
    model: Annotated[Path, typer.Option(help="File of latency models, from penstock models train.")],
    plot: Annotated[Path | None, typer.Option(help="Draw predicted against measured times (.png, .svg, .pdf).")] = None,
    in_sample: Annotated[
        bool, typer.Option("--in-sample", help="Also compare with runs that the models were trained on.")
    ] = False,
    master: MasterOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compare latency models with measured latencies.

    Accuracy is 1 - |predicted - measured| / measured of the means of windows, per component, per stream and for the
    whole application, beside a mean predictor and a linear model trained on the same rows. Tables of runs that the
    models were trained on are rejected without --in-sample: models look better on them than they are. The whole is the
    longest path of means; a tuple that becomes many takes longer, since the last of them counts.
    """
    refuse_outputs(None, plot, str(tables))
    models = load_models(model)
    with working(tables, master, quiet=as_json) as (spark, log_step):
        compared, known = evaluate_latency(spark, tables, models, in_sample=in_sample, step=log_step)
        window_s = window_of(tables)
    if plot is not None:
        from penstock.cli.models.evaluate_plots import plot_accuracy  # imports matplotlib

        plot_accuracy(compared, models.application, plot)
    if as_json:
        _print_json(compared, models, known)
        return
    show(compared, models)
    if known:
        warning = f"in-sample: the model was trained on {len(known)} of these runs; it looks better than it is"
        console.print(f"[bold yellow]{warning}[/]", soft_wrap=True)
    if window_s != models.window_s:
        console.print(f"[yellow]windows are {window_s:g} s here, {models.window_s:g} s in the training[/]")
    if plot is not None:
        console.print(f"drew {plot}", markup=False, soft_wrap=True)


def title(one: Compared) -> str:
    """Return the title of a comparison."""
    return NAMES.get(one.name, one.name) if one.of == "overall" else one.name


def in_training(one: Compared, models: LatencyModels) -> float | None:
    """Return the held-out accuracy of the training; None if it is unknown, as for the whole."""
    found: float | None = models.notes.get(f"{one.of} {one.name}", {}).get("accuracy")
    return found


def show(compared: Sequence[Compared], models: LatencyModels) -> None:
    """Print how close models came, beside simpler models and their held-out accuracy in training."""
    sets = list(compared[0].predicted)
    rows = table("", "windows", "measured", "predicted", "accuracy", *sets[1:])
    for one in compared:
        means = (duration(_mean(one.measured)), duration(_mean(one.predicted["model"])))
        accuracies = [percent(one.accuracy(name)) for name in sets]
        name = f"[bold]{escape(title(one))}[/]" if one.of == "overall" else escape(title(one))
        rows.add_row(name, f"{len(one.measured):,}", *means, f"[bold]{accuracies[0]}[/]", *accuracies[1:])
    console.print(f"[bold]{escape(models.application)}[/]: latency models against measured windows\n")
    console.print(rows)
    console.print("[dim]accuracy: mean over windows; the columns behind it are simpler models[/]", soft_wrap=True)
    known = [
        f"{escape(one.name)} {percent(accuracy)}"
        for one in compared
        if (accuracy := in_training(one, models)) is not None
    ]
    if known:
        console.print(f"[dim]in the training, on what was kept apart: {', '.join(known)}[/]", soft_wrap=True)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _print_json(compared: Sequence[Compared], models: LatencyModels, known: Sequence[str]) -> None:
    rows = [
        {
            "of": one.of,
            "name": one.name,
            "windows": len(one.measured),
            "measured_s": _mean(one.measured),
            "predicted_s": {name: _mean(values) for name, values in one.predicted.items()},
            "accuracy": {name: one.accuracy(name) for name in one.predicted},
            "in_training": in_training(one, models),
        }
        for one in compared
    ]
    print_json({"application": models.application, "in_sample": list(known), "rows": rows})
