"""From a forecast for every slot that was seen to whole tuples for the slot that it is about."""

import numpy as np

from penstock.model.taskgraph import Floats
from penstock.policies.forecast.api import Counts

SLACK = 1e-6  # tuples; what rounding errors add up to must not decide between two whole numbers


def ahead(values: Floats, lead: int) -> Counts:
    """Return forecasts by the slot that they are about, given them by the last slot that they know. [slots]

    Nothing is known before the first slot: the first `lead` forecasts are 0. What is negative becomes 0. The fraction
    of a tuple is carried on to the next forecast, so that rounding changes no sum by more than half a tuple.
    """
    said = np.zeros(len(values))
    said[lead:] = np.maximum(values[: max(len(values) - lead, 0)], 0.0)
    sums = np.concatenate([[0.0], np.cumsum(said)])
    return np.diff(np.floor(sums + (0.5 + SLACK))).astype(np.int64)
