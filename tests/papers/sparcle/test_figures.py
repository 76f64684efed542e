"""SPARCLE's figures: every one runs, its picture is drawn, and its rows say what was set."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure as Picture

from penstock.experiments.figure import Case, Figure
from penstock.experiments.reproduction import figures_of
from penstock.papers.sparcle import FIGURES, names

BY_NUMBER = {figure.number: figure for figure in FIGURES}
EVERY = pytest.mark.parametrize("figure", FIGURES, ids=[figure.number for figure in FIGURES])


def few(figure: Figure) -> list[Case]:
    """Return a case of every kind of a quick run, small: what differs by its seed or number only is one kind."""
    seen: dict[object, list[Case]] = {}
    for one in figure.cases(True):
        kind = tuple((name, value) for name, value in one.items() if name not in ("seed", "number"))
        seen.setdefault(kind, []).append(one)
    return [{**own[0], **({"applications": 3} if "applications" in own[0] else {})} for own in seen.values()]


def test_every_figure_of_the_paper_is_there() -> None:
    assert tuple(figure for figure in figures_of("sparcle") if not figure.live) == FIGURES
    assert {"6", "8", "9", "10", "11", "12", "13", "14", "ratio", "refined", "networks"} == set(BY_NUMBER)


@pytest.mark.slow
@EVERY
def test_a_case_of_every_kind_runs_and_all_are_drawn_and_judged(figure: Figure) -> None:
    rows = pd.DataFrame([{**one, **row} for one in few(figure) for row in figure.run(one)])
    figure.draw(rows, Picture())
    assert figure.claims(rows)
    if names.OPTIMUM in rows:
        for policy in (names.CANONICAL, names.SPARCLE, names.REFINED):
            assert (rows[policy] <= rows[names.OPTIMUM].fillna(np.inf) * (1 + 1e-6)).all()


@pytest.mark.parametrize("number", ["8", "9", "10", "11", "12", "13"])
def test_distributions_are_of_five_hundred_instances_a_case(number: str) -> None:
    cases = pd.DataFrame([dict(one) for one in BY_NUMBER[number].cases(False)])
    for _, own in cases.groupby([name for name in cases if name != "seed"]):
        assert sorted(own["seed"]) == list(range(500))


def test_the_ratio_of_links_to_machines_goes_from_1_to_10() -> None:
    ratios = {float(one["links"]) / float(one["cpu"]) for one in BY_NUMBER["ratio"].cases(False)}
    assert min(ratios) == 1.0
    assert max(ratios) == 10.0


def test_the_refinement_is_judged_on_the_instances_of_figure_11() -> None:
    eleven, refined = ([{**one, "ask": ""} for one in BY_NUMBER[number].cases(True)] for number in ("11", "refined"))
    assert [one for one in eleven if one["case"] == "balanced"] == [one for one in refined if one in eleven] != []


def test_the_refinement_is_judged_as_users_get_it_with_its_time() -> None:
    (row,) = BY_NUMBER["refined"].run(BY_NUMBER["refined"].cases(True)[0])
    assert float(row["refined"]) >= float(row["sparcle"]) * (1 - 1e-9)
    assert float(row["refined_ms"]) > 0
    assert float(row["refined_cpu_ms"]) > 0


def test_equal_cases_give_equal_rows_but_for_the_time() -> None:
    one = BY_NUMBER["11"].cases(True)[0]
    first, again = (dict(BY_NUMBER["11"].run(one)[0]) for _ in range(2))
    del first["refined_ms"], again["refined_ms"]
    assert first == again
    other = dict(BY_NUMBER["11"].run({**one, "seed": 99})[0])
    assert not np.isclose(float(other[names.OPTIMUM]), float(first[names.OPTIMUM]))
