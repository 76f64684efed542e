"""Exponentially weighted moving average: recent slots weigh most, POTUS's EWMA."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.signal import lfilter

from penstock.model.entity import Share
from penstock.policies.forecast.api import Counts, ahead


@dataclass(frozen=True, slots=True)
class Ewma:
    """Expect a mean that moves by a share of every error, and starts with the first slot.

    alpha: the share; 1 expects the last count.
    """

    alpha: Share = 0.2

    honest: ClassVar[bool] = True

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return the means; `rng` is not used."""
        if not len(counts):
            return counts.copy()
        keep = 1.0 - self.alpha
        means, _ = lfilter([self.alpha], [1.0, -keep], counts, zi=keep * counts[:1])
        return ahead(means, lead)
