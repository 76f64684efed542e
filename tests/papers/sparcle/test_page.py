"""What the page of the paper says of its figures is true of the results beside it."""

import re

import pandas as pd
import pytest

from penstock.experiments.reproduction import figures_of
from penstock.papers.sparcle import FIGURES
from tests import ROOT

FOLDER = ROOT / "papers" / "sparcle"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")
INSTANCES = {"8": 500, "9": 500, "10": 500, "11": 500, "12": 500, "13": 500, "14": 60, "ratio": 100}


def seeds(rows: pd.DataFrame) -> set[int]:
    """Return how many seeds every case has."""
    drawn = [name for name in ("case", "shape", "graph", "links", "ratio", "cpu", "memory", "policy") if name in rows]
    return set(rows.groupby(drawn)["seed"].nunique())


def test_says_how_many_instances_every_figure_has() -> None:
    (line,) = re.findall(r"^\| instances \|.*$", PAGE, flags=re.MULTILINE)
    assert "500 a case in Figures 8 to 13 and `refined`" in line
    assert "60 in Figure 14; 100 at every ratio in `ratio`" in line


@pytest.mark.parametrize("number", INSTANCES)
def test_results_are_of_as_many_instances_as_figures_draw(number: str) -> None:
    (figure,) = [figure for figure in FIGURES if figure.number == number]
    assert seeds(pd.DataFrame([dict(one) for one in figure.cases(False)])) == {INSTANCES[number]}
    assert seeds(pd.read_csv(FOLDER / "results" / f"figure-{number}.csv")) == {INSTANCES[number]}


def test_shows_every_figure() -> None:
    shown = re.findall(r"!\[\w+\]\(results/figure-(\w+)\.png\)", PAGE)
    assert sorted(shown) == sorted(figure.number for figure in figures_of("sparcle"))
    assert all((FOLDER / "results" / f"figure-{number}.png").exists() for number in shown)
