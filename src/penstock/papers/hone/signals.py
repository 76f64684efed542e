"""Duration of a signal: cost of the longest queue keeping the card for τ slots, as in Hone's implementation.

As published, no other queue sends in the meantime, so the card idles when the signalled queue runs empty. In the
work-conserving variant, the longest of the others sends.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.experiments.pictures import Axes, Picture
from penstock.papers.hone.links import KINDS, QUEUES, QUICK_SEEDS, SEEDS, SLOTS, measures, send_over
from penstock.papers.hone.tables import CHECK_RUNS, JUDGED, apart, averages, draw_means, finish, growing, mark, spreads
from penstock.workloads.hone import draw_arrivals, link_load

TAUS, QUICK_TAUS = (1, 2, 5, 10, 20, 50, 100), (1, 2, 10, 50)
RATES = (500, 900)
RATE = 900  # of the independent check
NOTED = {1: 4.4, 2: 9.0, 10: 45.0}  # τ: mean delay in slots, as published
TOLERANCE = 0.1
SAME = 1e-9
FORMS = {False: ("as published", "#d1603d"), True: ("work-conserving", "#4878a8")}


def _cases(quick: bool) -> Sequence[Case]:
    return [
        {"kind": kind, "rate": rate, "tau": tau, "conserving": conserving, "seed": seed}
        for kind in KINDS
        for rate in RATES
        for tau in (QUICK_TAUS if quick else TAUS)
        for conserving in FORMS
        for seed in range(QUICK_SEEDS if quick else SEEDS)
    ]


def _run(case: Case) -> list[Row]:
    seed, load = int(case["seed"]), link_load(QUEUES, float(case["rate"]))
    counts = draw_arrivals(str(case["kind"]), SLOTS, QUEUES, load, np.random.default_rng([seed, int(case["rate"])]))
    spec = f"longest-backlog-first:tau={case['tau']},conserving={str(case['conserving']).lower()}"
    return [measures(send_over(counts, spec, seed))]


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    left, right = picture.subplots(1, 2)
    poisson = rows[rows["kind"] == "poisson"]
    for axis, measure, label in ((left, "delay", "mean delay (slots)"), (right, "largest", "largest backlog (tuples)")):
        for rate, line in zip(RATES, (":", "-"), strict=True):
            _draw_forms(axis, poisson[poisson["rate"] == rate], measure, line, f"{rate}/s")
        mark(axis, sorted(rows["tau"].unique()))
        finish(axis, "τ (slots)", label, logarithmic=True)
    left.legend(frameon=False, fontsize=8)


def _draw_forms(axis: Axes, rows: pd.DataFrame, measure: str, line: str, setting: str) -> None:
    for conserving, (text, colour) in FORMS.items():
        found = spreads(rows[rows["conserving"] == conserving], measure, "tau")
        draw_means(axis, found, line, colour, f"{text}, {setting}")


def _claims(rows: pd.DataFrame) -> list[Claim]:
    own = rows[(rows["kind"] == "poisson") & (rows["rate"] == RATE)]
    published, conserving = (own[own["conserving"] == form] for form in FORMS)
    return [_noted(published), _idles(rows), _conserves(rows), _stale(published, conserving)]


def _noted(published: pd.DataFrame) -> Claim:
    found = spreads(published, "delay", "tau")
    return Claim(
        "check: mean delay at 900/s for τ = 1, 2, 10, the signal held",
        ", ".join(f"{delay:g}" for delay in NOTED.values()) + " slots",
        ", ".join(found[tau].text for tau in NOTED) + " slots",
        f"± 10 % {JUDGED}, each",
        all(found[tau].allows(delay, TOLERANCE * delay, CHECK_RUNS) for tau, delay in NOTED.items()),
    )


def _idles(rows: pd.DataFrame) -> Claim:
    published = rows[~rows["conserving"]]
    ways = {
        f"{kind}, {rate}/s": averages(
            spreads(published[(published["kind"] == kind) & (published["rate"] == rate)], "delay", "tau")
        )
        for kind in KINDS
        for rate in RATES
    }
    return Claim(
        "check: holding the signal idles the link: the delay grows with τ",
        "yes",
        f"from τ = 1 to {rows['tau'].max()} "
        + ", ".join(f"×{way[-1] / way[0]:.0f} ({at})" for at, way in ways.items()),
        "grows at every step, both rates, Poisson and traces",
        all(growing(way) and way[-1] > way[0] for way in ways.values()),
    )


def _conserves(rows: pd.DataFrame) -> Claim:
    differ = apart(rows[rows["conserving"]], "delay", ["kind", "rate"], "tau")
    return Claim(
        "check: a live LBF must be work-conserving within τ: then the mean delay does not depend on τ",
        "must",
        f"largest relative difference over τ of any run {differ:.1g}",
        "1e-9",
        differ <= SAME,
    )


def _stale(published: pd.DataFrame, conserving: pd.DataFrame) -> Claim:
    held, kept = (spreads(own, "largest", "tau") for own in (published, conserving))
    first, last = min(kept), max(kept)
    return Claim(
        "ours: an old signal costs the maximum, less so if work-conserving (largest backlog)",
        "not stated",
        f"τ = {first}: {kept[first].text}; τ = {last}: {kept[last].text} work-conserving, {held[last].text} published",
        "grows with τ; work-conserving ≤ as published at every τ",
        kept[last].mean > kept[first].mean and all(kept[tau].mean <= held[tau].mean for tau in kept),
    )


SIGNALS = Figure("signal", "How long the signal is held", _cases, _run, _draw, _claims)
