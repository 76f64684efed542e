"""`penstock models evaluate latency`: compare latency models with measured latencies."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from penstock.cli.inputs import PICTURES, JsonOption, MasterOption, refuse_file
from penstock.cli.models.train import TablesArgument, percent_or_dash, working
from penstock.cli.output import console, duration, print_json, print_line, table
from penstock.cli.plots import BAR, BEST, GREY, panels, save_figure
from penstock.estimate.latency_models import LatencyModels, load_models
from penstock.experiments.pictures import Axes, number_powers
from penstock.pipeline.accuracy import Compared, evaluate_latency
from penstock.pipeline.training import window_of

NAMES = {"paths": "overall, by paths", "trees": "overall, whole tuples"}
ACROSS = 4  # panels
SMALL, LARGE = 5, 9  # dots of the mean predictor and of the models
LEGEND_INCHES = 0.3
SHORT_S = 1e-4  # times below it are in microseconds
TICKS = 5  # of an axis, at most, so that their numbers do not touch


def evaluate(
    tables: TablesArgument,
    model: Annotated[Path, typer.Option(help="File of latency models, from penstock models train latency.")],
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

    Example: penstock models evaluate latency other-tables --model word-count.npz --plot accuracy.png
    """
    refuse_file(plot, PICTURES, str(tables))
    models = load_models(model)
    with working(tables, master, quiet=as_json) as (spark, log_step):
        compared, known = evaluate_latency(spark, tables, models, in_sample=in_sample, step=log_step)
        window_s = window_of(tables)
    if plot is not None:
        plot_accuracy(compared, models.application, plot)
    if as_json:
        _print_json(compared, models, known)
        return
    show_accuracy(compared, models)
    if known:
        warning = f"in-sample: the model was trained on {len(known)} of these runs; it looks better than it is"
        console.print(f"[bold yellow]{warning}[/]", soft_wrap=True)
    if window_s != models.window_s:
        console.print(f"[yellow]windows are {window_s:g} s here, {models.window_s:g} s in the training[/]")
    if plot is not None:
        print_line(f"drew {plot}")


def title(one: Compared) -> str:
    """Return the title of a comparison."""
    return NAMES.get(one.name, one.name) if one.of == "overall" else one.name


def in_training(one: Compared, models: LatencyModels) -> float | None:
    """Return the held-out accuracy of the training; None if it is unknown, as for the whole."""
    found: float | None = models.notes.get(f"{one.of} {one.name}", {}).get("accuracy")
    return found


def show_accuracy(compared: Sequence[Compared], models: LatencyModels) -> None:
    """Print how close models came, beside simpler models and their held-out accuracy in training."""
    sets = list(compared[0].predicted)
    rows = table("", "windows", "measured", "predicted", "accuracy", *sets[1:])
    for one in compared:
        means = (duration(_mean(one.measured)), duration(_mean(one.predicted["model"])))
        accuracies = [percent_or_dash(one.accuracy(name)) for name in sets]
        name = f"[bold]{escape(title(one))}[/]" if one.of == "overall" else escape(title(one))
        rows.add_row(name, f"{len(one.measured):,}", *means, f"[bold]{accuracies[0]}[/]", *accuracies[1:])
    console.print(f"[bold]{escape(models.application)}[/]: latency models against measured windows\n")
    console.print(rows)
    console.print("[dim]accuracy: mean over windows; the columns behind it are simpler models[/]", soft_wrap=True)
    known = [
        f"{escape(one.name)} {percent_or_dash(accuracy)}"
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


def plot_accuracy(compared: Sequence[Compared], application: str, path: Path) -> None:
    """Draw a dot a window; on the line, predicted and measured are equal."""
    across = min(ACROSS, len(compared))
    down = math.ceil(len(compared) / across)
    figure, axes = panels(down, across, 3.1 * across, 0.5 + LEGEND_INCHES + 3.0 * down, squeeze=False)
    for axis, one in zip(axes.flat, compared, strict=False):
        _draw(axis, one)
    for axis in axes.flat[len(compared) :]:
        axis.set_visible(False)
    figure.legend(handles=_kinds(axes.flat[0]), loc="lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle(f"{application}: predicted against measured means of windows", fontsize=10)
    save_figure(figure, path, below=LEGEND_INCHES)


def _kinds(axis: Axes) -> list[Any]:
    """Return what a legend says of colours and lines."""
    dots = (("model, of a component or stream", BAR), ("model, of the whole", BEST), ("mean predictor", GREY))
    for text, shade in dots:
        axis.plot([], [], "o", markersize=4, color=shade, label=text)
    axis.plot([], [], color=GREY, linewidth=0.8, linestyle="--", label="predicted = measured")
    return list(axis.get_legend_handles_labels()[0])


def _draw(axis: Axes, one: Compared) -> None:
    unit, scale = ("µs", 1e6) if max(one.measured) < SHORT_S else ("ms", 1e3)
    measured = [scale * value for value in one.measured]
    colour = BEST if one.of == "overall" else BAR
    for name, shade, size in (("mean", GREY, SMALL), ("model", colour, LARGE)):
        if name in one.predicted:
            predicted = [scale * value for value in one.predicted[name]]
            axis.scatter(measured, predicted, s=size, color=shade, alpha=0.6, linewidths=0)
    everything = [*measured, *(scale * value for value in one.predicted["model"])]
    ends = [0.9 * min(everything), 1.1 * max(everything)]
    axis.plot(ends, ends, color=GREY, linewidth=0.8, linestyle="--")
    if max(everything) > 10 * min(everything):
        axis.set_xscale("log")
        axis.set_yscale("log")
        for side in (axis.xaxis, axis.yaxis):  # which may span less than a power of ten
            number_powers(side, (1.0, 3.0), "{x:g}")
    else:
        axis.locator_params(nbins=TICKS)
    axis.set_title(f"{title(one)}: {percent_or_dash(one.accuracy())}", fontsize=9)
    axis.set_xlabel(f"measured ({unit})", fontsize=8)
    axis.set_ylabel(f"predicted ({unit})", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=7)
