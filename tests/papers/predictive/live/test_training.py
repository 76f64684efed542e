"""Models for live runs are of all the placements asked for, or there are none."""

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from penstock.exploration.index import Explored, Index
from penstock.model.errors import InvalidInput
from penstock.papers.predictive.live import piloted
from penstock.papers.predictive.live.settings import SlowedApplication


def test_an_exploration_that_ended_early_trains_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    explored = Explored(placement={}, rates={}, machines=1, seed=0)
    index = Index(
        application="a", cluster="c", live=False, settle_s=5.0, hold_s=30.0, window_s=30.0,
        runs={"explore-000": explored}, stopped="it was stopped",
    )  # fmt: skip
    monkeypatch.setattr(piloted, "explore_twin", lambda *_, **__: index)
    nothing = cast(SparkSession, None)  # what would read the records
    with pytest.raises(InvalidInput, match="placements: 1 of 40 were tried: it was stopped"):
        piloted.learn(nothing, SlowedApplication("word-count", machines=2), tmp_path, 40, 0, lambda _: None)
