"""Evaluation of regressions, separate from training: it needs only numpy, so planning depends on no library for it.

One form covers all kinds: a bias, and a sum over vectors. A support vector machine with a radial kernel has many
vectors, a linear one only its normal, a mean none. Features are standardised, and so is the label or its logarithm.

Values outside of the training range are unknown. A radial kernel falls back to its bias there, which makes an overload
look like an average day, and a search exploits that. Therefore features are clamped to the training range, and above it
the time grows in proportion to the maximum excess: with a load 50 % above the training maximum, the time is 50 % above
that at the maximum. Only capacities, such as a machine's cores, may exceed it at no cost. Results are limited to
between half the minimum and twice the maximum label.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import Floats

KINDS = ("mean", "linear", "svr-linear", "svr-rbf")
FAR = 0.5  # relative excess over the training range that causes a warning
ROWS = 2048  # rows compared with all vectors at a time
SLACK = 2.0  # factor of the maximum label, or divisor of the minimum


@dataclass(frozen=True, eq=False)
class Scaling:
    """Converts features and labels to the fitted units, F features."""

    centre: Floats  # [F]
    spread: Floats  # [F] > 0
    least: Floats  # [F] in training
    most: Floats  # [F]
    limit: Floats  # [F] above which times grow: the training maximum, or infinite
    label_centre: float
    label_spread: float
    shortest: float  # label in training
    longest: float
    logarithm: bool  # whether the label's logarithm was fitted

    def held(self, features: Floats) -> Floats:
        """Return features clamped to the training range, standardised."""
        inside: Floats = (np.clip(features, self.least, self.most) - self.centre) / self.spread
        return inside

    def excess(self, features: Floats) -> Floats:
        """Return the amount by which each row exceeds the limit in its worst feature, relative to the limit: [n]."""
        known = self.limit > 0
        if not known.any():
            return np.zeros(len(features))
        over = features[:, known] / self.limit[known] - 1.0
        worst: Floats = np.maximum(over, 0.0).max(axis=1)
        return worst

    def label(self, fitted: Floats) -> Floats:
        """Return the label of a fitted value, within its bounds."""
        value = self.label_centre + self.label_spread * fitted
        if self.logarithm:
            value = np.exp(np.minimum(value, np.log(self.longest * SLACK)))
        inside: Floats = np.clip(value, self.shortest / SLACK, self.longest * SLACK)
        return inside


@dataclass(frozen=True, eq=False)
class Regressor:
    """Predicts a label from features; F features, V vectors."""

    kind: str
    scaling: Scaling
    bias: float
    gamma: float
    vectors: Floats  # [V, F] standardised
    weights: Floats  # [V]

    @property
    def radial(self) -> bool:
        """Whether it uses distances to vectors."""
        return self.kind == "svr-rbf"

    def predict(self, features: Floats) -> Floats:
        """Return the label of each row of features: [n, F] to [n]."""
        rows = np.ascontiguousarray(features, dtype=np.float64)
        known = self.scaling.held(rows)
        fitted = np.concatenate([self.fitted(known[i : i + ROWS]) for i in range(0, len(rows), ROWS)] or [np.zeros(0)])
        found: Floats = self.scaling.label(fitted) * (1.0 + self.scaling.excess(rows))
        return found

    def fitted(self, standard: Floats) -> Floats:
        """Return the value of standardised features in fitted units: [n]."""
        if not len(self.weights):
            return np.full(len(standard), self.bias)
        alike = standard @ self.vectors.T
        if self.radial:
            apart = (standard**2).sum(axis=1)[:, None] + (self.vectors**2).sum(axis=1) - 2.0 * alike
            alike = np.exp(-self.gamma * np.maximum(apart, 0.0))
        value: Floats = alike @ self.weights + self.bias
        return value
