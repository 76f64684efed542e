"""Prophet, where the extra is installed."""

import numpy as np
import pytest

from penstock.policies.forecast.backtest import backtest
from penstock.policies.registry import forecaster

pytest.importorskip("prophet")


def test_forecasts_a_daily_pattern() -> None:
    slots = np.arange(24 * 10)
    counts = np.round(50 + 40 * np.sin(2 * np.pi * slots / 24)).astype(np.int64)
    forecasts = forecaster("prophet:slot=3600,every=24").forecast(counts, 6, np.random.default_rng(0))
    assert np.abs(forecasts - counts)[200:].mean() < 3


def test_without_a_pattern_it_is_no_better_than_the_mean() -> None:
    counts = np.random.default_rng(7).poisson(8, 400)
    rng = np.random.default_rng(0)
    assert (
        backtest(forecaster("prophet"), counts, 1, rng).mse
        > 0.95 * backtest(forecaster("empirical"), counts, 1, rng).mse
    )
