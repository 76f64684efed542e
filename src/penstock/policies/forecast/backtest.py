"""Accuracy that a forecaster would have had on a known series."""

from typing import NamedTuple

import numpy as np

from penstock.model.errors import InvalidInput
from penstock.policies.forecast.api import Counts, Forecaster

WARM_UP, LONGEST = 0.1, 1000  # share of the slots that does not count, and its maximum


class Score(NamedTuple):
    """Forecasts compared with actual counts, mean per slot."""

    mse: float  # squared error
    bias: float  # forecast minus actual: above 0, more phantoms than misses
    mae: float  # absolute error
    phantom: float  # tuples forecast that did not arrive, relative to those that arrived
    missed: float  # share of the tuples that arrived without a forecast


def backtest(forecaster: Forecaster, counts: Counts, lead: int, rng: np.random.Generator) -> Score:
    """Forecast a series `lead` slots ahead and score it, except for the warm-up."""
    warm_up(len(counts), lead)
    return judge(forecaster.forecast(counts, lead, rng), counts, lead)


def warm_up(slots: int, lead: int) -> int:
    """Return the number of slots that do not count: a tenth, at most 1,000, and those without a forecast."""
    if lead < 1:
        raise InvalidInput("lead", f"expected 1 slot or more, got {lead}")
    if lead >= slots:
        raise InvalidInput("lead", f"expected fewer than the {slots} slots of the series, got {lead}; reduce it")
    return max(lead, min(int(WARM_UP * slots), LONGEST))


def judge(forecasts: Counts, actual: Counts, lead: int) -> Score:
    """Compare forecasts made `lead` slots ahead with actual counts; shares of 0 are NaN."""
    judged = slice(warm_up(len(actual), lead), None)
    error = forecasts[judged] - actual[judged]
    total = float(actual[judged].sum()) or np.nan
    return Score(
        mse=float(np.mean(np.square(error, dtype=np.float64))),
        bias=float(np.mean(error)),
        mae=float(np.mean(np.abs(error))),
        phantom=float(np.maximum(error, 0).sum()) / total,
        missed=float(np.maximum(-error, 0).sum()) / total,
    )
