"""Effect of the training placements: word count, drawn over a random number of machines, or always over all of them.

Over ten machines, thirty tasks hardly ever share a machine, so training data contain no crowded machines. The
dissertation says only that its placements were random and diverse.
"""

from typing import TYPE_CHECKING

import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure
from penstock.experiments.pictures import COLOURS, label, look
from penstock.papers.predictive.settings import ALL, LOADS, SOME, cases
from penstock.papers.predictive.summaries import accuracy, by_load, change, joined, shares
from penstock.papers.predictive.trial import DECIDING, run_trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

TOPOLOGY = "word-count"


def _cases(quick: bool) -> list[Case]:
    return [*cases(TOPOLOGY, quick, SOME), *cases(TOPOLOGY, quick, ALL)]


def _claims(rows: pd.DataFrame) -> list[Claim]:
    own = {how: rows[rows["training"] == how] for how in (SOME, ALL)}
    saved = {how: change(found, DECIDING[0]) for how, found in own.items()}
    kinds = {"regressions": "svr", "mean": "mean"}
    told = {
        f"{how}:": joined({name: shares(accuracy(found, kind, "placement", LOADS)) for name, kind in kinds.items()})
        for how, found in own.items()
    }
    return [
        Claim(
            "training",
            "ours: trained on placements over various numbers of machines, Algorithm 1 saves more",
            "-",
            "; ".join(f"{how}: {by_load(found)}" for how, found in saved.items()),
            "mean over loads lower by 5 points or more",
            saved[SOME].mean() <= saved[ALL].mean() - 0.05,
            "the difference is within the spread over seeds: Algorithm 1 does not need crowded machines in the "
            f"training data. Accuracy over placements of its own kind: {joined(told)}",
        ),
    ]


def _draw(rows: pd.DataFrame, picture: "Picture") -> None:
    axis = picture.subplots()
    for number, how in enumerate((SOME, ALL)):
        for scheme, dash in zip(DECIDING, ("-", "--"), strict=True):
            found = 100 * change(rows[rows["training"] == how], scheme)
            style = {**look(COLOURS[number]), "linestyle": dash}
            spread = found.std(axis=0)
            axis.errorbar([100 * load for load in LOADS], found.mean(axis=0), spread, **style, label=f"{scheme}, {how}")
    axis.axhline(0.0, color="black", linewidth=0.8)
    label(axis, "load (% of what the default placement carries)", "change of the mean time (%)", "word count")
    axis.legend(fontsize=7, frameon=False)


FIGURES: tuple[Figure, ...] = (
    Figure("training", "What training placements are worth", _cases, run_trial, _draw, _claims),
)
