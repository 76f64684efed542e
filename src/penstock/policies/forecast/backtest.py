"""How well a forecaster would have foreseen a series that is known by now."""

from typing import NamedTuple

import numpy as np

from penstock.model.errors import InvalidInput
from penstock.policies.forecast.api import Counts, Forecaster

WARM_UP, LONGEST = 0.1, 1000  # the share of the slots that is not judged, and how many at most


class Score(NamedTuple):
    """What was said against what came, a slot on average."""

    mse: float  # squared error
    bias: float  # said minus came: above 0, more phantoms than misses
    mae: float  # absolute error
    phantom: float  # tuples said that did not come, relative to those that came
    missed: float  # the share of the tuples that came without having been said


def backtest(forecaster: Forecaster, counts: Counts, lead: int, rng: np.random.Generator) -> Score:
    """Forecast a series `lead` slots ahead and judge it, but for its beginning, where little was known."""
    warm_up(len(counts), lead)
    return judge(forecaster.forecast(counts, lead, rng), counts, lead)


def warm_up(slots: int, lead: int) -> int:
    """Return how many slots are not judged: a tenth, 1,000 at most, and those that nothing could be said of."""
    if lead < 1:
        raise InvalidInput("lead", f"expected 1 slot or more, got {lead}")
    if lead >= slots:
        raise InvalidInput("lead", f"expected fewer than the {slots} slots that there are, got {lead}; look less far")
    return max(lead, min(int(WARM_UP * slots), LONGEST))


def judge(said: Counts, came: Counts, lead: int) -> Score:
    """Compare forecasts made `lead` slots ahead with what came; shares of nothing are not a number."""
    judged = slice(warm_up(len(came), lead), None)
    error = said[judged] - came[judged]
    total = float(came[judged].sum()) or np.nan
    return Score(
        mse=float(np.mean(np.square(error, dtype=np.float64))),
        bias=float(np.mean(error)),
        mae=float(np.mean(np.abs(error))),
        phantom=float(np.maximum(error, 0).sum()) / total,
        missed=float(np.maximum(-error, 0).sum()) / total,
    )
