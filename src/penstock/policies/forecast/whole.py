"""Convert forecasts by the last known slot to whole tuples by the slot that is forecast."""

import numpy as np

from penstock.model.taskgraph import Floats
from penstock.policies.forecast.api import Counts

SLACK = 1e-6  # tuples; accumulated rounding errors must not decide between two whole numbers


def ahead(values: Floats, lead: int) -> Counts:
    """Return forecasts by the slot that is forecast, given forecasts by the last known slot. [slots]

    Nothing is known before the first slot: the first `lead` forecasts are 0. Negative values become 0. The fraction of
    a tuple is added to the next forecast, so rounding changes no sum by more than half a tuple.
    """
    expected = np.zeros(len(values))
    expected[lead:] = np.maximum(values[: max(len(values) - lead, 0)], 0.0)
    sums = np.concatenate([[0.0], np.cumsum(expected)])
    return np.diff(np.floor(sums + (0.5 + SLACK))).astype(np.int64)
