"""Regression as it is used, apart from how it was fitted: numpy alone, so that whoever plans needs no library for it.

One form covers all kinds: a bias, and a sum over vectors. A support vector machine with a radial kernel has many
vectors, a linear one its normal alone, a mean none. Features are standardised; the label is too, or its logarithm is.

What lies outside of the training range is not known. A radial kernel falls back to its bias there, which makes an
overload look like an average day, and a search finds that out. So features are held at the edge of the range that was
seen, and above it the time grows in proportion to the worst excess: half as much load again as was ever seen, half as
long again as at the most that was seen. Only of what is no load, such as a machine's cores, more costs nothing. Results
are held between half the least and twice the largest label seen.
"""

from dataclasses import dataclass

import numpy as np

from penstock.model.taskgraph import Floats

KINDS = ("mean", "linear", "svr-linear", "svr-rbf")
FAR = 0.5  # relative excess over the training range from which on a prediction is worth a warning
ROWS = 2048  # rows that are compared with all vectors at a time
SLACK = 2.0  # times the largest label, or a part of the least


@dataclass(frozen=True, eq=False)
class Scaling:
    """What turns features and labels into the numbers that were fitted, F features."""

    centre: Floats  # [F]
    spread: Floats  # [F] > 0
    least: Floats  # [F] seen in training
    most: Floats  # [F]
    limit: Floats  # [F] above which times grow: the most that was seen, or infinite
    label_centre: float
    label_spread: float
    shortest: float  # label seen in training
    longest: float
    logarithm: bool  # whether the label's logarithm was fitted

    def held(self, features: Floats) -> Floats:
        """Return features within the training range, standardised."""
        inside: Floats = (np.clip(features, self.least, self.most) - self.centre) / self.spread
        return inside

    def excess(self, features: Floats) -> Floats:
        """Return by how much each row exceeds the limit, relative to it, in its worst feature: [n]."""
        known = self.limit > 0
        if not known.any():
            return np.zeros(len(features))
        over = features[:, known] / self.limit[known] - 1.0
        worst: Floats = np.maximum(over, 0.0).max(axis=1)
        return worst

    def label(self, fitted: Floats) -> Floats:
        """Return the label that a fitted value stands for, within its bounds."""
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
        """Whether vectors are compared by distance."""
        return self.kind == "svr-rbf"

    def predict(self, features: Floats) -> Floats:
        """Return the label of each row of features: [n, F] to [n]."""
        rows = np.ascontiguousarray(features, dtype=np.float64)
        known = self.scaling.held(rows)
        fitted = np.concatenate([self.fitted(known[i : i + ROWS]) for i in range(0, len(rows), ROWS)] or [np.zeros(0)])
        found: Floats = self.scaling.label(fitted) * (1.0 + self.scaling.excess(rows))
        return found

    def fitted(self, standard: Floats) -> Floats:
        """Return the value of standardised features in the units that were fitted: [n]."""
        if not len(self.weights):
            return np.full(len(standard), self.bias)
        alike = standard @ self.vectors.T
        if self.radial:
            apart = (standard**2).sum(axis=1)[:, None] + (self.vectors**2).sum(axis=1) - 2.0 * alike
            alike = np.exp(-self.gamma * np.maximum(apart, 0.0))
        value: Floats = alike @ self.weights + self.bias
        return value
