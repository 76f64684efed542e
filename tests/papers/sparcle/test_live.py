"""The live figure: what its claims say of rows."""

import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from penstock.experiments.reproduction import figures_of
from penstock.papers.sparcle.live import LIVE, _since, published_numbers, run_live


def row(story: str, phase: str, application: str, rate: float, repetition: int = 0, **more: Any) -> dict[str, Any]:
    reported = {"story": story, "phase": phase, "application": application, "measured_tps": rate, "late": 0.0}
    return {**reported, "booked_tps": rate, "repetition": repetition, **more}


def rows(beta: float = 3.3, firm: float = 6.0, one: float = 5.0, once: bool = True, tuples: int = 30) -> pd.DataFrame:
    return pd.DataFrame(
        [
            row("shares", "both", "alpha", 6.6),
            row("shares", "both", "beta", beta),
            row("shares", "alone", "alpha", 10.0, took_s=3.0),
            row("flood", "alone", "firm", 6.0),
            row("flood", "flooded", "firm", firm),
            row("flood", "flooded", "flood", 4.0),
            row("paths", "both", "firm", 5.0),
            row("paths", "first seconds", "firm", 3.0),
            row("paths", "one", "firm", one, often=0.99, seconds=2.0),
            {
                "story": "paths",
                "phase": "published",
                "application": "firm",
                "repetition": 0,
                "tuples": tuples,
                "once": once,
            },
        ]
    )


def failing(found: pd.DataFrame) -> set[int]:
    return {number for number, claim in enumerate(LIVE.claims(found)) if not claim.holds}


def test_every_claim_fails_on_rows_that_break_it() -> None:
    assert failing(rows()) == set()
    assert failing(rows(beta=2.5)) == {0}
    assert failing(rows(beta=4.5)) == {0}
    assert failing(rows(firm=5.0)) == {3}
    assert failing(rows(one=4.0)) == {4}
    assert failing(rows(once=False)) == {5}
    assert failing(rows(tuples=0)) == {5}
    assert failing(rows().assign(late=0.5)) == {6}


def test_the_time_from_which_on_all_is_used_counts_from_the_last_look_at_which_it_was_not() -> None:
    assert _since([(0.0, 5.0), (2.0, 9.5), (4.0, 9.9)]) == 2.0
    assert _since([(0.0, 9.5), (2.0, 5.0), (4.0, 9.9)]) == 4.0
    assert _since([(0.0, 9.5), (2.0, 9.5)]) == 0.0
    assert _since([(0.0, 9.5), (2.0, 5.0)]) == math.inf


def test_published_numbers_leave_out_what_is_not_published(tmp_path: Path) -> None:
    folder = tmp_path / "firm-1" / "output" / "numbers"
    folder.mkdir(parents=True)
    (folder / "part-0.jsonl").write_text("2\n0\n")
    (folder / "_part-1.jsonl").write_text("7\n")
    assert published_numbers(tmp_path) == [0, 2]


def test_it_is_a_figure_of_the_work() -> None:
    assert figures_of("sparcle")[-1] is LIVE


@pytest.mark.spark
def test_a_guaranteed_application_is_told_of_beside_one_that_floods() -> None:
    reported: list[str] = []
    found = run_live({"story": "flood", "repetition": 0, "seconds": 4.0}, reported.append)
    assert [(one["phase"], one["application"]) for one in found] == [
        ("alone", "firm"),
        ("flooded", "firm"),
        ("flooded", "flood"),
    ]
    assert all(float(one["measured_tps"]) > 0 for one in found)
    assert any(text.startswith("flood: ") for text in reported)
