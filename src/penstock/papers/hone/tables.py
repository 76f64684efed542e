"""Means and spreads over seeds: computed, compared, formatted for a table of claims, and drawn."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from penstock.experiments.pictures import Axes, label, number_powers, shade
from penstock.experiments.statistics import deviation
from penstock.papers.hone.links import RULE

PAPER_RUNS = 1  # the paper does not mention several
CHECK_RUNS = 10
JUDGED = "or two standard errors"
FEW = 100.0  # maximum ratio of an axis that has room for labels between powers of ten


class Spread(NamedTuple):
    """A mean over seeds, and the standard deviation of single runs around it."""

    mean: float
    deviation: float
    runs: int

    def allows(self, value: float, least: float, runs: int) -> bool:
        """Return whether a mean over other runs may be equal: within `least` or two standard errors."""
        error = self.deviation * sqrt(1.0 / self.runs + 1.0 / runs)
        return abs(self.mean - value) <= max(least, 2.0 * error)

    @property
    def percent(self) -> str:
        """A share, formatted such as `82 ± 2 %`."""
        return f"{100 * self.mean:.0f} ± {100 * self.deviation:.0f} %"

    @property
    def text(self) -> str:
        """A number, formatted such as `4.2 ± 0.4`."""
        return f"{self.mean:.1f} ± {self.deviation:.1f}"


Spreads = dict[Any, Spread]
"""By rate, number of queues, kind of arrivals or τ, in ascending order."""


def spreads(rows: pd.DataFrame, measure: str, by: str) -> Spreads:
    """Return mean and deviation for every value of a column."""
    return {value: _spread(own[measure].to_numpy()) for value, own in rows.groupby(by)}


def by_rule(rows: pd.DataFrame, measure: str, by: str) -> dict[str, Spreads]:
    """Return the same for every rule."""
    return {str(rule): spreads(own, measure, by) for rule, own in rows.groupby("rule")}


def reductions(rows: pd.DataFrame, measure: str, rule: str, base: str, by: str) -> Spreads:
    """Return the relative reduction of a measure by a rule compared with another, on the same arrivals."""
    wide = rows.pivot_table(index=[by, "seed"], columns="rule", values=measure)
    share = (1.0 - wide[rule] / wide[base]).rename("share").reset_index()
    return spreads(share, "share", by)


def apart(rows: pd.DataFrame, measure: str, by: Sequence[str], columns: str) -> float:
    """Return the largest relative difference between columns of any run."""
    wide = rows.pivot_table(index=[*by, "seed"], columns=columns, values=measure).to_numpy()
    return float(((wide.max(axis=1) - wide.min(axis=1)) / wide.max(axis=1)).max())


def _spread(values: Any) -> Spread:
    return Spread(float(np.mean(values)), deviation(values), len(values))


def averages(found: Spreads) -> list[float]:
    """Return the means alone."""
    return [one.mean for one in found.values()]


def percents(found: Spreads, places: Iterable[int], unit: str) -> str:
    """Format shares at several places: `69 ± 4 % at 500/s, 85 ± 3 % at 900/s`."""
    return ", ".join(f"{found[x].percent} at {x:,}{unit}" for x in places)


def growing(values: Sequence[float], slack: float = 0.0, share: float = 0.0) -> bool:
    """Return whether values grow from one to the next, or decrease by at most `slack` plus a share of the previous."""
    return all(after >= before * (1.0 - share) - slack for before, after in pairwise(values))


def draw_lines(axis: Axes, rows: pd.DataFrame, measure: str, by: str, rules: Sequence[str]) -> None:
    """Draw a rule's mean over seeds as a line, one standard deviation around it shaded."""
    found = by_rule(rows, measure, by)
    for name in rules:
        if name not in found:
            continue
        look, across = RULE[name], list(found[name])
        mean, around, _ = (np.array(column) for column in zip(*found[name].values(), strict=True))
        marked: dict[str, Any] = {"marker": look.mark, "markersize": 4.0, "markerfacecolor": "none", "linewidth": 1.4}
        axis.plot(across, mean, look.line, color=look.colour, label=name, **marked)
        shade(axis, across, mean, around, look.colour)


def draw_means(axis: Axes, found: Mapping[Any, Spread], line: str, colour: str, name: str) -> None:
    """Draw means as a line with a mark at each."""
    across, up = list(found), [one.mean for one in found.values()]
    axis.plot(across, up, line, color=colour, label=name, linewidth=1.4, marker="o", markersize=3)


def mark(axis: Axes, places: Sequence[int]) -> None:
    """Make the axis across logarithmic, with a label at every place."""
    axis.set_xscale("log")
    axis.set_xticks(places, [str(place) for place in places])
    axis.set_xticks([], minor=True)


def finish(axis: Axes, across: str, up: str, title: str = "", logarithmic: bool = False) -> None:
    """Label an axis, with a logarithmic y-axis if requested and as many labels as fit."""
    label(axis, across, up, title)
    if logarithmic:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        number_powers(axis.yaxis, (1.0,) if high > FEW * low else (1.0, 2.0, 5.0), "{x:,g}")
