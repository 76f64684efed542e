"""The Kalman filter against the textbook's matrices, and its likelihood against that of the counts' differences."""

import numpy as np
import pytest
from scipy.linalg import toeplitz

from penstock.model.errors import InvalidInput
from penstock.model.kernel import interpreted
from penstock.model.taskgraph import Floats
from penstock.policies.forecast.backtest import backtest
from penstock.policies.forecast.kalman import FIRST, Kalman, Steps, follow, opinion, unlikeliness
from penstock.policies.forecast.moving_average import MovingAverage
from penstock.policies.registry import forecaster
from tests.policies.forecast.test_contract import drawn

RNG = np.random.default_rng(0)
COUNTS = drawn(300).astype(np.float64)
MODELS = pytest.mark.parametrize(
    ("steps", "trend"),
    [(Steps(0.3, 0.0), False), (Steps(0.0, 0.0), False), (Steps(0.2, 0.01), True), (Steps(0.0, 0.5), True)],
)


def textbook(counts: Floats, steps: Steps, trend: bool) -> Floats:
    """Return level and slope after each count, by matrices, from a nearly uninformative prior. [slots, 2]"""
    move = np.array([[1.0, 1.0], [0.0, 1.0]])
    see = np.array([[1.0, 0.0]])
    spread = np.diag([steps.level, steps.slope])
    state, covariance = np.zeros(2), np.diag([1e9, 1e9 if trend else 0.0])
    states = []
    for count in counts:
        state, covariance = move @ state, move @ covariance @ move.T + spread
        gain = covariance @ see.T / (see @ covariance @ see.T + 1.0)
        state = state + gain[:, 0] * (count - see @ state)
        covariance = (np.eye(2) - gain @ see) @ covariance
        states.append(state)
    return np.array(states)


def filtered(counts: Floats, steps: Steps, trend: bool) -> Floats:
    begun = 2 if trend else 1
    found = np.zeros((2, len(counts) - begun))
    follow(counts[begun:], steps, opinion(counts, steps, trend), found[0], found[1])
    return found.T


@MODELS
def test_level_and_slope_are_those_of_the_textbook(steps: Steps, trend: bool) -> None:
    begun = 2 if trend else 1
    assert filtered(COUNTS, steps, trend) == pytest.approx(textbook(COUNTS, steps, trend)[begun:], abs=1e-4)


@MODELS
def test_forecast_is_the_level_extrapolated_by_the_slope(steps: Steps, trend: bool) -> None:
    policy = Kalman(trend=trend, level=steps.level, slope=steps.slope if trend else None)
    states = textbook(COUNTS, steps, trend)
    expected = np.maximum(states[:-3, 0] + 3 * states[:-3, 1], 0.0)[5:]
    answer = policy.forecast(COUNTS.astype(np.int64), 3, RNG)[8:]
    assert np.abs(np.cumsum(answer - expected)).max() <= 1.01  # rounding carries fractions


@MODELS
def test_likelihood_is_that_of_the_differences(steps: Steps, trend: bool) -> None:
    covariances = [6.0 + 2 * steps.level + steps.slope, -4.0 - steps.level, 1.0] if trend else [2.0 + steps.level, -1.0]
    differences = np.diff(COUNTS, 2 if trend else 1)
    number = len(differences)
    covariance = toeplitz([*covariances, *[0.0] * (number - len(covariances))])
    noise = differences @ np.linalg.solve(covariance, differences) / number
    expected = number * np.log(noise) + np.linalg.slogdet(covariance)[1]
    assert unlikeliness(COUNTS, steps, trend) == pytest.approx(expected, rel=1e-9)


@MODELS
def test_compiled_filter_equals_interpreted(steps: Steps, trend: bool) -> None:
    begun = 2 if trend else 1
    states = [opinion(COUNTS, steps, trend), interpreted(opinion)(COUNTS, steps, trend)]
    outputs = np.zeros((2, 2, len(COUNTS) - begun))
    first = follow(COUNTS[begun:], steps, states[0], *outputs[0])
    second = interpreted(follow)(COUNTS[begun:], steps, states[1], *outputs[1])
    assert first == pytest.approx(second, rel=1e-12)
    assert outputs[0] == pytest.approx(outputs[1], rel=1e-12)
    assert unlikeliness(COUNTS, steps, trend) == pytest.approx(interpreted(unlikeliness)(COUNTS, steps, trend))


@pytest.mark.parametrize("level", [0.01, 0.3, 5.0])
def test_finds_the_variance_of_a_generated_series(level: float) -> None:
    seed = 3
    rng = np.random.default_rng(seed)
    counts = 1e4 + 10 * (np.cumsum(rng.normal(0, np.sqrt(level), 4000)) + rng.normal(0, 1, 4000))
    found = Kalman()._estimate(counts)
    assert 0.6 < found.level / level < 1.6, f"seed {seed}"


@pytest.mark.parametrize("trend", [False, True])
def test_no_other_variances_are_more_likely(trend: bool) -> None:
    found = Kalman(trend=trend)._estimate(COUNTS)
    best = unlikeliness(COUNTS, found, trend)
    for level in np.logspace(-8, 4, 49):
        for slope in np.logspace(-8, 4, 25) if trend else [0.0]:
            assert best < unlikeliness(COUNTS, Steps(level, slope), trend) + 0.01


def test_a_stated_variance_is_not_estimated() -> None:
    assert Kalman(trend=True, slope=0.0)._estimate(COUNTS).slope == 0.0
    assert Kalman(trend=True, level=0.25)._estimate(COUNTS).level == 0.25
    assert Kalman(level=0.25)._estimate(COUNTS) == Steps(0.25, 0.0)


def test_follows_a_ramp_only_with_a_trend() -> None:
    ramp = np.arange(0, 2000, 4)
    steady, sloped = (backtest(Kalman(trend=trend), ramp, 10, RNG) for trend in (False, True))
    assert sloped.mae < 0.01
    assert steady.bias < -30


def test_estimates_how_fast_the_level_moves() -> None:
    rng = np.random.default_rng(4)
    still = rng.poisson(20, 4000)
    wandering = np.maximum(50 + np.cumsum(rng.normal(0, 5, 4000)), 0).astype(np.int64)
    for counts, better in ((still, MovingAverage(window=10)), (wandering, MovingAverage(window=10))):
        assert backtest(Kalman(), counts, 1, RNG).mse < 0.95 * backtest(better, counts, 1, RNG).mse
    assert backtest(Kalman(), still, 1, RNG).mse < 1.05 * still.var()


def test_forecasts_are_reasonable_before_variances_are_estimated() -> None:
    counts = np.random.default_rng(6).poisson(30, FIRST)
    assert 15 < Kalman().forecast(counts, 1, RNG)[5:].mean() < 45


def test_rejects_a_slope_without_a_trend() -> None:
    with pytest.raises(InvalidInput, match=r"^forecast.kalman.slope: expected none without a trend, got 0.1"):
        forecaster("kalman:slope=0.1")
