import numpy as np
import pytest

from penstock.experiments.statistics import fitted, relative_deviation

LIVE_MS = np.array([100.0, 150.0, 200.0, 260.0, 300.0])


def test_a_linear_fit_takes_away_scale_and_offset_and_a_deviation_is_relative() -> None:
    assert fitted(LIVE_MS / 7 - 3, LIVE_MS) == pytest.approx(LIVE_MS)
    assert fitted(np.full(5, 2.0), LIVE_MS) == pytest.approx(np.full(5, LIVE_MS.mean()))
    assert relative_deviation(LIVE_MS * 1.1, LIVE_MS) == pytest.approx(0.1)
