"""The picture of a back-test: arrivals and forecasts over a part of each trace, beside the errors."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from penstock.cli.formatting import plural
from penstock.cli.output import duration, number
from penstock.cli.plots import BEST, GREY, save_figure
from penstock.cli.sim.forecast import Backtest, best_of
from penstock.cli.sim.series import Series
from penstock.policies.forecast.backtest import warm_up

STRETCH = 80  # slots that are drawn
COLOURS = ("#4878a8", "#5b9a68", "#8a6bb1", "#b8963e", "#4fa6ad", "#a85c7f", "#6b6b8f", "#8c6d4f")
FAR = 30.0  # ratio of errors above which an axis is logarithmic


def plot_forecasts(tried: Sequence[tuple[Series, Sequence[Backtest]]], lead: int, path: Path) -> None:
    """Draw a row per trace: arrivals with the forecasts, oracles excluded, and the squared errors of all."""
    bars = max(len(rows) for _, rows in tried)
    height = max(2.6, 0.9 + 0.24 * bars)
    figure, axes = pyplot.subplots(
        len(tried), 2, figsize=(12, 0.5 + height * len(tried)), width_ratios=(5, 2), squeeze=False
    )
    for (left, right), (series, rows) in zip(axes, tried, strict=True):
        colour = _colours(rows)
        _draw_stretch(left, series, rows, colour, lead)
        _draw_errors(right, rows, colour)
    figure.suptitle(
        f"Forecasts {plural(lead, 'slot')} ahead: arrivals in grey; the lowest squared error in orange", fontsize=10
    )
    save_figure(figure, path)


def _colours(rows: Sequence[Backtest]) -> dict[str, str]:
    """Return a colour for each forecaster with nonzero forecasts, the same in every row; the best has its own."""
    best = best_of(rows)
    active = [row for row in rows if row.honest and row.forecasts.any()]
    chosen = {row.forecaster: COLOURS[i % len(COLOURS)] for i, row in enumerate(active)}
    return {row.forecaster: BEST if row is best else chosen.get(row.forecaster, GREY) for row in rows}


def _draw_stretch(axis: Axes, series: Series, rows: Sequence[Backtest], colour: Mapping[str, str], lead: int) -> None:
    """Draw the middle of the judged slots: arrivals as bars, forecasts as lines."""
    first = warm_up(len(series.counts), lead)
    begin = max(first, (first + len(series.counts) - STRETCH) // 2)
    slots = np.arange(begin, min(begin + STRETCH, len(series.counts)))
    axis.bar(slots, series.counts[slots], width=0.9, color=GREY, alpha=0.35)
    for row in rows:
        if colour[row.forecaster] != GREY:
            top = colour[row.forecaster] == BEST
            axis.plot(
                slots,
                row.forecasts[slots],
                color=colour[row.forecaster],
                linewidth=1.9 if top else 1.1,
                zorder=3 if top else 2,
            )
    axis.set_xlim(slots[0] - 0.6, slots[-1] + 0.6)
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_title(series.name, fontsize=9, loc="left")
    axis.set_xlabel(f"slot, of {duration(series.slot)}: {len(slots)} of {len(series.counts):,}")
    axis.set_ylabel("tuples a slot")
    _tidy(axis, "y")


def _draw_errors(axis: Axes, rows: Sequence[Backtest], colour: Mapping[str, str]) -> None:
    """Draw the squared errors as bars, in the colours of the lines, as their legend."""
    errors = [row.score.mse for row in rows]
    some = [error for error in errors if error > 0]
    logarithmic = bool(some) and max(some) > FAR * min(some)
    places = np.arange(len(rows))
    axis.barh(places, errors, color=[colour[row.forecaster] for row in rows], height=0.7)
    if logarithmic:
        axis.set_xscale("log")
        axis.set_xlim(left=min(some) / 2, right=max(some) * 4)
    else:
        axis.set_xlim(0, 1.25 * max(some, default=1.0))
    for place, error in zip(places, errors, strict=True):
        axis.annotate(
            number(error),
            (max(error, axis.get_xlim()[0]), place),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=7,
        )
    axis.set_yticks(places, [row.forecaster.replace(":", "\n") for row in rows], fontsize=8)
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_color(colour[row.forecaster])
    axis.invert_yaxis()
    axis.set_xlabel("mean squared error" + (", logarithmic" if logarithmic else ""))
    _tidy(axis, "x")


def _tidy(axis: Axes, lines: Literal["x", "y"]) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis=lines, linewidth=0.4, alpha=0.6)
    axis.set_axisbelow(True)
