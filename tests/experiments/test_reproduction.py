"""Reproductions: cases run once on Spark, tables and pictures are kept, claims are judged and listed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from penstock.experiments.figure import Claim
from penstock.experiments.reproduction import (
    BEGIN,
    END,
    WORKS,
    FailedCase,
    Reproduced,
    chosen,
    claims_table,
    figures_of,
    judge_claims,
    keep,
    put_table,
    read_claims,
    reproduce,
)
from penstock.model.errors import UnknownName
from penstock.pipeline.session import session
from tests import ROOT
from tests.experiments.tiny_figures import FIGURES

HELD = Claim("squares reach 9", "9", "9", "equal", True, figure="1a")
FAILED = Claim("a|b", "1 %", "2 %", "±0.5 %", False, "too short", "own")


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session("tests", "local[2]") as made:
        yield made


@pytest.mark.spark
def test_cases_that_figures_share_are_run_once_and_rows_keep_their_order(spark: SparkSession) -> None:
    heard: list[tuple[int, int]] = []
    found = reproduce(spark, FIGURES[:2], on_progress=lambda done, total: heard.append((done, total)))
    assert found.cases == 4
    assert heard[-1] == (4, 4)
    table = found.tables["1a"]
    assert list(table["x"]) == [0, 0, 1, 1, 2, 2, 3, 3]
    assert list(table["y"]) == [0, 0, 1, -1, 4, -4, 9, -9]
    assert found.tables["1b"].equals(table)
    assert [claim.holds for claim in found.claims] == [True]


@pytest.mark.spark
def test_a_quick_run_has_fewer_cases_and_a_seed_is_added_to_theirs(spark: SparkSession) -> None:
    found = reproduce(spark, FIGURES[:1], quick=True, seed=5)
    assert found.cases == 2
    assert set(found.tables["1a"]["seed"]) == {5}
    assert [(claim.holds, claim.why) for claim in found.claims] == [(False, "too few")]


@pytest.mark.spark
def test_reports_a_refused_case_in_one_line(spark: SparkSession) -> None:
    with pytest.raises(FailedCase, match=r"^4 of 4 cases could not be run: x: expected another number, got \d$"):
        reproduce(spark, FIGURES[2:])


def test_results_are_kept_and_claims_of_other_figures_stay(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": [1, 2], "y": [1.5, 4.25]})
    keep(tmp_path, FIGURES[2:], Reproduced({"own": table}, [FAILED], 2))
    written = keep(tmp_path, FIGURES[:1], Reproduced({"1a": table}, [HELD], 2))
    assert [path.name for path in written] == ["figure-1a.csv", "figure-1a.png", "claims.csv"]
    assert (tmp_path / "figure-1a.png").read_bytes().startswith(b"\x89PNG")
    assert pd.read_csv(tmp_path / "figure-1a.csv").equals(table)
    assert read_claims(tmp_path / "claims.csv") == [FAILED, HELD]
    again = FAILED._replace(ours="1 %", holds=True, why="")
    keep(tmp_path, FIGURES[2:], Reproduced({"own": table}, [again], 2))
    assert read_claims(tmp_path / "claims.csv") == [again, HELD]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_what_a_check_found_does_not_stand_for_the_papers_word() -> None:
    check = Claim("check: squares reach 9", "8.9", "9", "±0.5", True, figure="1a")
    assert (check.checked, HELD.checked) == (True, False)
    rows = claims_table([HELD, check]).splitlines()[4:]
    assert rows[0].startswith("| 1a | squares reach 9 | 9 | 9 |")
    assert rows[1].startswith("| 1a | check: squares reach 9 | — (check: 8.9) | 9 |")


def test_there_are_no_claims_without_a_file(tmp_path: Path) -> None:
    assert read_claims(tmp_path / "claims.csv") == []


def test_a_page_gets_the_table_between_its_marks_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n\n{BEGIN}\nstale\n{END}\n\nafter\n")
    assert put_table(page, claims_table([HELD, FAILED]))
    text = page.read_text()
    assert text.startswith("before\n\n")
    assert text.endswith("\n\nafter\n")
    assert "stale" not in text
    assert "1 of 2 claims hold." in text
    assert "| own | a\\|b | 1 % | 2 % | ✗ |" in text
    assert "- ✗ a|b: judged by: ±0.5 %. too short." in text
    assert put_table(page, claims_table([HELD]))
    assert "| own |" not in page.read_text()


def test_a_long_value_is_shortened_in_the_table_and_whole_in_the_details() -> None:
    value = "0.5 to 1.0, " + "and so on " * 10
    table, _, details = claims_table([HELD._replace(ours=value)]).partition("<details")
    assert "| 0.5 to 1.0 … |" in table
    assert f"measured: {value}" in details


@pytest.mark.parametrize("work", WORKS)
def test_every_paper_shows_the_claims_that_are_kept_and_why_each_failed(work: str) -> None:
    folder = ROOT / "papers" / work
    claims = read_claims(folder / "results" / "claims.csv")
    assert claims_table(claims) in (folder / "README.md").read_text()
    assert [one.claim for one in claims if not one.holds and not one.why] == []


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    assert not put_table(page, "table")
    page.write_text("nothing to replace")
    assert not put_table(page, "table")
    assert page.read_text() == "nothing to replace"


def test_figures_are_chosen_by_number_all_of_a_letter_or_all() -> None:
    assert [figure.number for figure in chosen(FIGURES, [])] == ["1a", "1b", "own"]
    assert [figure.number for figure in chosen(FIGURES, ["own", "1"])] == ["own", "1a", "1b"]
    assert [figure.number for figure in chosen(FIGURES, ["1b", "1b"])] == ["1b"]
    with pytest.raises(UnknownName, match=r"figure: none is numbered '2'; there are 1a, 1b, own"):
        chosen(FIGURES, ["2"])


def test_every_work_has_figures_with_numbers_of_their_own() -> None:
    for work in WORKS:
        numbers = [figure.number for figure in figures_of(work)]
        assert numbers
        assert len(set(numbers)) == len(numbers)
    with pytest.raises(UnknownName, match="work: none is named 'storm'; there are hone, potus"):
        figures_of("storm")


def test_what_numpy_finds_true_is_plainly_true() -> None:
    figure = FIGURES[0]._replace(claims=lambda _rows: [Claim("it is", "1", "1", "equal", np.bool_(True))])  # type: ignore[arg-type]
    (claim,) = judge_claims([figure], {figure.number: pd.DataFrame()})
    assert claim.holds is True


@pytest.mark.parametrize("work", WORKS)
def test_every_claim_that_fails_has_a_reason(work: str) -> None:
    claims = read_claims(ROOT / "papers" / work / "results" / "claims.csv")
    assert claims
    assert [claim.claim for claim in claims if not claim.holds and not claim.why] == []
