"""The contract of forecasters, tested on all that are registered."""

from dataclasses import is_dataclass
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import UnknownName
from penstock.policies import registry
from penstock.policies.forecast.api import Counts, Forecaster, MissingExtra
from penstock.policies.registry import PolicyKind

NAMES = registry.names(PolicyKind.FORECAST)
VARIANTS = (
    "moving-average:window=1",
    "moving-average:window=500",
    "ewma:alpha=1",
    "kalman:trend=true",
    "kalman:level=0.3",
    "kalman:trend=true,level=0.1,slope=0",
    "empirical:quantile=0.9",
    "empirical:draw=true",
    "false-positive:x=0.3,share=true",
)
without_prophet = pytest.mark.skipif(find_spec("prophet") is None, reason="the extra prophet is not installed")
ORACLES = {"perfect", "false-positive"}
WRONG_ON_PURPOSE = {"none", "all-true-negative", "false-positive"}


def every_one_but(names: set[str]) -> pytest.MarkDecorator:
    chosen = [spec for spec in (*NAMES, *VARIANTS) if spec.partition(":")[0] not in names]
    marked = [pytest.param(spec, marks=without_prophet if spec == "prophet" else ()) for spec in chosen]
    return pytest.mark.parametrize("spec", marked)


EVERY = every_one_but(set())
SEED = 11


def drawn(slots: int, seed: int = SEED) -> Counts:
    """Return counts with bursts and quiet times."""
    rng = np.random.default_rng(seed)
    return rng.poisson(rng.gamma(0.7, 6.0, slots)).astype(np.int64)


def forecast_by(spec: str, counts: Counts, lead: int = 1, seed: int = 0) -> Counts:
    return registry.forecaster(spec).forecast(counts, lead, np.random.default_rng(seed))


@EVERY
def test_is_a_frozen_slotted_dataclass_that_needs_no_arguments(spec: str) -> None:
    kind = registry.policy_class(spec.partition(":")[0], PolicyKind.FORECAST)
    assert is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert isinstance(kind(), Forecaster)
    assert not hasattr(kind(), "__dict__")


@EVERY
@pytest.mark.parametrize("lead", [1, 7])
def test_forecasts_a_whole_number_of_tuples_for_every_slot(spec: str, lead: int) -> None:
    counts = drawn(400)
    answer = forecast_by(spec, counts, lead)
    assert answer.shape == counts.shape
    assert answer.dtype == np.int64
    assert answer.min() >= 0


@pytest.mark.slow
@EVERY
@pytest.mark.parametrize("slots", [0, 1, 2, 3])
@pytest.mark.parametrize("lead", [1, 5])
def test_forecasts_very_short_series(spec: str, slots: int, lead: int) -> None:
    answer = forecast_by(spec, np.full(slots, 4), lead)
    assert answer.shape == (slots,)
    if registry.forecaster(spec).honest:
        assert not answer[:lead].any()


@EVERY
def test_equal_seeds_give_equal_forecasts(spec: str) -> None:
    assert np.array_equal(forecast_by(spec, drawn(300)), forecast_by(spec, drawn(300)))


@EVERY
def test_leaves_the_counts_unchanged(spec: str) -> None:
    counts = drawn(300)
    answer = forecast_by(spec, counts)
    assert np.array_equal(counts, drawn(300))
    assert not np.shares_memory(answer, counts)


@every_one_but(WRONG_ON_PURPOSE)
@pytest.mark.parametrize("lead", [1, 4])
def test_expects_a_constant_series_to_continue(spec: str, lead: int) -> None:
    counts = np.full(700, 7)
    assert forecast_by(spec, counts, lead)[lead + 2 :].tolist() == counts[lead + 2 :].tolist()


@every_one_but(ORACLES)
@settings(max_examples=25, derandomize=True)
@given(seed=st.integers(0, 99), slots=st.integers(1, 200), known=st.integers(0, 200), lead=st.integers(1, 6))
def test_does_not_look_ahead_if_honest(spec: str, seed: int, slots: int, known: int, lead: int) -> None:
    one = drawn(slots, seed)
    other = np.concatenate([one[:known], 3 * drawn(slots, seed + 100)[known:]])
    first, second = forecast_by(spec, one, lead), forecast_by(spec, other, lead)
    assert np.array_equal(first[: known + lead], second[: known + lead])


def test_an_oracle_looks_ahead() -> None:
    assert {name for name in NAMES if not registry.policy_class(name, PolicyKind.FORECAST).honest} == ORACLES
    for name in ORACLES:
        assert np.all(forecast_by(name, drawn(50)) >= drawn(50))


def test_all_true_negative_is_none_as_in_the_paper() -> None:
    assert registry.forecaster("all-true-negative") == registry.forecaster("none")
    assert not forecast_by("all-true-negative", drawn(50)).any()


@pytest.mark.skipif(find_spec("prophet") is not None, reason="the extra prophet is installed")
def test_names_the_package_to_install_if_an_extra_is_missing() -> None:
    with pytest.raises(MissingExtra, match=r"^forecast.prophet: .*; pip install 'penstock\[prophet\]'$"):
        registry.forecaster("prophet")


def test_a_policy_of_another_kind_is_no_forecaster() -> None:
    with pytest.raises(UnknownName, match="'round-robin' is a placement policy; there are all-true-negative"):
        registry.forecaster("round-robin")
    with pytest.raises(UnknownName, match="'kalman' is a forecast policy; there are cloud-only"):
        registry.placement_policy("kalman")
