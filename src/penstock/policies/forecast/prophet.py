"""Prophet: a curve with a trend that bends and, where the past is long enough, days and weeks (Taylor and Letham 2018).

POTUS's Prophet, by the package of that name, an extra. A fit takes a good part of a second, so the curve is fitted anew
only every so often, and says nothing of what was seen since: it is for rhythms, not for bursts.
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
from penstock.policies.forecast.api import Counts, MissingExtra
from penstock.policies.forecast.whole import ahead

FIRST = 100  # slots seen when a curve is first fitted; until then their mean is expected
TALKATIVE = ("prophet", "prophet.plot", "cmdstanpy")  # loggers that tell of every fit


@dataclass(frozen=True, slots=True)
class Prophet:
    """Expect what a curve, fitted to the last slots by the package prophet, gives.

    slot: how many seconds a slot lasts; it finds days and weeks by the clock.
    window: how many of the last slots it is fitted to.
    every: after how many slots it is fitted anew.
    """

    slot: Positive = 1.0
    window: Count = 2000
    every: Count = 100

    honest: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if find_spec("prophet") is None:
            raise MissingExtra("", "its package is not installed; pip install 'penstock[prophet]'")

    def forecast(self, counts: Counts, lead: int, rng: np.random.Generator) -> Counts:
        """Return the curves; `rng` is not used, a fit being the most likely one."""
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
    """Silence loggers; what fails is raised anyway."""
    loggers = [logging.getLogger(name) for name in TALKATIVE]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled
