"""The picture of a run under its autopilot: latency over time, decisions marked."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot
from matplotlib.axes import Axes

from penstock.autopilot.control_target import Reading
from penstock.autopilot.ledger import Episode, LedgerContents
from penstock.cli.plots import BAR, BEST, GREY, save_figure

COLOURS = {"kept": "#3a8f5c", "rolled back": BEST, "shadow": GREY}
QUIET = ("held",)  # decisions not to act, marked on the axis only
BOUND = "bound, while judged"
APART = 2.0  # a longer gap, in lengths of the shorter of two readings, breaks the line


def plot_history(book: LedgerContents, title: str, path: Path) -> None:
    """Draw the mean and the 99th percentile of every reading, the bound of every change, and its outcome."""
    figure, axis = pyplot.subplots(figsize=(9, 4))
    _draw_readings(axis, book.readings)
    named: set[str] = set()
    for episode in book.episodes:
        decision, verdict = episode.decision, episode.verdict
        label = "" if verdict in named else verdict  # an empty label is not in the legend
        named.add(verdict)
        if verdict in QUIET:
            axis.plot([decision.at], [0], "|", color=GREY, clip_on=False, zorder=3, label=label)
            continue
        colour = COLOURS.get(verdict, "#444444")
        axis.axvline(decision.at, color=colour, linewidth=1.0, linestyle="--", label=label)
        axis.text(decision.at, 1.01, f" {decision.number}", transform=axis.get_xaxis_transform(), fontsize=8)
        if (times := in_force(episode)) is not None:
            bound = "" if BOUND in named else BOUND
            named.add(BOUND)
            axis.hlines(1e3 * decision.bound_s, *times, color=colour, linewidth=1.0, label=bound)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("time since the run began (s)")
    axis.set_ylabel("latency (ms)")
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis="y", linewidth=0.4, alpha=0.6)
    axis.set_axisbelow(True)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    figure.suptitle(title, fontsize=10)
    save_figure(figure, path)


def _draw_readings(axis: Axes, readings: Sequence[Reading]) -> None:
    for number, stretch in enumerate(stretches(readings)):
        times = [reading.at for reading in stretch]
        lone = "." if len(stretch) == 1 else ""  # a line through one point is invisible
        labels = ("", "") if number else ("p99", "mean")
        p99 = [1e3 * (reading.p99_s or 0.0) for reading in stretch]
        axis.plot(times, p99, marker=lone, color="#c9d6e4", linewidth=1.2, label=labels[0])
        mean = [1e3 * (reading.mean_s or 0.0) for reading in stretch]
        axis.plot(times, mean, marker=lone, color=BAR, linewidth=1.5, label=labels[1])


def in_force(episode: Episode) -> tuple[float, float] | None:
    """Return the start and end of a change before its outcome; None: it was never in force, or still is.

    It starts when the policy had decided, not when the decision was requested.
    """
    outcome = episode.outcome
    return None if outcome is None or not outcome.in_force_s else (outcome.at - outcome.in_force_s, outcome.at)


def stretches(readings: Sequence[Reading]) -> list[list[Reading]]:
    """Split readings into continuous stretches, at gaps without latencies: during decisions and recoveries."""
    found: list[list[Reading]] = []
    before = None
    for reading in readings:
        if reading.mean_s is None:
            before = None
            continue
        shorter = reading.seconds if before is None else min(reading.seconds, before.seconds)
        if before is None or reading.at - before.at > APART * shorter:
            found.append([])
        found[-1].append(reading)
        before = reading
    return found
