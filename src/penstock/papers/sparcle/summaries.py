"""Ratios by instance, gains of means with their limits, distributions: the basis of claims and pictures."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from penstock.experiments.pictures import Axes, Picture, bars_beside, curve_style
from penstock.experiments.statistics import signed
from penstock.model.taskgraph import Floats
from penstock.papers.sparcle import names

RESAMPLES = 1000
PERCENTILES = (5, 25, 50, 75)


class GainOver(NamedTuple):
    """Relative gain of one mean over another, with the limits that contain 95 % of its resamples."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{signed(self.value, 0)} (95 %: {signed(self.low, 0)[:-2]} to {signed(self.high, 0)})"


def column(rows: pd.DataFrame, name: str) -> Floats:
    """Return a column as numbers."""
    return np.asarray(rows[name], dtype=np.float64)


def ratios(rows: pd.DataFrame, policy: str, to: str = names.OPTIMUM) -> Floats:
    """Return the ratio of two policies' rates, instance by instance; 1 if both have no rate."""
    own, other = column(rows, policy), column(rows, to)
    return np.divide(own, other, out=np.ones_like(own), where=other > 0)


def gain_over(rows: pd.DataFrame, policy: str, other: str) -> GainOver:
    """Return the relative gain of one policy's mean over another's, with resampled instances."""
    own, their = column(rows, policy), column(rows, other)
    picked = np.random.default_rng(0).integers(len(own), size=(RESAMPLES, len(own)))
    drawn = own[picked].mean(axis=1) / their[picked].mean(axis=1) - 1.0
    low, high = np.percentile(drawn, [2.5, 97.5])
    return GainOver(float(own.mean() / their.mean() - 1.0), float(low), float(high))


def percentiles(values: Floats) -> str:
    """Format the mean and some percentiles."""
    found = np.percentile(values, PERCENTILES)
    texts = ", ".join(f"p{number} {value:.2f}" for number, value in zip(PERCENTILES, found, strict=True))
    return f"mean {values.mean():.3f}, {texts}"


def half_to_twice(found: float, paper: float) -> bool:
    """Return whether a gain is between half of the paper's and twice as much."""
    return paper / 2 <= found <= 2 * paper


def cdf(axis: Axes, rows: pd.DataFrame, policies: Sequence[str]) -> None:
    """Draw the share of instances at or below a value, one curve per policy; few marks, because points are many."""
    for policy in policies:
        values = np.sort(column(rows, policy))
        share = np.arange(1, len(values) + 1) / len(values)
        every = max(1, len(values) // 8)
        axis.plot(values, share, **_style(policy), markevery=every, label=names.TITLES[policy])
    axis.set_ylim(0, 1)


def boxes(axis: Axes, groups: Mapping[str, Mapping[str, Floats]]) -> None:
    """Draw quartiles with whiskers from the 5th to the 95th percentile: one group per position, one box per policy."""
    policies = list(dict.fromkeys(policy for own in groups.values() for policy in own))
    width = 0.8 / len(policies)
    for rank, policy in enumerate(policies):
        at = [
            place + (rank - (len(policies) - 1) / 2) * width
            for place, own in enumerate(groups.values())
            if policy in own
        ]
        drawn = axis.boxplot(
            [own[policy] for own in groups.values() if policy in own],
            positions=at,
            widths=0.8 * width,
            whis=(5, 95),
            showfliers=False,
            patch_artist=True,
            medianprops={"color": "black", "linewidth": 1.2},
        )
        for box in drawn["boxes"]:
            box.set(facecolor=names.COLOUR[policy], alpha=0.6, linewidth=0.6)
        axis.plot([], [], color=names.COLOUR[policy], linewidth=6, alpha=0.6, label=names.TITLES[policy])
    _places(axis, list(groups))


def bars(axis: Axes, groups: Mapping[str, Mapping[str, float]]) -> None:
    """Draw one group of bars per position, one bar per policy."""
    policies = list(dict.fromkeys(policy for own in groups.values() for policy in own))
    for rank, policy in enumerate(policies):
        heights = [own.get(policy, np.nan) for own in groups.values()]
        look = {"color": names.COLOUR[policy], "alpha": 0.7, "label": names.TITLES[policy]}
        bars_beside(axis, rank, len(policies), heights, **look)
    _places(axis, list(groups))


def curve(axis: Axes, x: Sequence[float], y: Sequence[float], policy: str) -> None:
    """Draw a curve of a policy."""
    axis.plot(x, y, **_style(policy), label=names.TITLES[policy])


def legend_below(picture: Picture, axis: Axes, columns: int = 5) -> None:
    """Draw one legend below all axes, for the curves or bars of one of them."""
    picture.legend(
        *axis.get_legend_handles_labels(), fontsize=8, frameon=False, ncols=columns, loc="outside lower center"
    )


def _places(axis: Axes, names: Sequence[str]) -> None:
    axis.set_xticks(range(len(names)), list(names))
    axis.set_xlim(-0.5, len(names) - 0.5)


def _style(policy: str) -> dict[str, Any]:
    style = curve_style(names.COLOUR[policy])
    if policy in (names.OPTIMUM, names.CLOUD):
        style |= {"linestyle": "-" if policy == names.OPTIMUM else ":", "marker": "", "linewidth": 1.0}
    return style
