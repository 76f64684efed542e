import numpy as np
import pytest

from penstock.pipeline.fitting import FOLDS, Candidate, Rows, assign_folds, fit, window_accuracies
from penstock.pipeline.training import placements


def rows(places: int, windows: int = 3, each: int = 4, seed: int = 0, noise: float = 0.02) -> Rows:
    """Return latencies that are nonlinear in the first feature, equal in all windows of a placement but for noise."""
    rng = np.random.default_rng(seed)
    number = places * windows * each
    place = np.arange(number, dtype=np.int32) // (windows * each)
    features = rng.random((places, each, 5))[place, np.arange(number) % each]
    labels = 1e-3 * (1 + 4 * (features[:, 0] - 0.5) ** 2) * rng.lognormal(0, noise, number)
    return Rows(features, labels, np.full(number, 20.0), place, np.arange(number, dtype=np.int32) // each)


def test_all_windows_of_a_placement_are_in_one_fold() -> None:
    made = rows(places=10)
    folds = assign_folds(made, np.random.default_rng(0))
    assert set(folds.tolist()) == set(range(FOLDS))
    for place in range(10):
        assert len(set(folds[made.places == place].tolist())) == 1


def test_folds_are_blocks_of_windows_for_one_placement() -> None:
    made = rows(places=1, windows=12)
    folds = assign_folds(made, np.random.default_rng(0))
    assert (np.diff(folds) >= 0).all()
    assert len(np.unique(folds)) == FOLDS


def test_holds_nothing_out_for_one_window() -> None:
    made = fit("svr", rows(places=1, windows=1))
    assert made.accuracy is None
    assert np.isfinite(made.regressor.predict(np.zeros((2, 5)))).all()


def test_cross_validation_finds_the_nonlinear_kernel() -> None:
    made = rows(places=16)
    machine, line, mean = (fit(kind, made) for kind in ("svr", "linear", "mean"))
    assert machine.candidate.kind == "svr-rbf"
    assert machine.accuracy is not None
    assert line.accuracy is not None
    assert mean.accuracy is not None
    assert machine.accuracy > line.accuracy + 0.02
    assert machine.accuracy > mean.accuracy + 0.02


def test_accuracy_is_measured_on_held_out_placements() -> None:
    rng = np.random.default_rng(1)
    made = rows(places=8)
    chance = rng.uniform(1e-3, 5e-3, 8)[made.places]  # only a memorised placement can be predicted
    learnt = fit("svr", Rows(made.features, chance, made.counts, made.places, made.windows))
    assert learnt.accuracy is not None
    assert learnt.accuracy < 0.75


def test_a_window_is_weighted_by_its_tuples() -> None:
    x = np.tile([[0.0] * 5], (4, 1))
    made = Rows(
        x,
        np.array([1.0, 1.0, 1.0, 5.0]),
        np.array([5.0, 5.0, 10.0, 4.0]),
        np.zeros(4, np.int32),
        np.arange(4, dtype=np.int32),
    )
    mean = fit("mean", made).regressor.predict(x[:1])[0]
    assert mean == pytest.approx((20 * 1.0 + 4 * 5.0) / 24)


def test_accuracy_of_a_window_is_that_of_its_weighted_mean() -> None:
    made = Rows(
        np.zeros((3, 1)), np.array([1.0, 3.0, 2.0]), np.array([1.0, 3.0, 2.0]), np.zeros(3, np.int32),
        np.array([0, 0, 1], dtype=np.int32),
    )  # fmt: skip
    found = window_accuracies(made, np.array([2.0, 2.0, 5.0]))
    assert found == pytest.approx([1 - abs(2.0 - 2.5) / 2.5, 1 - 3.0 / 2.0])  # may be negative, as the paper's


def test_describes_its_parameters() -> None:
    assert Candidate("mean").parameters() == {}
    assert Candidate("linear", True).parameters() == {"label": "logarithm"}
    assert Candidate("svr-rbf", False, 1.0, 0.2, 0.3).parameters() == {
        "label": "seconds",
        "C": 1.0,
        "epsilon": 0.2,
        "gamma": 0.3,
    }


def test_numbers_placements() -> None:
    seen = [
        ("r", 0, "a", "m0"), ("r", 0, "b", "m0"),
        ("r", 1, "a", "m0"),  # b was not observed; it stays where it was
        ("r", 2, "a", "m0"), ("r", 2, "b", "m1"),
        ("r", 10, "a", "m0"), ("r", 10, "b", "m0"),  # as at first
        ("s", 0, "b", "m1"), ("s", 0, "a", "m0"),
    ]  # fmt: skip
    assert placements(seen) == {("r", 0): 0, ("r", 1): 0, ("r", 2): 1, ("r", 10): 0, ("s", 0): 1}
