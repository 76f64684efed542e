"""Protocol of forecasters: pure functions from past counts to expected ones, slot by slot.

Parameters are the fields of a frozen dataclass; a forecaster has no state between calls, takes all randomness from
`rng` and leaves the counts unchanged. It receives the whole series, so that it may process all of it at once: `honest`
states that it does not look ahead.
"""

from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import InvalidInput
from penstock.model.taskgraph import Floats

Counts = NDArray[np.int64]

SLACK = 1e-6  # tuples; accumulated rounding errors must not decide between two whole numbers


class MissingExtra(InvalidInput):
    """A policy whose package is not installed."""


@runtime_checkable
class Forecaster(Protocol):
    """Forecasts the number of tuples."""

    honest: ClassVar[bool]
    """False: an oracle, which uses the counts that it forecasts."""

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Forecast every slot's count `lead` slots before it. [slots] of integers ≥ 0; lead ≥ 1

        An honest forecast of slot t uses `counts[: t - lead + 1]` only; if that is empty, it is 0.
        """
        ...


def ahead(values: Floats, lead: int) -> Counts:
    """Return forecasts by the slot that is forecast, given forecasts by the last known slot. [slots]

    Nothing is known before the first slot: the first `lead` forecasts are 0. Negative values become 0. The fraction of
    a tuple is added to the next forecast, so rounding changes no sum by more than half a tuple.
    """
    expected = np.zeros(len(values))
    expected[lead:] = np.maximum(values[: max(len(values) - lead, 0)], 0.0)
    sums = np.concatenate([[0.0], np.cumsum(expected)])
    return np.diff(np.floor(sums + (0.5 + SLACK))).astype(np.int64)
