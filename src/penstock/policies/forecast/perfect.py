"""Perfect prediction: the maximum benefit of look-ahead, POTUS's benchmark."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.policies.forecast.api import Counts


@dataclass(frozen=True, slots=True)
class Perfect:
    """Forecast exactly the arrivals."""

    honest: ClassVar[bool] = False

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return the arrivals; `rng` is not used."""
        return counts.copy()
