"""The parallelism that the application has: the baseline of every comparison."""

from dataclasses import dataclass

import numpy as np

from penstock.policies.api import Resize, ScalingView


@dataclass(frozen=True, slots=True)
class Fixed:
    """Keep the number of tasks."""

    def resize(self, view: ScalingView, rng: np.random.Generator) -> Resize:
        """Return the present parallelism; `rng` is not used."""
        return Resize(view.parallelism)
