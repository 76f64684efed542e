"""Comparison of choices of policies: ratios to the best of the same place, with confidence limits over rounds.

A *place* is one kind of arrivals at one load. All choices of a round had the same arrivals, so rounds are resampled
together (a paired bootstrap); the best choice is determined again in every resample, so that its luck is part of the
limits. With few rounds, limits are approximate, and rather too narrow than too wide.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import numpy as np
import pandas as pd

from penstock.model.taskgraph import Floats
from penstock.papers.hone.live.trial import Choice

MEASURES = ("mean_ms", "p99_ms")
DRAWS = 4000
CONFIDENCE = 0.95  # two-sided
ALLOWED = 1.05  # maximum ratio of a default to the best
WANTED = 0.8  # minimum share of places and measures in which a default achieves that

Rule = Callable[[str, str], Choice]
"""From arrivals and the measure to minimise, one of `MEASURES`, to the default choice."""


class Ratio(NamedTuple):
    """A choice relative to the best, or to another."""

    ratio: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """Formatted, such as `1.02 (1.00–1.04)`."""
        return f"{self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"


class Judged(NamedTuple):
    """A rule at one place, for one measure."""

    arrivals: str
    load: float
    measure: str
    choice: Choice
    best: Choice
    ratio: Ratio

    @property
    def within(self) -> bool:
        """Whether the upper limit is acceptable for a default."""
        return self.ratio.high <= ALLOWED

    @property
    def place(self) -> str:
        """Formatted, such as `bursty 95 % p99`."""
        return f"{place_text(self.arrivals, self.load)} {self.measure.removesuffix('_ms')}"


def place_text(arrivals: str, load: float) -> str:
    """Format a place, such as `bursty 95 %`."""
    return f"{arrivals} {100 * load:.0f} %"


def by_place(rows: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame]]:
    """Yield the arrivals, the load and the rows of every place."""
    for arrivals, by_arrivals in rows.groupby("arrivals", sort=False):
        for load, own in by_arrivals.groupby("load"):
            yield str(arrivals), cast(float, load), own


def by_round(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return a measure of one place: one row per round that every choice has, one column per choice."""
    return rows.set_index(["seed", "round", "routing", "sending"])[measure].unstack(["routing", "sending"]).dropna()


def to_best(rows: pd.DataFrame, measure: str) -> dict[Choice, Ratio]:
    """Return the ratio of every choice of one place to the best one."""
    wide = by_round(rows, measure)
    values = wide.to_numpy()
    mean = values.mean(axis=0)
    drawn = _drawn(values)
    ratios = drawn / drawn.min(axis=1, keepdims=True)
    return {
        Choice(*names): Ratio(float(mean[place] / mean.min()), *_limits(ratios[:, place]))
        for place, names in enumerate(wide.columns)
    }


def against(rows: pd.DataFrame, measure: str, one: Choice, other: Choice) -> Ratio:
    """Return the ratio of one choice of a place to another."""
    wide = by_round(rows, measure)
    values = wide[[tuple(one), tuple(other)]].to_numpy()
    mean, drawn = values.mean(axis=0), _drawn(values)
    return Ratio(float(mean[0] / mean[1]), *_limits(drawn[:, 0] / drawn[:, 1]))


def judge(rows: pd.DataFrame, rule: Rule) -> list[Judged]:
    """Return the results of a rule at every place, for every measure."""
    judged = []
    for arrivals, load, own in by_place(rows):
        for measure in MEASURES:
            found = to_best(own, measure)
            choice, best = rule(arrivals, measure), min(found, key=lambda one: found[one].ratio)
            judged.append(Judged(arrivals, load, measure, choice, best, found[choice]))
    return judged


def _drawn(values: Floats) -> Floats:
    """Draw rounds with replacement and return the means of every choice: [DRAWS, choices]."""
    rng = np.random.default_rng(0)
    rounds = rng.integers(0, len(values), (DRAWS, len(values)))
    found: Floats = values[rounds].mean(axis=1)
    return found


def _limits(ratios: Floats) -> tuple[float, float]:
    beyond = (1.0 - CONFIDENCE) / 2.0
    low, high = np.quantile(ratios, [beyond, 1.0 - beyond])
    return float(low), float(high)
