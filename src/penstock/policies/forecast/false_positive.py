"""Perfect prediction plus phantoms: the cost of tuples that never arrive, POTUS's False-Positive(x)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.model.entity import NonNegative
from penstock.policies.forecast.api import Counts


@dataclass(frozen=True, slots=True)
class FalsePositive:
    """Forecast all arrivals, and a Poisson number of tuples that do not arrive.

    x: mean number of phantoms per slot, of each source that is forecast; POTUS uses 10, 20 and 30 over its whole
    system.
    share: x is a share of the real tuples instead, so that quiet slots have few phantoms.
    """

    x: NonNegative = 10.0
    share: bool = False

    honest: ClassVar[bool] = False

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return the arrivals plus phantoms drawn with `rng`."""
        return counts + rng.poisson(self.x * counts if self.share else self.x, size=len(counts))
