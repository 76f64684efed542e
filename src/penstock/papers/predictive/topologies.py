"""Figures 2.7 to 2.10, one topology each: accuracy of predicted times, and benefit of scheduling with predictions.

As in the dissertation: (a) the accuracy of every component, edge and the whole, (b) times of components and edges under
the default scheduler and under predictive scheduling, (c) the whole, here at three loads. In addition (d): placements
and loads that were not trained on, predicted by the regressions, by simpler models, by a twin calibrated with the same
windows and by one with the true costs.

A figure of our own shows the effect of the training placements: word count, drawn over a random number of machines, or
always over all of them. Over ten machines, thirty tasks hardly ever share a machine, so training data contain no
crowded machines. The dissertation says only that its placements were random and diverse.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure
from penstock.experiments.pictures import COLOURS, Axes, Picture, bars_beside, curve_style, label
from penstock.experiments.statistics import signed_spread
from penstock.papers.predictive.models import PATHS, TREES
from penstock.papers.predictive.settings import ALL, LOADS, NEW_LOADS, SOME, trial_cases
from penstock.papers.predictive.summaries import accuracy, by_load, change, joined, parts, shares, values
from penstock.papers.predictive.trial import CALIBRATED, DECIDING, TRUE, run_trial
from penstock.papers.predictive.windows import Key

NEAR = 0.10  # percentage points, as a share: tolerance of equal reductions
MIDDLE = LOADS[1]
SCHEMES = {"default": 0, "predictive": 1, "predictive-search": 2, "twin": 7}
PREDICTORS = {"svr": 1, "linear": 2, "mean": 7, CALIBRATED: 0, TRUE: 3}
DETAILS = {"twin": "best found by the true twin"}


WAITING = "the default placement does not lack cores, so that no other shortens the 0.8 ms of a query; "


class Paper(NamedTuple):
    """The dissertation's results for a topology."""

    number: str
    topology: str
    title: str
    overall: float  # accuracy
    least: float  # minimum accuracy of a component or an edge
    reduction: float
    why: str = ""  # reason if it is not reproduced here


PAPERS = (
    Paper("2.7", "word-count", "word count", 0.833, 0.838, 0.318),
    Paper("2.8", "log-processing", "log stream processing", 0.84, 0.858, 0.20),
    Paper("2.9", "continuous-queries", "continuous queries", 0.852, 0.883, 0.227, WAITING),
    Paper("2.10", "word-count-2", "word count with two sources", 0.86, 0.837, 0.304),
)


def _cases(paper: Paper, quick: bool) -> list[Case]:
    return trial_cases(paper.topology, quick)


def _claims(paper: Paper, rows: pd.DataFrame) -> list[Claim]:
    claims = [*_accuracy_claims(paper, rows), *_reduction_claims(paper, rows), *_new_claims(rows)]
    if paper.topology.startswith("word-count"):
        claims += _word_count_claims(rows)
    return claims


def _accuracy_claims(paper: Paper, rows: pd.DataFrame) -> list[Claim]:
    overall = accuracy(rows, "svr", "features", LOADS)
    trees = accuracy(rows, "svr", "features", LOADS, TREES)
    beside = {kind: shares(accuracy(rows, kind, "features", LOADS)) for kind in ("linear", "mean")}
    found = {key: accuracy(rows, "svr", "features", LOADS, key) for key in parts(rows)}
    worst, best = (pick(found, key=lambda key: float(found[key].mean())) for pick in (min, max))
    return [
        Claim(
            "accuracy of the whole topology",
            f"{100 * paper.overall:.1f} %",
            shares(overall),
            "no less",
            overall.mean() >= paper.overall,
            f"{joined(beside)}; of whole trees, which (2.5) does not predict, {shares(trees)}",
        ),
        Claim(
            "accuracy of every component and edge",
            f"from {100 * paper.least:.1f} %",
            f"{shares(found[worst])} ({worst[1]}) to {shares(found[best])} ({best[1]})",
            "the least no less",
            found[worst].mean() >= paper.least,
        ),
    ]


def _reduction_claims(paper: Paper, rows: pd.DataFrame) -> list[Claim]:
    first, search, best = (change(rows, scheme) for scheme in (*DECIDING, "twin"))
    why = f"whole trees: {by_load(change(rows, DECIDING[0], TREES))}; the best that a search on the true twin found: "
    return [
        Claim(
            "Algorithm 1 reduces the mean tuple processing time of the default scheduler",
            f"−{100 * paper.reduction:.1f} %",
            by_load(first),
            f"mean over loads within {100 * NEAR:.0f} points",
            abs(first.mean() + paper.reduction) <= NEAR,
            f"the paper's load is not known; {paper.why}{why}{by_load(best)}",
        ),
        Claim(
            "ours: predictive-search reduces it no less than Algorithm 1",
            "-",
            by_load(search),
            "mean over loads no more than 1 point behind",
            search.mean() <= first.mean() + 0.01,
            f"whole trees: {by_load(change(rows, DECIDING[1], TREES))}; "
            f"predicted: {by_load(change(rows, DECIDING[1], what='predicted'))}",
        ),
    ]


def _new_claims(rows: pd.DataFrame) -> list[Claim]:
    found = {scheme: accuracy(rows, scheme, "placement", NEW_LOADS) for scheme in PREDICTORS}
    known = {scheme: shares(accuracy(rows, scheme, "placement", LOADS)) for scheme in PREDICTORS}
    ranked = [scheme for scheme in PREDICTORS if scheme != "mean"]
    ranks = {one: values(rows, "rank", scheme=one, given="placement").to_numpy() for one in ranked}
    texts = {scheme: f"{one.mean():.2f}" for scheme, one in ranks.items()}
    return [
        Claim(
            "ours: of placements and loads not trained on, regressions are nearer the truth than the mean",
            "-",
            joined({scheme: shares(one) for scheme, one in found.items()}),
            "higher mean accuracy than the mean predictor",
            found["svr"].mean() > found["mean"].mean(),
            f"at loads trained on: {joined(known)}; rank correlation with what was measured: {joined(texts)}",
        )
    ]


def _word_count_claims(rows: pd.DataFrame) -> list[Claim]:
    """Check figure 2.7b: where time is saved, and where it is not."""
    streams = [key for key in parts(rows) if key[0] == "stream"]
    slower = [("component", "count"), ("component", "database")]
    saved = {key: float(change(rows, DECIDING[0], key)[:, 1].mean()) for key in (*streams, *slower)}
    first = [saved[key] for key in streams if key[1].endswith("->split")]
    later = [saved[key] for key in streams if not key[1].endswith("->split")]
    texts = {scheme: {key[1]: signed_spread(change(rows, scheme, key)[:, 1]) for key in saved} for scheme in DECIDING}

    def listed(scheme: str, keys: Sequence[Key]) -> str:
        return joined({name: texts[scheme][name] for _, name in keys})

    at = f"{DECIDING[1]} at {100 * MIDDLE:g} %: "
    used = {scheme: float(values(rows, "machines", scheme=scheme)[MIDDLE].mean()) for scheme in (*DECIDING, "twin")}
    most = max(slower, key=lambda key: saved[key])
    short = float(values(rows, "time", most, scheme="default")[MIDDLE].mean())
    return [
        Claim(
            "most is saved on the way from source to split",
            "over −60 %, −30 % and −30 %",
            listed(DECIDING[0], streams),
            "from the source at least −40 %, the others −15 to −45 %",
            max(first) <= -0.4 and all(-0.45 <= one <= -0.15 for one in later),
            "the time of a stream is mostly the delay between machines, which ends for tasks that come to share one. "
            "In Algorithm 1 every task has one turn, sources first, when the tasks that follow are still spread over "
            f"all machines; it ends with {used[DECIDING[0]]:.1f} machines in use, the best that was found with "
            f"{used['twin']:.1f}. {at}{listed(DECIDING[1], streams)}",
        ),
        Claim(
            "count and database are slightly slower, as machines are shared by more tasks",
            "slightly worse",
            listed(DECIDING[0], slower),
            "both 0 to +20 %",
            all(0.0 <= saved[key] <= 0.2 for key in slower),
            f"{most[1]} takes {1e3 * short:.0f} µs by default; the {1e3 * short * saved[most]:.1f} µs that sharing "
            f"cores adds are much of that, and little beside a delay between machines. {at}"
            f"{listed(DECIDING[1], slower)}",
        ),
    ]


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(11.0, 7.5)
    axes = picture.subplots(2, 2)
    _draw_accuracies(rows, axes[0][0])
    _draw_parts(rows, axes[0][1])
    _draw_whole(rows, axes[1][0])
    _draw_new(rows, axes[1][1])


def _draw_accuracies(rows: pd.DataFrame, axis: Axes) -> None:
    keys: list[Key] = [*parts(rows), PATHS]
    found = [accuracy(rows, "svr", "features", LOADS, key) for key in keys]
    _bars(axis, keys, [[100 * one.mean() for one in found]], [[100 * one.std() for one in found]], [COLOURS[0]], [""])
    label(axis, "", "accuracy (%)", "(a) accuracy, mean over loads")
    axis.set_ylim(0, 105)


def _draw_parts(rows: pd.DataFrame, axis: Axes) -> None:
    keys, schemes = parts(rows), ("default", *DECIDING)
    found = [[values(rows, "time", key, scheme=one)[MIDDLE] for key in keys] for one in schemes]
    means, around = ([[float(f(one)) for one in row] for row in found] for f in (np.mean, np.std))
    _bars(axis, keys, means, around, [COLOURS[SCHEMES[one]] for one in schemes], list(schemes))
    label(axis, "", "mean time (ms)", f"(b) components and edges at {100 * MIDDLE:g} %")


def _draw_whole(rows: pd.DataFrame, axis: Axes) -> None:
    for scheme, colour in SCHEMES.items():
        for key, dash in ((PATHS, "-"), (TREES, ":")):
            found = values(rows, "time", key, scheme=scheme)[list(LOADS)]
            style = {**curve_style(COLOURS[colour]), "linestyle": dash}
            name = DETAILS.get(scheme, scheme) if key == PATHS else ""
            axis.errorbar([100 * load for load in LOADS], found.mean(), found.std().fillna(0.0), **style, label=name)
    axis.set_ylim(bottom=0)
    label(axis, "load (% of what the default placement carries)", "mean time (ms)", "(c) whole (dotted: whole trees)")
    axis.legend(fontsize=7, frameon=False)


def _draw_new(rows: pd.DataFrame, axis: Axes) -> None:
    for scheme, colour in PREDICTORS.items():
        found = 100 * values(rows, "accuracy", scheme=scheme, given="placement")
        axis.errorbar(
            [100 * load for load in found.columns],
            found.mean(),
            found.std().fillna(0.0),
            **curve_style(COLOURS[colour]),
            label=scheme,
        )
    for load in NEW_LOADS:
        axis.axvline(100 * load, color="black", linewidth=0.5, linestyle=":")
    label(axis, "load (%; dotted: not trained on)", "accuracy (%)", "(d) placements not trained on")
    axis.legend(fontsize=7, frameon=False)


def _bars(
    axis: Axes,
    keys: Sequence[Key],
    means: Sequence[Sequence[float]],
    around: Sequence[Sequence[float]],
    colours: Sequence[str],
    names: Sequence[str],
) -> None:
    """Draw groups of bars, one group per key."""
    for number, (mean, spread) in enumerate(zip(means, around, strict=True)):
        bars_beside(axis, number, len(means), mean, yerr=spread, color=colours[number], label=names[number])
    texts = [key[1] if key != PATHS else "whole" for key in keys]
    axis.set_xticks(range(len(keys)), texts, rotation=30, ha="right", fontsize=7)
    if any(names):
        axis.legend(fontsize=7, frameon=False)


def _training_cases(quick: bool) -> list[Case]:
    return [*trial_cases("word-count", quick, SOME), *trial_cases("word-count", quick, ALL)]


def _training_claims(rows: pd.DataFrame) -> list[Claim]:
    own = {how: rows[rows["training"] == how] for how in (SOME, ALL)}
    saved = {how: change(found, DECIDING[0]) for how, found in own.items()}
    kinds = {"regressions": "svr", "mean": "mean"}
    texts = {
        f"{how}:": joined({name: shares(accuracy(found, kind, "placement", LOADS)) for name, kind in kinds.items()})
        for how, found in own.items()
    }
    return [
        Claim(
            "ours: trained on placements over various numbers of machines, Algorithm 1 saves more",
            "-",
            "; ".join(f"{how}: {by_load(found)}" for how, found in saved.items()),
            "mean over loads lower by 5 points or more",
            saved[SOME].mean() <= saved[ALL].mean() - 0.05,
            "the difference is within the spread over seeds: Algorithm 1 does not need crowded machines in the "
            f"training data. Accuracy over placements of its own kind: {joined(texts)}",
        )
    ]


def _draw_training(rows: pd.DataFrame, picture: Picture) -> None:
    axis = picture.subplots()
    for number, how in enumerate((SOME, ALL)):
        for scheme, dash in zip(DECIDING, ("-", "--"), strict=True):
            found = 100 * change(rows[rows["training"] == how], scheme)
            style = {**curve_style(COLOURS[number]), "linestyle": dash}
            spread = found.std(axis=0)
            axis.errorbar([100 * load for load in LOADS], found.mean(axis=0), spread, **style, label=f"{scheme}, {how}")
    axis.axhline(0.0, color="black", linewidth=0.8)
    label(axis, "load (% of what the default placement carries)", "change of the mean time (%)", "word count")
    axis.legend(fontsize=7, frameon=False)


TRAINING = Figure(
    "training", "What training placements are worth", _training_cases, run_trial, _draw_training, _training_claims
)


FIGURES: tuple[Figure, ...] = tuple(
    Figure(
        paper.number,
        f"Figure {paper.number}: {paper.title}",
        partial(_cases, paper),
        run_trial,
        _draw,
        partial(_claims, paper),
    )
    for paper in PAPERS
)
