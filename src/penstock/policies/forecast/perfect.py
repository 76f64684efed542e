"""Perfect prediction: the most that look-ahead can give, POTUS's benchmark."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.policies.forecast.api import Counts


@dataclass(frozen=True, slots=True)
class Perfect:
    """Foresee everything, and nothing that does not come."""

    honest: ClassVar[bool] = False

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return what comes; `rng` is not used."""
        return counts.copy()
