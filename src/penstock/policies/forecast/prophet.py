"""Prophet: a piecewise trend and, if the past is long enough, daily and weekly seasons (Taylor and Letham 2018).

POTUS's Prophet, from the package of that name, an extra. A fit takes a good part of a second, so the curve is fitted
only periodically and ignores counts since then: it suits rhythms, not bursts.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import ClassVar

import numpy as np

from penstock.model.entity import Count, Positive
from penstock.model.taskgraph import Floats
from penstock.policies.forecast.api import Counts, MissingExtra, ahead

FIRST = 100  # number of slots before the first fit; until then their mean is expected
TALKATIVE = ("prophet", "prophet.plot", "cmdstanpy")  # loggers that report every fit


@dataclass(frozen=True, slots=True)
class Prophet:
    """Expect the values of a curve that the package prophet has fitted to the last slots.

    slot: length of a slot in seconds, which daily and weekly seasons need.
    window: number of last slots to fit.
    every: number of slots after which it is fitted again.
    """

    slot: Positive = 1.0
    window: Count = 2000
    every: Count = 100

    honest: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if find_spec("prophet") is None:
            raise MissingExtra("", "its package is not installed; pip install 'penstock[prophet]'")

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return the curves; `rng` is not used, because a fit is the most likely one."""
        values = np.cumsum(counts) / np.arange(1, len(counts) + 1)
        with _quiet():
            for known in range(FIRST, len(counts) + 1, self.every):
                end = min(known + self.every, len(counts) + 1)
                about = np.arange(known, end) - 1 + lead
                values[known - 1 : end - 1] = self._curve(counts[max(known - self.window, 0) : known], known, about)
        return ahead(values, lead)

    def _curve(self, seen: Counts, known: int, about: Counts) -> Floats:
        """Fit a curve to the slots before `known` and return its values at other slots."""
        import pandas as pd

        slots = np.concatenate([np.arange(known - len(seen), known), about])
        moments = pd.to_datetime((slots * self.slot).tolist(), unit="s")
        model = import_module("prophet").Prophet(uncertainty_samples=0)
        model.fit(pd.DataFrame({"ds": moments[: len(seen)], "y": seen}))
        return np.asarray(model.predict(pd.DataFrame({"ds": moments[len(seen) :]}))["yhat"], dtype=np.float64)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence loggers; errors are raised in any case."""
    loggers = [logging.getLogger(name) for name in TALKATIVE]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
