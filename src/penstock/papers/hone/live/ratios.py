"""How choices of policies compare: ratios to the best of the same place, with the confidence that rounds give.

A *place* is one kind of arrivals at one load. All choices of a round had the same arrivals, so rounds are drawn again
together (a paired bootstrap); which choice is the best is found anew in every draw, so that the luck of the best is
part of the limits. With so few rounds limits are rough, and rather too narrow than too wide.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import numpy as np
import pandas as pd

from penstock.model.taskgraph import Floats
from penstock.papers.hone.live.trial import Choice

MEASURES = ("mean_ms", "p99_ms")
DRAWS = 4000
CONFIDENCE = 0.95  # both ways; half of the rest is beyond each limit
ALLOWED = 1.05  # of the best, that a default may take
WANTED = 0.8  # of all places and measures, in which it does

Rule = Callable[[str, str], Choice]
"""From arrivals and what is to be low, one of `MEASURES`, to a choice: what would be the default there."""


class Ratio(NamedTuple):
    """A choice against the best, or against another."""

    ratio: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """Written so: `1.02 (1.00–1.04)`."""
        return f"{self.ratio:.2f} ({self.low:.2f}–{self.high:.2f})"


class Judged(NamedTuple):
    """A rule at one place, by one measure."""

    arrivals: str
    load: float
    measure: str
    choice: Choice
    best: Choice
    ratio: Ratio

    @property
    def within(self) -> bool:
        """Whether even the upper limit is what a default may take."""
        return self.ratio.high <= ALLOWED

    @property
    def place(self) -> str:
        """Written so: `bursty 95 % p99`."""
        return f"{place_text(self.arrivals, self.load)} {self.measure.removesuffix('_ms')}"


def place_text(arrivals: str, load: float) -> str:
    """Write a place so: `bursty 95 %`."""
    return f"{arrivals} {100 * load:.0f} %"


def places(rows: pd.DataFrame) -> Iterator[tuple[str, float, pd.DataFrame]]:
    """Yield the arrivals, the load and the rows of every place."""
    for arrivals, by_arrivals in rows.groupby("arrivals", sort=False):
        for load, own in by_arrivals.groupby("load"):
            yield str(arrivals), cast(float, load), own


def by_round(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return a measure of one place: a row a round that every choice has, a column a choice."""
    return rows.set_index(["seed", "round", "routing", "sending"])[measure].unstack(["routing", "sending"]).dropna()


def to_best(rows: pd.DataFrame, measure: str) -> dict[Choice, Ratio]:
    """Return every choice of one place against the best of it."""
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
    """Return one choice of a place against another."""
    wide = by_round(rows, measure)
    values = wide[[tuple(one), tuple(other)]].to_numpy()
    mean, drawn = values.mean(axis=0), _drawn(values)
    return Ratio(float(mean[0] / mean[1]), *_limits(drawn[:, 0] / drawn[:, 1]))


def judge(rows: pd.DataFrame, rule: Rule) -> list[Judged]:
    """Return how a rule does at every place, by every measure."""
    judged = []
    for arrivals, load, own in places(rows):
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
