"""The picture of an evaluation: predicted against measured times, a panel for each component, stream and the whole."""

import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from penstock.cli.models.evaluate import title
from penstock.cli.models.train import percent
from penstock.cli.plots import BAR, BEST, GREY, save_figure
from penstock.pipeline.accuracy import Compared

ACROSS = 4  # panels
SMALL, LARGE = 5, 9  # dots of the mean predictor and of the models
LEGEND_INCHES = 0.3
SHORT_S = 1e-4  # times below it are in microseconds
TICKS = 5  # of an axis, at most, so that their numbers do not touch


def plot_accuracy(compared: Sequence[Compared], application: str, path: Path) -> None:
    """Draw a dot a window; on the line, predicted and measured are equal."""
    across = min(ACROSS, len(compared))
    down = math.ceil(len(compared) / across)
    figure, axes = pyplot.subplots(
        down, across, figsize=(3.1 * across, 0.5 + LEGEND_INCHES + 3.0 * down), squeeze=False
    )
    for axis, one in zip(axes.flat, compared, strict=False):
        _draw(axis, one)
    for axis in axes.flat[len(compared) :]:
        axis.set_visible(False)
    figure.legend(handles=_kinds(), loc="lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle(f"{application}: predicted against measured means of windows", fontsize=10)
    save_figure(figure, path, below=LEGEND_INCHES)


def _kinds() -> list[Line2D]:
    """Return what a legend says of colours and lines."""
    dots = (("model, of a component or stream", BAR), ("model, of the whole", BEST), ("mean predictor", GREY))
    made = [Line2D([], [], marker="o", linestyle="", markersize=4, color=shade, label=text) for text, shade in dots]
    return [*made, Line2D([], [], color=GREY, linewidth=0.8, linestyle="--", label="predicted = measured")]


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
        _number(axis.xaxis)
        _number(axis.yaxis)
    else:
        axis.locator_params(nbins=TICKS)
    axis.set_title(f"{title(one)}: {percent(one.accuracy())}", fontsize=9)
    axis.set_xlabel(f"measured ({unit})", fontsize=8)
    axis.set_ylabel(f"predicted ({unit})", fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=7)


def _number(axis: Axis) -> None:
    """Write plain numbers on a logarithmic axis, few enough not to touch: it may span less than a power of ten."""
    axis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())
