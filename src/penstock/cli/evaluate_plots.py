"""The picture of an evaluation: predicted against measured times, a panel for each component, stream and the whole."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import pyplot
from matplotlib.axes import Axes

from penstock.cli.evaluate import title
from penstock.cli.plots import BAR, BEST, GREY, save_figure
from penstock.cli.train import percent

if TYPE_CHECKING:
    from penstock.pipeline.accuracy import Compared

ACROSS = 4  # panels
MS = 1e3


def plot_accuracy(compared: "Sequence[Compared]", application: str, path: Path) -> None:
    """Draw a dot a window; on the line, predicted and measured are equal."""
    across = min(ACROSS, len(compared))
    down = math.ceil(len(compared) / across)
    figure, axes = pyplot.subplots(down, across, figsize=(3.1 * across, 0.5 + 3.0 * down), squeeze=False)
    for axis, one in zip(axes.flat, compared, strict=False):
        _draw(axis, one)
    for axis in axes.flat[len(compared) :]:
        axis.set_visible(False)
    figure.suptitle(f"{application}: predicted against measured means of windows, ms; grey is the mean predictor")
    save_figure(figure, path)


def _draw(axis: Axes, one: "Compared") -> None:
    measured = [MS * value for value in one.measured]
    colour = BEST if one.of == "overall" else BAR
    for name, shade, size in (("mean", GREY, 5), ("model", colour, 9)):
        if name in one.predicted:
            predicted = [MS * value for value in one.predicted[name]]
            axis.scatter(measured, predicted, s=size, color=shade, alpha=0.6, linewidths=0)
    everything = [*measured, *(MS * value for value in one.predicted["model"])]
    ends = [0.9 * min(everything), 1.1 * max(everything)]
    axis.plot(ends, ends, color=GREY, linewidth=0.8, linestyle="--")
    if max(everything) > 10 * min(everything):
        axis.set_xscale("log")
        axis.set_yscale("log")
    axis.set_title(f"{title(one)}: {percent(one.accuracy())}", fontsize=9)
    axis.spines[["top", "right"]].set_visible(False)
    axis.tick_params(labelsize=7)
