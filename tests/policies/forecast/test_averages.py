"""The forecasters that average, against pandas and numpy."""

import numpy as np
import pandas as pd
import pytest

from penstock.model.errors import InvalidInput
from penstock.policies.forecast.api import Counts, ahead
from penstock.policies.forecast.empirical import Empirical
from penstock.policies.forecast.ewma import Ewma
from penstock.policies.forecast.false_positive import FalsePositive
from penstock.policies.forecast.moving_average import MovingAverage
from penstock.policies.registry import forecaster
from tests.policies.forecast.test_contract import drawn

RNG = np.random.default_rng(0)
COUNTS = drawn(2_000)


def close(first: Counts, second: Counts) -> bool:
    """Whether two ways to add fractions agree, except for tuples that one of them forecasts a slot later."""
    return bool(np.abs(np.cumsum(first - second)).max() <= 1) and bool(np.mean(first != second) < 0.01)


@pytest.mark.parametrize("lead", [1, 3])
@pytest.mark.parametrize("window", [1, 5, 60])
def test_moving_average_is_that_of_pandas(window: int, lead: int) -> None:
    means = pd.Series(COUNTS).rolling(window, min_periods=1).mean().to_numpy()
    assert close(MovingAverage(window=window).forecast(COUNTS, lead, RNG), ahead(means, lead))


@pytest.mark.parametrize("lead", [1, 3])
@pytest.mark.parametrize("alpha", [0.02, 0.3, 1.0])
def test_ewma_is_that_of_pandas(alpha: float, lead: int) -> None:
    means = pd.Series(COUNTS).ewm(alpha=alpha, adjust=False).mean().to_numpy()
    assert close(Ewma(alpha=alpha).forecast(COUNTS, lead, RNG), ahead(means, lead))


def test_empirical_expects_the_mean_of_the_past() -> None:
    expected = np.array([COUNTS[: slot + 1].mean() for slot in range(len(COUNTS))])
    assert close(Empirical().forecast(COUNTS, 2, RNG), ahead(expected, 2))


@pytest.mark.parametrize("quantile", [0.0, 0.37, 0.5, 0.9, 1.0])
def test_empirical_expects_a_quantile_of_the_past(quantile: float) -> None:
    expected = np.array([np.quantile(COUNTS[: slot + 1], quantile) for slot in range(len(COUNTS))])
    assert close(Empirical(quantile=quantile).forecast(COUNTS, 1, RNG), ahead(expected, 1))


def test_empirical_draws_have_the_past_frequencies_and_double_the_squared_error() -> None:
    seed, counts = 5, np.random.default_rng(5).permutation(np.repeat([0, 1, 10], [6000, 3000, 1000]))
    answer = Empirical(draw=True).forecast(counts, 1, np.random.default_rng(seed))
    shares = np.bincount(answer[1000:], minlength=11)[[0, 1, 10]] / (len(counts) - 1000)
    assert shares == pytest.approx([0.6, 0.3, 0.1], abs=0.02), f"seed {seed}"
    error = np.mean((answer - counts)[1000:] ** 2)
    assert error == pytest.approx(2 * counts.var(), rel=0.1), f"seed {seed}"


def test_empirical_rejects_both_a_draw_and_a_quantile() -> None:
    with pytest.raises(InvalidInput, match=r"^forecast.empirical.draw: expected a draw or a quantile, got both"):
        forecaster("empirical:draw=true,quantile=0.5")


@pytest.mark.parametrize(("settings", "excess"), [("x=10", 10.0), ("x=0.2", 0.2), ("x=0.5,share=true", 0.5 * 4.2)])
def test_false_positive_adds_x_phantoms_on_average(settings: str, excess: float) -> None:
    counts = np.random.default_rng(1).poisson(4.2, 50_000)
    phantoms = forecaster(f"false-positive:{settings}").forecast(counts, 1, np.random.default_rng(2)) - counts
    assert phantoms.min() >= 0
    assert phantoms.mean() == pytest.approx(excess, rel=0.03)
    if "share" not in settings:
        assert phantoms.var() == pytest.approx(excess, rel=0.05)


def test_false_positive_by_share_has_no_phantoms_in_empty_slots() -> None:
    counts = np.array([0, 100] * 500)
    phantoms = FalsePositive(x=0.5, share=True).forecast(counts, 1, np.random.default_rng(0)) - counts
    assert not phantoms[::2].any()
    assert phantoms[1::2].mean() == pytest.approx(50, rel=0.05)


@pytest.mark.parametrize(
    "spec", ["moving-average:window=0", "ewma:alpha=0", "ewma:alpha=1.1", "empirical:quantile=2", "false-positive:x=-1"]
)
def test_invalid_parameters_are_rejected(spec: str) -> None:
    with pytest.raises(InvalidInput, match=f"^forecast.{spec.partition(':')[0]}"):
        forecaster(spec)
