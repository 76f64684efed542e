"""Protocol of forecasters: pure functions from past counts to expected ones, slot by slot.

Parameters are the fields of a frozen dataclass; a forecaster has no state between calls, takes all randomness from
`rng` and leaves the counts unchanged. It receives the whole series, so that it may process all of it at once: `honest`
states that it does not look ahead.
"""

from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from penstock.model.errors import InvalidInput

Counts = NDArray[np.int64]


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
