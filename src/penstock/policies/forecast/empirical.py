"""Distribution of the past: slots are assumed to be independent draws from it, POTUS's Distr."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from penstock.model.entity import Probability
from penstock.model.errors import InvalidInput
from penstock.policies.forecast.api import Counts, ahead


@dataclass(frozen=True, slots=True)
class Empirical:
    """Expect the mean of the past, a quantile of it, or a random draw from it.

    quantile: 0.5 expects the median; higher values cause more phantoms, lower ones more misses. None: the mean.
    draw: expect the count of a random past slot, as in POTUS: the spread of arrivals is kept, the squared error
    doubled.
    """

    quantile: Probability | None = None
    draw: bool = False

    honest: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.draw and self.quantile is not None:
            raise InvalidInput("draw", f"expected a draw or a quantile, got both, quantile {self.quantile}; omit one")

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return the means, quantiles or draws; only draws use `rng`."""
        known = np.arange(1, len(counts) + 1)
        if self.draw:
            forecasts = np.zeros_like(counts)
            picked = (rng.random(len(counts)) * known).astype(np.int64)
            forecasts[lead:] = counts[picked[: max(len(counts) - lead, 0)]]
            return forecasts
        if self.quantile is None:
            return ahead(np.cumsum(counts) / known, lead)
        import pandas as pd  # takes as long to import as everything else here

        return ahead(pd.Series(counts).expanding().quantile(self.quantile).to_numpy(), lead)
