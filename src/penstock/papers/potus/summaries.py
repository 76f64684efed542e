"""Means over seeds, ratios by seed, linear fits: the basis of claims and pictures."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import t as student

from penstock.experiments.pictures import Axes, curve_style, shade
from penstock.experiments.statistics import deviation, signed
from penstock.model.taskgraph import Floats

ACROSS_V = "V (tuples a unit of cost)"
RESAMPLES = 2000
GROWN, LEFT = 0.01, 0.05  # of the arrivals: growth of the backlog, and tuples left at the end, of a steady run


class Line(NamedTuple):
    """A straight line through points."""

    slope: float
    start: float  # at 0
    fit: float  # R², the share of the variance that it explains


class Range(NamedTuple):
    """An estimate and the limits that hold 95 % of its resamples."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.2f} (95 %: {self.low:.2f} to {self.high:.2f})"


def span(shares: Floats, digits: int = 1) -> str:
    """Format the minimum and the maximum of some shares as percent with a sign."""
    return f"{signed(shares.min(), digits)[:-2]} to {signed(shares.max(), digits)}"


def by_seed(rows: pd.DataFrame, measure: str) -> "pd.Series[float]":
    """Return a measure of one series of runs, one value per seed."""
    return rows.groupby("seed")[measure].mean()


def over(rows: pd.DataFrame, others: pd.DataFrame, measure: str) -> Floats:
    """Return the ratio of two series of runs, seed by seed. [seeds]"""
    return np.asarray((by_seed(rows, measure) / by_seed(others, measure)).dropna(), dtype=np.float64)


def cost_ratio(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the ratio of the cost to the minimum cost of the arrivals."""
    return rows.assign(ratio=rows["cost"] / rows["optimum"])


def with_predictor(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the name of the prediction; without look-ahead there is none."""
    return rows.assign(predictor=rows["forecast"].where(rows["window"] > 0, "none"))


def steady(rows: pd.DataFrame) -> bool:
    """Return whether queues neither grow nor shrink much while the run counts, so that costs correspond to arrivals.

    Some tuples are always left at the end: the number that arrives while one is in the system.
    """
    return bool((rows["growth"].abs() <= GROWN).all() and (rows["unfinished"] <= LEFT).all())


def unsteadiness(rows: pd.DataFrame) -> str:
    """Format the criteria of `steady`."""
    return f"backlog grew by {span(rows['growth'].to_numpy(), 2)} of what came, {rows['unfinished'].max():.1%} left"


def means(rows: pd.DataFrame, x: str, measure: str) -> "pd.Series[float]":
    """Return the mean of a measure at every x, in ascending order."""
    return rows.groupby(x)[measure].mean().sort_index()


def spread(values: Floats, digits: int = 2) -> str:
    """Format values by mean and standard deviation."""
    return f"{values.mean():.{digits}f} ±{deviation(values):.{digits}f}"


def upper(values: Floats) -> float:
    """Return the upper limit of a mean: 95 % one-sided, by Student's t; of a single value: that value."""
    if len(values) < 2:
        return float(values.mean())
    return float(values.mean() + student.ppf(0.95, len(values) - 1) * deviation(values) / np.sqrt(len(values)))


def fit_line(points: "pd.Series[float]") -> Line:
    """Fit a straight line to values by their index."""
    x, y = points.index.to_numpy(dtype=np.float64), points.to_numpy(dtype=np.float64)
    slope, start = np.polyfit(x, y, 1)
    left, total = ((y - slope * x - start) ** 2).sum(), ((y - y.mean()) ** 2).sum()
    return Line(float(slope), float(start), float(1.0 - left / total) if total > 0 else 1.0)


def crossing(curve: "pd.Series[float]", level: float) -> float:
    """Return where an increasing curve first exceeds a level; its first x if it is always above, inf if never."""
    above = np.flatnonzero(curve.to_numpy() > level)
    if not len(above):
        return np.inf
    if above[0] == 0:
        return float(curve.index[0])
    low, high = curve.iloc[above[0] - 1], curve.iloc[above[0]]
    x_low, x_high = float(curve.index[above[0] - 1]), float(curve.index[above[0]])
    return x_low + (x_high - x_low) * float((level - low) / (high - low))


def power(gaps: pd.DataFrame, rng: np.random.Generator) -> Range:
    """Return the slope of log(gap) against log(V), seeds resampled. gaps: row per seed, column per V; positive means"""
    table, v = gaps.to_numpy(dtype=np.float64), np.log(gaps.columns.to_numpy(dtype=np.float64))

    def slope(picked: Floats) -> float:
        found = picked.mean(axis=0)
        able = found > 0
        return float(np.polyfit(v[able], np.log(found[able]), 1)[0]) if able.sum() > 1 else np.nan

    drawn = [slope(table[rng.integers(len(table), size=len(table))]) for _ in range(RESAMPLES)]
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return Range(slope(table), float(low), float(high))


def curve(axis: Axes, rows: pd.DataFrame, x: str, measure: str, name: str, colour: str, dash: str = "") -> None:
    """Draw the mean over seeds with its standard deviation; default dash: that of its colour."""
    grouped = rows.groupby(x)[measure]
    mean, around = grouped.mean(), grouped.std().fillna(0.0)
    axis.plot(mean.index, mean, **{**curve_style(colour), **({"linestyle": dash} if dash else {})}, label=name)
    shade(axis, mean.index, np.asarray(mean, dtype=np.float64), np.asarray(around, dtype=np.float64), colour)


def level(axis: Axes, rows: pd.DataFrame, measure: str, name: str, colour: str) -> None:
    """Draw the mean of a measure that does not depend on x as a horizontal line."""
    if len(rows):
        axis.axhline(rows[measure].mean(), color=colour, linewidth=1.1, linestyle="--", label=name)
