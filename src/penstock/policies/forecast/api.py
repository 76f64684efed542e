"""What a forecaster is: a pure function from what came to what is expected, slot by slot.

Its parameters are the fields of a frozen dataclass; it remembers nothing between calls, takes all randomness from `rng`
and leaves the counts unchanged. It is handed the whole series, so that it may work on all of it at once: `honest` says
that it does not look ahead.
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
    """Says how many tuples will come."""

    honest: ClassVar[bool]
    """False: an oracle, which looks at what it forecasts."""

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Say, `lead` slots before each slot, how many tuples it will bring. [slots] of integers ≥ 0; lead ≥ 1

        An honest forecaster's answer for slot t uses `counts[: t - lead + 1]` only; where that is empty it is 0.
        """
        ...
