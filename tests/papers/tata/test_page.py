"""What the page of the paper says of its figures is true of the results beside it."""

import re

import pandas as pd
import pytest

from penstock.experiments.reproduction import figures_of
from tests import ROOT

FOLDER = ROOT / "papers" / "tata"
PAGE = (FOLDER / "README.md").read_text(encoding="utf-8")


def results(number: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / "results" / f"figure-{number}.csv", keep_default_na=False, na_values=[""])


def spread(text: str) -> tuple[float, float]:
    """Return mean and deviation of a cell."""
    mean, _, deviation = text.strip("*").replace("−", "-").partition(" ±")
    return float(mean), float(deviation or 0)


def test_shows_every_figure() -> None:
    shown = re.findall(r"!\[\w+\]\(results/figure-(\w+)\.png\)", PAGE)
    assert sorted(shown) == sorted(figure.number for figure in figures_of("tata"))
    assert all((FOLDER / "results" / f"figure-{number}.png").exists() for number in shown)


def test_the_table_of_policies_is_that_of_the_rows() -> None:
    rows = results("validation")
    listed = re.findall(r"^\| \**`([^`]+)`[^|]*\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([\d.]+) ms \|$", PAGE, re.MULTILINE)
    assert [name for name, *_ in listed] == list(dict.fromkeys(rows["policy"]))
    for name, *cells, milliseconds in listed:
        own = rows[rows["policy"] == name]
        for column, cell in zip(("throughput", "delay", "reward"), cells, strict=True):
            digits = 3 if column == "reward" else 2
            mean, deviation = spread(cell)
            assert mean == pytest.approx(own[column].mean(), abs=0.51 * 10**-digits), f"{name} {column}"
            assert deviation == pytest.approx(own[column].std(), abs=0.51 * 10**-digits), f"{name} {column}"
        assert float(milliseconds) == pytest.approx(own["ms"].median(), abs=0.051, rel=0.01)


def test_says_how_many_topologies_ran() -> None:
    rows = results("estimator")
    [said] = re.findall(r"(\d+) of them ran live", PAGE)
    assert int(said) == int(rows["live_tps"].notna().sum())
    assert len(rows) == 100
