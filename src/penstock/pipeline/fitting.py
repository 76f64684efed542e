"""Fit one regression: select its kernel and parameters, and estimate its accuracy on unseen data.

Candidates are compared by cross-validation. Rows of one placement are similar, so all windows of a placement are in one
fold, and a candidate is always tested on placements that it was not fitted on. If there is only one placement, folds
are blocks of consecutive windows. A window's weight is its number of tuples. A candidate's score is the mean of max(0,
1 - |predicted - measured| / measured); the reported figure is the paper's accuracy, without the bound, of a window's
weighted mean. The winner was selected on the same folds: tables kept apart from training are more reliable.

Li compares radial, linear, polynomial and sigmoid kernels. The last two are left out: on windows of the twin they were
at best as accurate as the radial one (papers/predictive), and would need a second form wherever many placements are
evaluated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from penstock.estimate.regression import Regressor, Scaling
from penstock.model.taskgraph import Bools, Floats, Ints

Wanted = Literal["svr", "linear", "mean"]
KINDS: tuple[Wanted, ...] = ("svr", "linear", "mean")

MOST_ROWS = 1000  # to fit a machine on: time and size grow with the square
TRIED_ROWS = 400  # to fit a candidate on
FOLDS = 4
PENALTIES = (1.0, 10.0, 100.0)
TUBES = (0.05, 0.2)  # of the label's standard deviation; smaller errors cost nothing
GAMMAS = (0.03, 0.1, 0.3, 1.0)
HEAVIEST = 10.0  # times the mean weight


@dataclass(frozen=True, eq=False)
class Rows:
    """Training data of a regression; n rows, F features."""

    features: Floats  # [n, F]
    labels: Floats  # [n] > 0
    counts: Floats  # [n] tuples seen
    places: Ints  # [n] number of the placement
    windows: Ints  # [n] number of the window, ascending in time
    unlimited: Bools | None = None  # [F] whether more than was seen causes no delay; None: for no feature

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, which: Ints | Bools) -> "Rows":
        """Return some of the rows."""
        return Rows(
            self.features[which],
            self.labels[which],
            self.counts[which],
            self.places[which],
            self.windows[which],
            self.unlimited,
        )

    def sample(self, number: int, rng: np.random.Generator) -> "Rows":
        """Return all rows, or a uniform random sample of that size."""
        if len(self) <= number:
            return self
        return self.select(np.sort(rng.choice(len(self), number, replace=False)).astype(np.int32))


class Candidate(NamedTuple):
    """A kind of regression with its parameters."""

    kind: str
    logarithm: bool = False
    penalty: float = 10.0  # C
    tube: float = 0.1  # epsilon
    gamma: float = 0.0

    def parameters(self) -> dict[str, float | str]:
        """Return its parameters for display."""
        label = {"label": "logarithm" if self.logarithm else "seconds"}
        if not self.kind.startswith("svr"):
            return {} if self.kind == "mean" else {**label}
        found: dict[str, float | str] = {**label, "C": self.penalty, "epsilon": self.tube}
        return found | {"gamma": self.gamma} if self.kind == "svr-rbf" else found


class FitResult(NamedTuple):
    """A regression, and its accuracy on rows that it was not fitted on."""

    regressor: Regressor
    candidate: Candidate
    accuracy: float | None  # cross-validated; None: too few rows


def fit(wanted: Wanted, rows: Rows, seed: int = 0) -> FitResult:
    """Return the best regression of a kind."""
    rng = np.random.default_rng(seed)
    folds = assign_folds(rows, rng)
    if wanted == "svr":
        winner = _best_machine(rows, folds, rng)
    elif wanted == "linear":
        winner = _best([Candidate("linear", True), Candidate("linear", False)], rows, folds, rng)
    else:
        winner = Candidate("mean")
    accuracy = None
    if folds.max(initial=0) > 0:
        kept = _held_out(winner, rows, folds, MOST_ROWS, rng)
        accuracy = float(np.mean(window_accuracies(rows, kept)))
    return FitResult(fit_candidate(winner, rows.sample(MOST_ROWS, rng)), winner, accuracy)


def _best_machine(rows: Rows, folds: Ints, rng: np.random.Generator) -> Candidate:
    """Return the best support vector machine: first which label, then all kernels and parameters for it."""
    usual = 1.0 / rows.features.shape[1]
    label = _best([Candidate("svr-rbf", log, gamma=usual) for log in (True, False)], rows, folds, rng)
    log = label.logarithm
    machines = [Candidate("svr-rbf", log, c, e, g) for c in PENALTIES for e in TUBES for g in GAMMAS]
    machines += [Candidate("svr-linear", log, c, e) for c in PENALTIES[:2] for e in TUBES]
    return _best([label, *machines], rows, folds, rng)


def _best(candidates: list[Candidate], rows: Rows, folds: Ints, rng: np.random.Generator) -> Candidate:
    """Return the candidate with the best score on the same held-out rows; if it cannot be computed, the first."""
    if folds.max(initial=0) == 0:
        return candidates[0]
    seed = int(rng.integers(2**31))
    return max(candidates, key=lambda one: _score(one, rows, folds, np.random.default_rng(seed)))


def _score(candidate: Candidate, rows: Rows, folds: Ints, rng: np.random.Generator) -> float:
    error = np.abs(_held_out(candidate, rows, folds, TRIED_ROWS, rng) - rows.labels) / rows.labels
    return float(np.average(np.maximum(0.0, 1.0 - error), weights=rows.counts))


def _held_out(candidate: Candidate, rows: Rows, folds: Ints, most: int, rng: np.random.Generator) -> Floats:
    """Return for each row the prediction of a regression that was fitted on the other folds."""
    predicted = np.zeros(len(rows))
    for fold in np.unique(folds):
        apart = folds == fold
        model = fit_candidate(candidate, rows.select(~apart).sample(most, rng))
        predicted[apart] = model.predict(rows.features[apart])
    return predicted


def assign_folds(rows: Rows, rng: np.random.Generator) -> Ints:
    """Return the fold of each row: one for all rows of a placement; all 0 if nothing can be held out."""
    group, wanted = rows.places, FOLDS
    if len(np.unique(group)) < 2:
        known, window = np.unique(rows.windows, return_inverse=True)
        blocks = min(FOLDS, len(known))
        return (window * blocks // max(len(known), 1)).astype(np.int32)
    known, number = np.unique(group, return_inverse=True)
    turn = rng.permutation(len(known))
    return (turn[number] % min(wanted, len(known))).astype(np.int32)


def window_accuracies(rows: Rows, predicted: Floats) -> Floats:
    """Return the accuracy of each window: 1 - |Pred - Act| / Act, both the mean over its rows by tuples."""
    _, window = np.unique(rows.windows, return_inverse=True)
    measured, guessed = (np.bincount(window, rows.counts * one) for one in (rows.labels, predicted))
    accuracies: Floats = 1.0 - np.abs(guessed - measured) / measured
    return accuracies


def fit_candidate(candidate: Candidate, rows: Rows) -> Regressor:
    """Fit one candidate."""
    scaling = _scaling(rows, candidate.logarithm)
    weights = np.minimum(rows.counts / rows.counts.mean(), HEAVIEST)
    values = np.log(rows.labels) if candidate.logarithm else rows.labels
    labels = (values - scaling.label_centre) / scaling.label_spread
    bias, gamma = 0.0, candidate.gamma
    width = rows.features.shape[1]
    vectors, coefficients = np.zeros((0, width)), np.zeros(0)
    if candidate.kind == "mean":
        bias = float(np.average(labels, weights=weights))
    elif candidate.kind == "linear":
        *slopes, bias = _least_squares(scaling.held(rows.features), labels, weights)
        vectors, coefficients = np.array([slopes]), np.ones(1)
    else:
        vectors, coefficients, bias = _machine(candidate, scaling.held(rows.features), labels, weights)
    return Regressor(candidate.kind, scaling, float(bias), gamma, vectors, coefficients)


def _scaling(rows: Rows, logarithm: bool) -> Scaling:
    values = np.log(rows.labels) if logarithm else rows.labels
    most = rows.features.max(axis=0)
    return Scaling(
        centre=rows.features.mean(axis=0),
        spread=_spread(rows.features),
        least=rows.features.min(axis=0),
        most=most,
        limit=most if rows.unlimited is None else np.where(rows.unlimited, np.inf, most),
        label_centre=float(values.mean()),
        label_spread=float(_spread(values[:, None])[0]),
        shortest=float(rows.labels.min()),
        longest=float(rows.labels.max()),
        logarithm=logarithm,
    )


def _spread(columns: Floats) -> Floats:
    """Return standard deviations; 1 for columns that are constant but for rounding."""
    found = columns.std(axis=0)
    constant = found <= 1e-9 * np.maximum(np.abs(columns).max(axis=0), 1e-30)
    spread: Floats = np.where(constant, 1.0, found)
    return spread


def _least_squares(features: Floats, labels: Floats, weights: Floats) -> Iterator[float]:
    root = np.sqrt(weights)[:, None]
    columns = np.column_stack([features, np.ones(len(features))])
    return iter(np.linalg.lstsq(columns * root, labels * root[:, 0], rcond=1e-9)[0].tolist())


def _machine(candidate: Candidate, features: Floats, labels: Floats, weights: Floats) -> tuple[Floats, Floats, float]:
    """Return the support vectors, their coefficients and the intercept; a linear machine's normal is one vector."""
    from sklearn.svm import SVR

    radial = candidate.kind == "svr-rbf"
    kernel = {"kernel": "rbf", "gamma": candidate.gamma} if radial else {"kernel": "linear"}
    machine = SVR(C=candidate.penalty, epsilon=candidate.tube, **kernel).fit(features, labels, sample_weight=weights)
    intercept = float(machine.intercept_[0])
    if radial:
        return np.array(machine.support_vectors_), np.array(machine.dual_coef_[0]), intercept
    return np.array(machine.coef_).reshape(1, -1), np.ones(1), intercept
