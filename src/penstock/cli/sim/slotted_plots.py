"""The picture of a slotted simulation: backlog over time and the distribution of response times, per routing."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from penstock.cli.plots import BEST, GREY, save_figure
from penstock.simulation.slotted import RoutingComparison

COLOURS = ("#4878a8", "#5b9a68", "#8a6bb1", "#b8963e", "#4fa6ad", "#a85c7f", "#6b6b8f", "#8c6d4f", "#7a9a3c")
DASHES = ("-", (0, (6, 2)), (0, (3, 1.5)), (0, (6, 1.5, 1, 1.5)), (0, (1, 1)))  # curves may lie on one another
POINTS = 250  # of a line over time; more would look like a band
FAR = 30.0  # ratio above which an axis is logarithmic
SERVED_AHEAD = 0.1  # slots that represent 0 on a logarithmic axis
RAREST = 1e-4  # share of tuples down to which the distribution is drawn


def plot_simulation(found: RoutingComparison, title: str, path: Path) -> None:
    """Draw the first seed of every routing, the best in orange and on top."""
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 4.6))
    colours = iter(COLOURS * len(found.results))
    for number, result in enumerate(found.results):
        best = result is found.best
        look: dict[str, Any] = {"color": BEST if best else next(colours), "linestyle": DASHES[number % len(DASHES)]}
        look |= {"linewidth": 1.8 if best else 1.2, "zorder": 3 if best else 2}
        outcome = result.outcomes[0]
        seconds, backlog = _coarse(outcome.series.backlog, found.slot_ms)
        left.plot(seconds, backlog, label=result.routing, **look)
        times, share = _exceeding(np.maximum(outcome.responses, SERVED_AHEAD) * found.slot_ms)
        right.step(times, share, where="post", label=result.routing, **look)
    slowest = [max(result.outcomes[0].response_p99, 1.0) for result in found.results]
    if max(slowest) > FAR * min(slowest):
        right.set_xscale("log")
    else:
        right.set_xlim(left=0.0)
    left.set_xlim(0.0, found.slots * found.slot_ms / 1e3)
    left.axvspan(0, found.warm_up * found.slot_ms / 1e3, color=GREY, alpha=0.12, linewidth=0)
    low, high = left.get_ylim()
    if high > FAR * max(low, 1.0):
        left.set_yscale("log")
    _finish(left, "time (s; grey: warm-up, not counted)", "backlog (tuples)")
    right.set_yscale("log")
    right.set_ylim(RAREST, 1.0)
    _finish(right, "response time (ms)", "share of source tuples that take longer (1 is all)")
    right.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=8)
    figure.suptitle(f"{title}: {found.load.offered_tps:,.0f} tuples/s; lowest mean response in orange", fontsize=10)
    save_figure(figure, path)


def _coarse(series: np.ndarray, slot_ms: float) -> tuple[np.ndarray, np.ndarray]:
    """Average over intervals of equal length, for a readable line."""
    each = max(1, len(series) // POINTS)
    whole = len(series) // each * each
    middles = (np.arange(whole // each) + 0.5) * each * slot_ms / 1e3
    return middles, series[:whole].reshape(-1, each).mean(axis=1)


def _exceeding(times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct times, and the share of all that exceeds each."""
    values, counts = np.unique(times, return_counts=True)
    longer = 1.0 - np.cumsum(counts) / max(1, counts.sum())
    return np.concatenate([values[:1], values]), np.concatenate([[1.0], longer])


def _finish(axis: Axes, across: str, up: str) -> None:
    axis.set_xlabel(across)
    axis.set_ylabel(up)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(linewidth=0.4, alpha=0.6)
    axis.set_axisbelow(True)
