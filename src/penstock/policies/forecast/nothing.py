"""No prediction: the baseline that every forecaster has to beat.

POTUS's extreme All-True-Negative, in which no arrival is predicted and none is invented, "is equivalent to the case
without prediction" (section 5.2.2): both names refer to this.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.policies.forecast.api import Counts


@dataclass(frozen=True, slots=True)
class Nothing:
    """Expect nothing: every tuple is missed, none is served before it arrives."""

    honest: ClassVar[bool] = True

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return zeros; `rng` is not used."""
        return np.zeros_like(counts)
