"""Perfect prediction with phantoms on top: what tuples that never come cost, POTUS's False-Positive(x)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.model.entity import NonNegative
from penstock.policies.forecast.api import Counts


@dataclass(frozen=True, slots=True)
class FalsePositive:
    """Foresee everything that comes, and a Poisson number of tuples that do not.

    x: phantoms a slot on average, of each source that is forecast; POTUS takes 10, 20 and 30 over its whole system.
    share: x is a share of the real tuples instead, so that quiet slots get few phantoms.
    """

    x: NonNegative = 10.0
    share: bool = False

    honest: ClassVar[bool] = False

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return what comes and the phantoms drawn."""
        return counts + rng.poisson(self.x * counts if self.share else self.x, size=len(counts))
