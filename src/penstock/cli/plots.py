"""Pictures of comparisons."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from penstock.experiments.pictures import Axes, Picture, blank, write_picture
from penstock.planning.planner import Decision, Planner

BAR, BEST, GREY = "#4878a8", "#d1603d", "#888888"


def plot_decisions(planner: Planner, decisions: Sequence[Decision], path: Path) -> None:
    """Draw the predictions of every policy, the best by the objective marked."""
    placed = [decision for decision in decisions if decision.evaluation is not None][::-1]
    best = planner.best(decisions)
    figure, axes = panels(1, 3, 11, 1.2 + 0.32 * max(len(placed), 3), sharey=True)
    measures = (
        ("throughput (source tuples/s)", [d.evaluation.throughput_tps for d in placed if d.evaluation]),
        ("delay (ms)", [d.evaluation.delay_ms for d in placed if d.evaluation]),
        ("traffic between machines (bytes/tuple)", [d.evaluation.traffic.machines for d in placed if d.evaluation]),
    )
    colours = [BEST if decision is best else BAR for decision in placed]
    for axis, (label, values) in zip(axes, measures, strict=True):
        axis.barh([decision.policy for decision in placed], values, color=colours)
        axis.set_xlabel(label)
        tidy(axis, "x")
    figure.suptitle(
        f"{planner.topology.name} on {planner.cluster.name}: estimates; best by {planner.objective} in orange",
        fontsize=10,
    )
    save_figure(figure, path)


def plot_sweep(compared: pd.DataFrame, baseline: str, title: str, path: Path) -> None:
    """Draw every case's throughput and delay relative to the baseline, a row per policy, with the means."""
    placed = compared[compared["placed"]]
    means = placed.groupby("policy")["throughput_tps_ratio"].mean().sort_values()
    policies = list(means.index)
    figure, axes = panels(1, 2, 11, 1.4 + 0.34 * max(len(policies), 3), sharey=True)
    jitter = np.random.default_rng(0)
    for axis, measure, label in (
        (axes[0], "throughput_tps_ratio", f"throughput relative to {baseline} (higher is better)"),
        (axes[1], "delay_ms_ratio", f"delay relative to {baseline} (lower is better)"),
    ):
        for row, policy in enumerate(policies):
            values = placed.loc[placed["policy"] == policy, measure].to_numpy()
            axis.scatter(
                values, row + jitter.uniform(-0.22, 0.22, len(values)), s=9, color=BAR, alpha=0.45, linewidths=0
            )
            axis.scatter([values.mean()], [row], marker="D", s=34, color=BEST, zorder=3)
        axis.axvline(1.0, color=GREY, linewidth=0.8, linestyle="--")
        axis.set_xlabel(label)
        axis.set_yticks(range(len(policies)), policies)
        tidy(axis, "x")
    figure.suptitle(
        f"{title}: {compared['instance'].nunique()} instances; dots are cases, diamonds their means", fontsize=10
    )
    save_figure(figure, path)


def panels(down: int, across: int, width: float, height: float, **how: Any) -> tuple[Picture, Any]:
    """Return a picture, its size in inches, and its axes."""
    picture = blank(width, height)
    return picture, picture.subplots(down, across, **how)


def tidy(axis: Axes, lines: Literal["x", "y", "both"] = "both") -> None:
    """Remove distracting lines, and draw a grid behind the data."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(axis=lines, linewidth=0.4, alpha=0.6)
    axis.set_axisbelow(True)


def save_figure(figure: Picture, path: Path, below: float = 0.0) -> None:
    """Write a picture in the format of its suffix; leave `below` inches free under the axes."""
    figure.tight_layout(rect=(0.0, below / figure.get_figheight(), 1.0, 1.0))
    write_picture(figure, path)
