import dataclasses

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.svm import SVR

from penstock.estimate.regression import FAR
from penstock.pipeline.fitting import HEAVIEST, Candidate, Rows, fit_candidate
from tests.estimate.latency_cases import random_regressor


def rows(seed: int, number: int = 80, width: int = 5) -> Rows:
    rng = np.random.default_rng(seed)
    features = rng.uniform(0.0, [1.0, 500.0, 90.0, 300.0, 6.0][:width], (number, width))
    labels = 1e-3 * np.exp(features[:, 0] + 0.2 * features[:, 4] + 0.1 * rng.normal(size=number))
    numbers = np.arange(number, dtype=np.int32)
    return Rows(features, labels, rng.integers(1, 40, number).astype(np.float64), numbers // 8, numbers // 4)


@pytest.mark.parametrize("logarithm", [False, True])
@pytest.mark.parametrize("kind", ["mean", "linear", "svr-linear", "svr-rbf"])
def test_predicts_what_scikit_learn_predicts(kind: str, logarithm: bool) -> None:
    made = rows(seed=3)
    ours = fit_candidate(Candidate(kind, logarithm, penalty=3.0, tube=0.1, gamma=0.2), made)
    scaling = ours.scaling
    weights = np.minimum(made.counts / made.counts.mean(), HEAVIEST)
    theirs = {
        "mean": DummyRegressor(),
        "linear": LinearRegression(),
        "svr-linear": SVR(kernel="linear", C=3.0, epsilon=0.1),
        "svr-rbf": SVR(kernel="rbf", C=3.0, epsilon=0.1, gamma=0.2),
    }[kind]
    standard = (made.features - scaling.centre) / scaling.spread
    values = np.log(made.labels) if logarithm else made.labels
    theirs.fit(standard, (values - scaling.label_centre) / scaling.label_spread, sample_weight=weights)
    expected = theirs.predict(standard) * scaling.label_spread + scaling.label_centre
    expected = np.clip(np.exp(expected) if logarithm else expected, made.labels.min() / 2, made.labels.max() * 2)
    assert np.abs(ours.predict(made.features) / expected - 1.0).max() < 1e-9


def test_scales_features_and_label() -> None:
    made = rows(seed=4)
    scaling = fit_candidate(Candidate("svr-rbf", gamma=0.2), made).scaling
    standard = scaling.held(made.features)
    assert standard.mean(axis=0) == pytest.approx(np.zeros(5), abs=1e-9)
    assert standard.std(axis=0) == pytest.approx(np.ones(5))
    assert (scaling.least == made.features.min(axis=0)).all()
    assert scaling.longest == made.labels.max()


def test_a_feature_that_never_changed_changes_nothing() -> None:
    made = rows(seed=5)
    made.features[:, 1] = 7.0
    model = fit_candidate(Candidate("svr-rbf", True, gamma=0.2), made)
    other = made.features.copy()
    other[:, 1] = 3.0
    assert model.predict(other) == pytest.approx(model.predict(made.features))


def test_more_capacity_than_in_the_training_is_not_slower() -> None:
    made = dataclasses.replace(rows(seed=6), unlimited=np.array([True, True, False, False, False]))
    model = fit_candidate(Candidate("svr-rbf", True, gamma=0.2), made)
    edge = made.features.max(axis=0)[None, :]
    roomier, busier = edge * [[9, 9, 1, 1, 1]], edge * [[1, 1, 1, 3, 1]]
    assert model.scaling.excess(roomier).tolist() == [0.0]
    assert model.predict(roomier) == pytest.approx(model.predict(edge))
    assert model.predict(busier) == pytest.approx(3 * model.predict(edge))


def test_features_are_clipped_to_the_training_range_and_grow_beyond() -> None:
    made = rows(seed=6)
    model = fit_candidate(Candidate("svr-rbf", True, gamma=0.2), made)
    inside = made.features[:1].copy()
    inside[0, 2] = model.scaling.most[2]
    outside = inside.copy()
    outside[0, 2] *= 1.5
    below = inside.copy()
    inside_least = inside.copy()
    below[0, 2], inside_least[0, 2] = -5.0, model.scaling.least[2]
    assert model.predict(outside)[0] == pytest.approx(1.5 * model.predict(inside)[0])
    assert model.predict(below)[0] == pytest.approx(model.predict(inside_least)[0])
    assert model.scaling.excess(outside)[0] == pytest.approx(0.5)
    assert model.scaling.excess(inside)[0] == 0.0
    assert model.scaling.excess(2.0 * outside)[0] > FAR


@pytest.mark.parametrize("logarithm", [False, True])
def test_stays_near_the_labels_of_the_training(logarithm: bool) -> None:
    rng = np.random.default_rng(7)
    features = rng.uniform(1.0, 2.0, (50, 9))
    model = random_regressor(rng, features, "linear", logarithm=logarithm)
    wild = model.predict(np.concatenate([features, features * 1e-6]))
    stretched = 1.0 + model.scaling.excess(np.concatenate([features, features * 1e-6]))
    assert (wild / stretched >= model.scaling.shortest / 2 - 1e-15).all()
    assert (wild / stretched <= 2 * model.scaling.longest + 1e-15).all()


def test_predicts_nothing_for_no_rows() -> None:
    model = fit_candidate(Candidate("mean"), rows(seed=8))
    assert model.predict(np.zeros((0, 5))).shape == (0,)
