"""Figure 4: mean response time against the look-ahead W, and what Shuffle and others have without any."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Value
from penstock.experiments.potus.runs import ALTERNATIVES, FABRICS, arrivals_kind, case, length, run_system
from penstock.experiments.potus.summaries import COLOURS, curve, finish, level, means, over, percent, spread, where

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

WINDOWS, QUICK_WINDOWS = (0, 1, 2, 3, 4, 6, 8, 10, 15, 20), (0, 2, 6, 20)
PLUS_WINDOWS = (0, 2, 6, 20)
SATURATED = 0.98  # on every component: where the paper's ratio to Shuffle is found


def _cases(quick: bool) -> list[Case]:
    made: list[Case] = []
    for seed in range(length(quick).seeds):
        for fabric in FABRICS:
            for kind in ("poisson", arrivals_kind()):
                usual: dict[str, Value] = {"fabric": fabric, "arrivals": kind, "seed": seed}
                made += [case(quick, window=window, **usual) for window in (QUICK_WINDOWS if quick else WINDOWS)]
                made += [case(quick, window=window, policy="potus-plus", v=0.0, **usual) for window in PLUS_WINDOWS]
                made += [case(quick, policy=policy, **usual) for policy in ALTERNATIVES]
            full: dict[str, Value] = {
                "fabric": fabric,
                "arrivals": "poisson",
                "balanced": True,
                "utilisation": SATURATED,
                "seed": seed,
            }
            made += [case(quick, policy="shuffle", **full)] + [case(quick, v=v, **full) for v in (0.0, 3.0)]
    return made


def _draw(rows: pd.DataFrame, picture: "Picture") -> None:
    picture.set_size_inches(10, 8)
    usual = where(rows, balanced=False)
    panels = [(fabric, kind) for fabric in FABRICS for kind in usual["arrivals"].unique()]
    for axis, (fabric, kind) in zip(picture.subplots(2, 2, sharex=True).flat, panels, strict=True):
        own = where(usual, fabric=fabric, arrivals=kind)
        curve(axis, where(own, policy="potus"), "window", "response", "POTUS, V = 3", COLOURS[1])
        curve(axis, where(own, policy="potus-plus"), "window", "response", "POTUS-plus, V = 0", COLOURS[2])
        level(axis, where(own, policy="shuffle"), "response", "Shuffle", COLOURS[0])
        level(axis, where(own, policy="least-loaded"), "response", "least loaded", COLOURS[7])
        axis.set_ylim(bottom=0)
        finish(axis, {"x": "look-ahead W (slots)", "y": "mean response time (slots)", "title": f"{fabric}, {kind}"})


def _claims(rows: pd.DataFrame) -> list[Claim]:
    usual = where(rows, balanced=False)
    potus = where(usual, policy="potus")
    curves = [means(own, "window", "response") for _, own in potus.groupby(["fabric", "arrivals"])]
    last = max(potus["window"])
    left = {window: [found[window] / found[0] for found in curves] for window in (6, last)}
    saved = [float(step) for found in curves for step in -np.diff(found) / np.diff(found.index)]
    best = min(found[last] for found in curves)
    falls = all(after <= 1.01 * before for found in curves for before, after in pairwise(found))
    unit = "31.4 → 1.5 needs slots of several ms, or another load"
    return [
        Claim(
            "4",
            "response falls as W grows",
            "31.4 ms at W=0",
            _ends(curves, last),
            "every step, 1 % slack",
            falls,
            "fabrics × arrivals, utilisation 0.8 of the fullest component",
        ),
        Claim(
            "4",
            "nearly nothing is left at W=6",
            "1.5 of 31.4 ms: 5 %",
            f"{spread(left[6])} of W=0 is left",
            "≤ 0.10",
            float(np.mean(left[6])) <= 0.10,
            f"a slot of look-ahead saves {np.mean(saved):.2f} slots here, and at most {max(saved):.2f}; {unit}",
        ),
        Claim(
            "4",
            "then it stays near 0.5 ms",
            "0.5 of 31.4 ms: 1.6 %",
            f"{spread(left[last])} of W=0 is left at W={last}; the least is {best:.1f} slots",
            "≤ 0.05",
            float(np.mean(left[last])) <= 0.05,
            "it is still falling there",
        ),
        Claim(
            "4",
            "check: at most about one slot is saved a slot of look-ahead",
            "≤ 1",
            f"at most {max(saved):.2f}, {np.mean(saved):.2f} on average",
            "≤ 1.1 in every step",
            max(saved) <= 1.1,
        ),
        *_shuffle_claims(rows, usual),
    ]


def _shuffle_claims(rows: pd.DataFrame, usual: pd.DataFrame) -> list[Claim]:
    """Judge what is said of Shuffle beside POTUS without look-ahead."""
    bare = where(usual, window=0)
    potus, plus = where(bare, policy="potus"), where(bare, policy="potus-plus")
    ratio = over(where(bare, policy="shuffle"), potus, "response")
    full = where(rows, balanced=True)
    shuffled = where(full, policy="shuffle")
    with_v, without = (over(shuffled, where(full, policy="potus", v=v), "response") for v in (3.0, 0.0))
    strongest = min(ALTERNATIVES, key=lambda name: where(bare, policy=name)["response"].mean())
    gain = over(plus, where(bare, policy=strongest), "response")
    said = (
        f"near saturation ({SATURATED} on every component) the ratio is {spread(with_v)}, and {spread(without)} at V=0"
    )
    return [
        Claim(
            "4",
            "Shuffle is about 5 % above POTUS without look-ahead",
            "+5 %",
            percent(ratio - 1),
            "0 to +10 %",
            0.0 <= ratio.mean() - 1 <= 0.10,
            said,
        ),
        Claim(
            "4",
            "check: at 0.8 on the fullest component Shuffle is 40–50 % below POTUS at V=3",
            "−40 to −50 %",
            percent(ratio - 1),
            "−30 to −60 %",
            -0.60 <= ratio.mean() - 1 <= -0.30,
            "under (8); POTUS holds tuples back until a queue is V·U longer than the next",
        ),
        Claim(
            "4",
            "check: near saturation Shuffle and POTUS are level",
            "1.0",
            f"{spread(without)} at V=0, {spread(with_v)} at V=3",
            "0.9 to 1.1 at V=3",
            0.9 <= with_v.mean() <= 1.1,
            f"{SATURATED} on every component, Poisson",
        ),
        Claim(
            "4",
            "ours: POTUS-plus is no slower than the strongest alternative",
            "-",
            f"{spread(gain, 3)} of {strongest}",
            "≤ 1.01",
            float(gain.mean()) <= 1.01,
            "V = 0, W = 0",
        ),
    ]


def _ends(curves: Sequence["pd.Series[float]"], last: int) -> str:
    texts = [f"{found[0]:.1f}, {found[6]:.1f}, {found[last]:.1f}" for found in curves]
    return f"slots at W=0, 6, {last}: " + "; ".join(texts)


FIGURES: Sequence[Figure] = (
    Figure("4", "Figure 4: response time against look-ahead", _cases, run_system, _draw, _claims),
)
