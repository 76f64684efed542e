"""Service times: the work of each tuple, random by the distribution of its component."""

import math
from collections.abc import Sequence

import numpy as np

from penstock.model.taskgraph import Floats
from penstock.model.topology import Distribution, ServiceTime

BLOCK = 1024  # draws at a time; single draws by numpy would take longer than the rest of the work per tuple


class ServiceTimes:
    """The work of each tuple of a task, in core-seconds of a core of speed 1, `cpu` on average."""

    def __init__(self, cpu: float, service: ServiceTime, seed: int | Sequence[int]) -> None:
        self.mean = cpu
        self._service = service
        self._rng = np.random.default_rng(seed)
        self._samples: list[float] = []

    def draw(self) -> float:
        """Return the work of the next tuple."""
        if not self._samples:
            self._samples = self._block().tolist()
        return self._samples.pop()

    def _block(self) -> Floats:
        """Draw the work of many tuples. [BLOCK]"""
        rng, mean, variance = self._rng, self.mean, self._service.cv**2  # variance relative to the mean's square
        match self._service.distribution:
            case Distribution.CONSTANT:
                return np.full(BLOCK, mean)
            case Distribution.EXPONENTIAL:
                return rng.exponential(mean, BLOCK)
            case Distribution.GAMMA:
                return rng.gamma(1.0 / variance, mean * variance, BLOCK)
            case Distribution.LOGNORMAL:
                spread = math.log1p(variance)
                return mean * rng.lognormal(-spread / 2.0, math.sqrt(spread), BLOCK)
