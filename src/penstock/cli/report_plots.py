"""The picture of a run: its latency over time, and where the time goes in each component."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from penstock.cli.formatting import phase_labels
from penstock.cli.plots import BAR, BEST, GREY, panels, save_figure, tidy
from penstock.experiments.pictures import Axes
from penstock.pipeline.report_rows import ComponentTimes, PhaseResult, Report

PARTS = {
    "out_wait_mean": "out-queue",
    "transfer_mean": "network",
    "wait_mean": "in-queue",
    "processing_mean": "processing",
}
COLOURS = ("#c9d6e4", "#8fb0cf", "#e3a587", BAR)
BAR_WIDTH = 0.8
CLOSE = 20  # maximum ratio of latencies with room for all labels of a logarithmic axis
LABEL_WIDTH = 0.15  # of the picture, for the name of a phase
RAISED = 1.05  # height of a name that would cover the one before
UPRIGHT = 8  # labels of bars side by side; more are slanted
MOST_BARS = 4  # phases in the lower part: the first and the last ones


def plot_report(report: Report, path: Path) -> None:
    """Draw latency over time, changes marked, above the mean time a tuple spends at each component, phase by phase."""
    figure, (above, below) = panels(2, 1, 9, 7, height_ratios=(3, 2))
    _draw_timeline(above, report)
    _draw_components(below, report)
    where = f", emulated on {report.emulated}" if report.emulated else ""
    figure.suptitle(f"{report.application}{where}: latency of source tuples, and its parts", fontsize=10)
    save_figure(figure, path)


def _draw_timeline(axis: Axes, report: Report) -> None:
    timed = [row for row in report.timeline if row.p50 is not None]
    seconds = [row.second + 0.5 for row in timed]
    axis.plot(seconds, [1e3 * (row.p99 or 0.0) for row in timed], color=BEST, linewidth=1.4, label="p99")
    axis.plot(seconds, [1e3 * (row.p50 or 0.0) for row in timed], color=BAR, linewidth=1.4, label="p50")
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("{x:g}" if high < CLOSE * low else "")
    axis.set_xlim(0, max(report.seconds, 1.0))
    axis.set_xlabel("seconds since the first tuple was due (grey: settling, not counted)")
    axis.set_ylabel("latency (ms)")
    raised, labels = False, phase_labels(report.phases)
    for before, phase in zip([None, *report.phases], report.phases, strict=False):
        close = before is not None and phase.start - before.start < LABEL_WIDTH * report.seconds
        raised = close and not raised
        _mark(axis, phase, labels[phase.number], several=len(report.phases) > 1, height=RAISED if raised else 1.01)
    tidy(axis, "y")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _mark(axis: Axes, phase: PhaseResult, name: str, several: bool, height: float) -> None:
    """Mark the start of a phase, and shade its settling time."""
    axis.axvspan(phase.start, phase.settled, color=GREY, alpha=0.12, linewidth=0)
    if several:
        axis.axvline(phase.start, color=GREY, linewidth=0.9, linestyle="--")
        place = axis.get_xaxis_transform()
        axis.text(phase.start, height, f" {name}", transform=place, fontsize=8, color="#444444", va="bottom")


def _draw_components(axis: Axes, report: Report) -> None:
    names = list(dict.fromkeys(row.component for row in report.components))
    phases = [*report.phases[:1], *report.phases[1:][-(MOST_BARS - 1) :]]
    width = BAR_WIDTH / max(len(phases), 1)
    found = {(row.component, row.phase): row for row in report.components}
    ticks: list[tuple[float, str]] = []
    labels = phase_labels(report.phases)
    for slot, phase in enumerate(phases):
        places = np.arange(len(names)) + (slot - (len(phases) - 1) / 2) * width
        _stack(axis, places, [found.get((name, phase.number)) for name in names], width, labelled=slot == 0)
        ticks += [(float(place), labels[phase.number]) for place in places]
    if len(phases) > 1:
        axis.set_xticks([place for place, _ in ticks], [_broken(name) for _, name in ticks], fontsize=7)
        if len(ticks) > UPRIGHT:
            axis.tick_params(axis="x", labelrotation=30)
        above = axis.secondary_xaxis("top")
        above.set_xticks(range(len(names)), names)
        above.tick_params(length=0)
        above.spines["top"].set_visible(False)
    else:
        axis.set_xticks(range(len(names)), names)
    axis.set_ylabel("mean time per tuple (ms)")
    tidy(axis, "y")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, reverse=True)


def _stack(axis: Axes, places: np.ndarray, rows: Sequence[ComponentTimes | None], width: float, labelled: bool) -> None:
    bottom = np.zeros(len(rows))
    for (part, label), colour in zip(PARTS.items(), COLOURS, strict=True):
        heights = np.array([0.0 if row is None else 1e3 * max(getattr(row, part), 0.0) for row in rows])
        axis.bar(places, heights, width * 0.92, bottom=bottom, color=colour, label=label if labelled else None)
        bottom += heights


def _broken(name: str) -> str:
    """Break a long compound name into two lines."""
    return name.replace("-", "-\n", 1) if len(name) > 12 else name
