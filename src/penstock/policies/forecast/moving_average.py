"""Moving average: the mean of the last slots, POTUS's MA."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.model.entity import Count
from penstock.policies.forecast.api import Counts, ahead


@dataclass(frozen=True, slots=True)
class MovingAverage:
    """Expect the mean of the last slots, or of all if there are fewer.

    window: number of slots; 1 expects the last count.
    """

    window: Count = 10

    honest: ClassVar[bool] = True

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return the means; `rng` is not used."""
        ends = np.arange(1, len(counts) + 1)
        begins = np.maximum(ends - self.window, 0)
        sums = np.concatenate([[0], np.cumsum(counts)])
        return ahead((sums[ends] - sums[begins]) / (ends - begins), lead)
