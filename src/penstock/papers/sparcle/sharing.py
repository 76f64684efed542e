"""Figures 13 and 14: several applications on one star, admitted one after another with each placement policy."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from penstock.admission import Admitted, admit
from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.experiments.pictures import Picture, finish
from penstock.experiments.statistics import signed
from penstock.model.book import Book
from penstock.model.topology import Application
from penstock.papers.sparcle import names
from penstock.papers.sparcle.runs import APART, BALANCED, BOTTLENECKS, instances
from penstock.papers.sparcle.summaries import cdf, column, gain_over
from penstock.workloads.sparcle import random_application, random_network

ASKED = (
    names.CANONICAL,
    names.SPARCLE,
    names.REFINED,
    names.GS,
    names.GR,
    names.GS_NEAR,
    names.T_STORM,
    names.VNE,
    names.HEFT,
    names.RANDOM,
)
PRIORITIES = (2.0, 1.0)
GUARANTEED, QUICK_GUARANTEED = 60, 2  # instances
APPLICATIONS = 16  # that request admission
RATES = (0.02, 0.2)  # uniform between; a unit is one average task per second on an average machine


def _pair_cases(quick: bool) -> list[Case]:
    return [{"case": BALANCED, "seed": seed} for seed in range(instances(quick))]


def _guaranteed_cases(quick: bool) -> list[Case]:
    return [{"case": BALANCED, "seed": seed} for seed in range(QUICK_GUARANTEED if quick else GUARANTEED)]


def run_pair(one: Case) -> Sequence[Row]:
    """Admit two best-effort applications with each policy: Σ P log x, and the first's rate over the second's."""
    rng = np.random.default_rng(int(one["seed"]))
    cluster = random_network("star", BOTTLENECKS[str(one["case"])], rng)
    pair = [
        random_application("diamond", cluster, rng, name=f"a{number}", priority=priority)
        for number, priority in enumerate(PRIORITIES)
    ]
    row: dict[str, float] = {}
    for name in ASKED:
        book = admit_to_book(Book(cluster=cluster), pair, name, int(one["seed"]))[0]
        rates = [book[asked.name].rate_tps if asked.name in book.index else 0.0 for asked in pair]
        row[name] = float(sum(p * np.log(max(x, 1e-12)) for p, x in zip(PRIORITIES, rates, strict=True)))  # (4)
        row[f"{name}_ratio"] = rates[0] / rates[1] if rates[1] > 0 else 0.0
    return [row]


def run_guaranteed(one: Case) -> Sequence[Row]:
    """Admit guaranteed applications one after another: the total rate of those admitted, and their number."""
    rng = np.random.default_rng(int(one["seed"]))
    cluster = random_network("star", BOTTLENECKS[str(one["case"])], rng)
    asking = [
        random_application(
            "diamond" if rng.random() < 0.5 else "linear",
            cluster,
            rng,
            name=f"a{number}",
            guaranteed_tps=float(rng.uniform(*RATES)),
        )
        for number in range(APPLICATIONS)
    ]
    row: dict[str, float] = {"asked": sum(own.guaranteed_tps or 0.0 for own in asking)}
    for name in ASKED:
        book, admitted = admit_to_book(Book(cluster=cluster), asking, name, int(one["seed"]))
        row[name] = sum(own.guaranteed_tps or 0.0 for own in asking if own.name in book.index)
        row[f"{name}_admitted"] = float(admitted)
    return [row]


def admit_to_book(book: Book, asking: Sequence[Application], name: str, seed: int) -> tuple[Book, int]:
    """Request admission for all in turn; return the book and the number admitted."""
    admitted = 0
    for own in asking:
        answer = admit(book, own, policy=names.POLICIES[name], seed=seed + APART, advise=False, reliable_routes=False)
        if isinstance(answer, Admitted):
            book, admitted = answer.book, admitted + 1
    return book, admitted


def _draw_pair(rows: pd.DataFrame, picture: Picture) -> None:
    axis = picture.subplots()
    cdf(axis, rows, [name for name in ASKED if name != names.GS_NEAR])
    low = min(float(np.percentile(column(rows, name), 2)) for name in ASKED)
    axis.set_xlim(left=low)
    finish(axis, "utility 2 log x₁ + log x₂", "share of instances", "balanced, star of 8")


def _draw_guaranteed(rows: pd.DataFrame, picture: Picture) -> None:
    left, right = picture.subplots(1, 2)
    shown = [name for name in ASKED if name != names.GS_NEAR]
    measures: Mapping[str, tuple[str, str]] = {
        "": ("rate of those admitted", "data units/s"),
        "_admitted": ("admitted", f"of {APPLICATIONS} applications"),
    }
    for axis, (measure, (title, up)) in zip((left, right), measures.items(), strict=True):
        means = [float(column(rows, name + measure).mean()) for name in shown]
        errors = [float(column(rows, name + measure).std() / np.sqrt(len(rows))) for name in shown]
        axis.bar(
            range(len(shown)), means, yerr=errors, color=[names.COLOUR[name] for name in shown], alpha=0.7, capsize=2
        )
        finish(axis, up=up, title=f"{title}: mean and its standard error", legend=False)
        axis.grid(visible=False, axis="x")
        axis.set_xticks(range(len(shown)), [names.TITLES[name].replace(", ", ",\n") for name in shown], fontsize=7)
        axis.tick_params(axis="x", rotation=60)


def _pair_claims(rows: pd.DataFrame) -> list[Claim]:
    means = {name: float(column(rows, name).mean()) for name in ASKED}
    best = max(means[name] for name in names.PUBLISHED)
    apart = (column(rows, names.CANONICAL) - column(rows, names.GS)) / sum(PRIORITIES)
    twice = column(rows, f"{names.CANONICAL}_ratio")
    return [
        Claim(
            "SPARCLE has the highest utility",
            "best",
            ", ".join(f"{names.TITLES[name]} {means[name]:.2f}" for name in names.PUBLISHED),
            "highest mean",
            means[names.CANONICAL] >= best,
            "as in figure 11: at 1 : 1 the order of tasks matters less than ties and rating streams one by one. Our "
            f"default, which changes both, has {means[names.SPARCLE]:.2f} (GS with near ties "
            f"{means[names.GS_NEAR]:.2f}), refined {means[names.REFINED]:.2f}, HEFT {means[names.HEFT]:.2f}",
        ),
        Claim(
            "check: GS is level with SPARCLE",
            "level",
            f"rates {signed(float(np.expm1(apart.mean())), 1)} against GS, as a weighted geometric mean",
            "within 5 %",
            abs(float(np.expm1(apart.mean()))) <= 0.05,
            f"higher in {(apart > 1e-9).mean():.0%}, lower in {(apart < -1e-9).mean():.0%} of instances",
        ),
        Claim(
            "ours: the application with twice the priority has the higher rate",
            "-",
            f"in {(twice > 1 + 1e-9).mean():.0%} of instances; median {np.median(twice):.2f} times the other's",
            "in more than half of the instances",
            float((twice > 1 + 1e-9).mean()) > 0.5,
            "each is placed where it finds room, so they seldom share what limits both; where they do: figure live",
        ),
    ]


def _guaranteed_claims(rows: pd.DataFrame) -> list[Claim]:
    means = {name: float(column(rows, name).mean()) for name in ASKED}
    best = max(means[name] for name in names.PUBLISHED)
    level = gain_over(rows, names.CANONICAL, names.GS)
    numbers = ", ".join(f"{names.TITLES[name]} {column(rows, f'{name}_admitted').mean():.1f}" for name in ASKED)
    return [
        Claim(
            "SPARCLE admits the highest total rate",
            "considerably increased",
            ", ".join(f"{names.TITLES[name]} {means[name]:.2f}" for name in names.PUBLISHED),
            "highest mean",
            means[names.CANONICAL] >= best,
            "as in figure 13; relative to the best of these SPARCLE has "
            f"{gain_over(rows, names.CANONICAL, max(names.PUBLISHED, key=lambda name: means[name]))}. Of "
            f"{column(rows, 'asked').mean():.2f} asked for, our default admits {means[names.SPARCLE]:.2f} (GS with "
            f"near ties {means[names.GS_NEAR]:.2f}), refined {means[names.REFINED]:.2f}, HEFT "
            f"{means[names.HEFT]:.2f}; admitted applications: {numbers}",
        ),
        Claim(
            "check: GS is level with SPARCLE", "level", f"{level} against GS", "within 5 %", abs(level.value) <= 0.05
        ),
    ]


PAIR_TITLE = "Figure 13: utility of two best-effort applications, P₁ = 2 P₂"
GUARANTEED_TITLE = "Figure 14: total rate of admitted guaranteed applications"
FIGURES: Sequence[Figure] = (
    Figure("13", PAIR_TITLE, _pair_cases, run_pair, _draw_pair, _pair_claims),
    Figure("14", GUARANTEED_TITLE, _guaranteed_cases, run_guaranteed, _draw_guaranteed, _guaranteed_claims),
)
