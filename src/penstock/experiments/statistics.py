"""Means with their spread, as numbers and as texts of claims."""

import numpy as np

from penstock.model.taskgraph import Floats


def deviation(values: Floats) -> float:
    """Return the standard deviation of single runs; 0 for a single one."""
    return float(np.std(values, ddof=1)) if len(values) > 1 else 0.0


def fitted(estimate: Floats, measured: Floats) -> Floats:
    """Return estimates after a linear fit to the measurements, as in TATA's paper.

    If higher estimates correspond to lower values, they contain no information, and the fit is the mean.
    """
    spread = float(np.var(estimate))
    slope = max(0.0, float(np.cov(estimate, measured, bias=True)[0, 1]) / spread) if spread > 0 else 0.0
    line: Floats = measured.mean() + slope * (estimate - estimate.mean())
    return line


def relative_deviation(estimate: Floats, measured: Floats) -> float:
    """Return the mean absolute deviation of estimates, relative to the measurements."""
    return float(np.mean(np.abs(estimate - measured) / measured))


def signed(share: float, digits: int = 1) -> str:
    """Format a share as percent with a sign, such as `−21.6 %`."""
    return f"{100.0 * share:+.{digits}f} %".replace("-", "−")


def signed_spread(shares: Floats) -> str:
    """Format shares as percent with a sign, by mean and standard deviation."""
    return f"{signed(float(shares.mean()))[:-2]} ±{100.0 * deviation(shares):.1f} %"
