import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from penstock.model.topology import Distribution, ServiceTime
from penstock.runtime.emulation import ServiceTimes

CV = 0.6
SHAPED = [
    (Distribution.EXPONENTIAL, 0.0, 1.0, stats.expon(scale=0.02).cdf),
    (Distribution.GAMMA, CV, CV, stats.gamma(1 / CV**2, scale=0.02 * CV**2).cdf),
    (
        Distribution.LOGNORMAL,
        CV,
        CV,
        stats.lognorm(s := math.sqrt(math.log1p(CV**2)), scale=0.02 * math.exp(-s * s / 2)).cdf,
    ),
]


def draws(times: ServiceTimes, count: int) -> np.ndarray:
    return np.array([times.draw() for _ in range(count)])


@pytest.mark.parametrize(("distribution", "given_cv", "cv", "cdf"), SHAPED)
def test_samples_have_the_requested_mean_variation_and_distribution(
    distribution: Distribution, given_cv: float, cv: float, cdf: Callable[[float], float]
) -> None:
    drawn = draws(ServiceTimes(0.02, ServiceTime(distribution=distribution, cv=given_cv), seed=1), 20_000)
    assert drawn.mean() == pytest.approx(0.02, rel=0.03)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.05)
    assert stats.kstest(drawn, cdf).pvalue > 1e-3


def test_constant_draws_are_the_mean_itself() -> None:
    assert set(draws(ServiceTimes(0.02, ServiceTime(), seed=1), 3000)) == {0.02}


@pytest.mark.parametrize("distribution", list(Distribution))
def test_a_component_without_cost_works_for_no_time(distribution: Distribution) -> None:
    cv = 1.5 if distribution in (Distribution.GAMMA, Distribution.LOGNORMAL) else 0.0
    assert not draws(ServiceTimes(0.0, ServiceTime(distribution=distribution, cv=cv), seed=1), 10).any()


def test_draws_are_the_same_for_a_seed_and_differ_between_tasks() -> None:
    service = ServiceTime(distribution=Distribution.EXPONENTIAL)
    first, again, other = (draws(ServiceTimes(0.02, service, seed), 2000).tolist() for seed in ((7, 0), (7, 0), (7, 1)))
    assert first == again
    assert not set(first) & set(other)
