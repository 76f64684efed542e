"""`penstock lab reproduce`, on the smallest figure of POTUS: seven simulations of four tasks."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from penstock.experiments.reproduction import BEGIN, END
from penstock.pipeline.session import session
from tests.conftest import Ran

PAGE = f"# POTUS\n\n{BEGIN}\n{END}\n\nthe end\n"


def test_unknown_works_and_figures_are_refused_with_the_choices(penstock: Callable[..., Ran]) -> None:
    ran = penstock("lab", "reproduce", "heron")
    assert ran.code == 2
    assert ran.err.strip() == "error: work: none is named 'heron'; did you mean hone?"
    ran = penstock("lab", "reproduce", "potus", "--figure", "7")
    assert ran.code == 2
    assert "figure: none is numbered '7'; there are 4, 5a, 5b" in ran.err
    assert ran.err.count("\n") == 1


def test_figures_are_listed_by_number_and_title(penstock: Callable[..., Ran]) -> None:
    ran = penstock("lab", "reproduce", "potus", "--figure", "list")
    assert ran.code == 0
    assert "5a" in ran.out
    assert "Theorem 1 beyond one hop" in ran.out
    listed = json.loads(penstock("lab", "reproduce", "potus", "--figure", "list", "--json").out)
    assert {"4", "5a", "5b", "5c", "5d", "6a", "6b", "6c"} <= {one["figure"] for one in listed}


def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    penstock: Callable[..., Ran], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    ran = penstock("lab", "reproduce", "potus", "--output", tmp_path / "file" / "results")
    assert ran.code == 2
    assert "is not a folder; choose another --output" in ran.err


@pytest.fixture
def spark() -> Iterator[SparkSession]:
    """Give a session that the commands then share."""
    with session("tests", "local[2]") as made:
        yield made


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_a_whole_run_keeps_results_and_renews_the_page_and_a_quick_one_stays_apart(
    penstock: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "papers" / "potus" / "README.md"
    page.parent.mkdir(parents=True)
    page.write_text(PAGE)
    ran = penstock("lab", "reproduce", "potus", "--figure", "counterexample", "--quick")
    assert ran.code == 0, ran.err
    assert "✓ " in ran.out
    assert "7 cases, a quick run; 3 of 3 claims hold" in ran.out
    assert page.read_text() == PAGE
    assert (page.parent / "results" / "quick" / "figure-counterexample.png").exists()
    ran = penstock("lab", "reproduce", "potus", "--figure", "counterexample", "--json")
    assert ran.code == 0, ran.err
    answer = json.loads(ran.out)
    assert answer["cases"] == 15
    assert [claim["holds"] for claim in answer["claims"]] == [True, True, True]
    results = page.parent / "results"
    assert len(pd.read_csv(results / "figure-counterexample.csv")) == 15
    assert len(pd.read_csv(results / "claims.csv")) == 3
    text = page.read_text()
    assert text.count("| counterexample |") == 3
    assert text.endswith(f"{END}\n\nthe end\n")
    assert set(answer["files"]) == {
        f"papers/potus/{name}"
        for name in ("results/figure-counterexample.csv", "results/figure-counterexample.png", "results/claims.csv",
                     "README.md")
    }  # fmt: skip
