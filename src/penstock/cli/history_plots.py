"""The picture of a run under its autopilot: latency over time, decisions marked."""

from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib import pyplot

from penstock.cli.plots import BAR, BEST, GREY, save_figure

if TYPE_CHECKING:
    from penstock.control.loop.ledger import Book

COLOURS = {"kept": "#3a8f5c", "rolled back": BEST, "shadow": GREY}
QUIET = ("held",)  # decisions to leave all as it is, marked on the axis only
BOUND = "bound, while judged"


def plot_history(book: "Book", title: str, path: Path) -> None:
    """Draw the mean and the 99th percentile of every reading, the bound of every change, and what became of it."""
    figure, axis = pyplot.subplots(figsize=(9, 4))
    seen = [reading for reading in book.readings if reading.mean_s is not None]
    times = [reading.at for reading in seen]
    axis.plot(times, [1e3 * (reading.p99_s or 0.0) for reading in seen], color="#c9d6e4", linewidth=1.2, label="p99")
    axis.plot(times, [1e3 * (reading.mean_s or 0.0) for reading in seen], color=BAR, linewidth=1.5, label="mean")
    named: set[str] = set()
    for episode in book.episodes:
        decision, verdict = episode.decision, episode.verdict
        label = "" if verdict in named else verdict  # an empty one is not in the legend
        named.add(verdict)
        if verdict in QUIET:
            axis.plot([decision.at], [0], "|", color=GREY, clip_on=False, zorder=3, label=label)
            continue
        colour = COLOURS.get(verdict, "#444444")
        axis.axvline(decision.at, color=colour, linewidth=1.0, linestyle="--", label=label)
        axis.text(decision.at, 1.01, f" {decision.number}", transform=axis.get_xaxis_transform(), fontsize=8)
        if episode.outcome is not None and episode.outcome.at > decision.at:
            bound = "" if BOUND in named else BOUND
            named.add(BOUND)
            at = (decision.at, episode.outcome.at)
            axis.hlines(1e3 * decision.bound_s, *at, color=colour, linewidth=1.0, label=bound)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("time since the run began (s)")
    axis.set_ylabel("latency (ms)")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", linewidth=0.4, alpha=0.6)
    axis.set_axisbelow(True)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.suptitle(title, fontsize=10)
    save_figure(figure, path)
