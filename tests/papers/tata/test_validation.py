"""The figure of the validation graphs: its cases, a case of it, and what its claims say of rows."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from penstock.experiments.figure import Claim
from penstock.experiments.reproduction import figures_of
from penstock.papers.tata import FIGURES, validation
from penstock.papers.tata.validation import OPTIMUM, SEARCH, STARTED, VALIDATION
from tests.shared_data import needs_shared


def rows(search: float = 0.6, optimum: float = 0.6, **rewards: float) -> pd.DataFrame:
    """Return rows of three pairs; the optimum is known of two of them."""
    means = {"i-storm": 0.1, "r-storm": 0.5, SEARCH: search, OPTIMUM: optimum, **rewards}
    return pd.DataFrame(
        {"pair": pair, "policy": policy, "placed": True, "ms": 1.0, "throughput": 1.2,
         "delay": 0.8, "reward": mean,
         "proven": policy == OPTIMUM and pair < 2}
        for pair in range(3)
        for policy, mean in means.items()
    )  # fmt: skip


def claim(found: pd.DataFrame, part: str) -> Claim:
    [one] = [one for one in VALIDATION.claims(found) if part in one.claim]
    return one


def test_the_work_has_swept_figures_and_two_live_ones() -> None:
    found = figures_of("tata")
    assert [(figure.number, figure.live) for figure in found] == [
        ("validation", False),
        ("size", False),
        ("unlike", False),
        ("live", True),
        ("estimator", True),
    ]
    assert found[:3] == FIGURES


@needs_shared
def test_there_are_five_hundred_pairs_and_few_in_a_quick_run() -> None:
    assert [case["pair"] for case in VALIDATION.cases(False)] == list(range(500))
    assert len(VALIDATION.cases(True)) == 20


@needs_shared
@pytest.mark.slow
def test_every_known_policy_is_asked_and_compared_with_i_storm() -> None:
    found = pd.DataFrame([dict(row) for row in VALIDATION.run({"pair": 0, "seed": 0})])
    assert list(found["policy"]) == list(validation.POLICIES)
    placed = found[found["placed"]].set_index("policy")
    assert placed.loc["i-storm", "throughput"] == 1.0
    assert placed.loc["i-storm", "delay"] == 1.0
    means = placed.loc[["i-storm", "flink"], "reward"].to_numpy(dtype=float)
    assert means.mean() == pytest.approx(0.0, abs=1e-9)  # (13) is relative to the mean of these two
    assert placed["reward"].max() == placed.loc[SEARCH, "reward"]


def test_a_missing_data_set_is_reported_and_nothing_claimed(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(validation, "FOLDER", tmp_path / "absent")
    [case] = VALIDATION.cases(False)
    made = pd.DataFrame([{**case, **row} for row in VALIDATION.run(case)])
    [found] = VALIDATION.claims(made)
    assert not found.holds
    assert "not beside the repository" in found.why
    VALIDATION.draw(made, Picture())


def test_a_policy_is_compared_with_the_best_baseline() -> None:
    held = claim(rows(), f"{SEARCH} has a higher reward")
    assert held.holds
    assert "r-storm +0.500" in held.ours
    lower = claim(rows(search=0.45, optimum=0.45), f"{SEARCH} has a higher reward")
    assert not lower.holds
    assert lower.why == "it is above 1 of 2 baselines"


def test_the_published_policy_is_judged_as_the_papers_and_others_as_ours() -> None:
    found = rows(tata=0.55, neural=0.4)
    assert claim(found, "tata has").holds
    assert claim(found, "tata has").claim.startswith("tata")
    assert not claim(found, "ours: neural has").holds


def test_a_search_from_the_network_is_compared_pair_by_pair() -> None:
    assert claim(rows(**{STARTED: 0.6}), "is not worse than").holds
    assert not claim(rows(**{STARTED: 0.5}), "is not worse than").holds
    assert "-0.1000 ±0.0000" in claim(rows(**{STARTED: 0.5}), "is not worse than").ours


def test_the_search_is_compared_with_the_optimum_where_there_is_one() -> None:
    assert claim(rows(), "finds the optimum").holds
    assert "in 100% of 2 pairs" in claim(rows(), "finds the optimum").ours
    assert not claim(rows(optimum=0.7), "finds the optimum").holds


def test_its_picture_is_drawn() -> None:
    picture = Picture()
    VALIDATION.draw(rows(tata=np.pi / 6), picture)
    assert [axis.get_xlabel() for axis in picture.axes] == ["reward (13)", "throughput / i-storm's"]
