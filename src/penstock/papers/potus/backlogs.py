"""Figures 5a and 5b: the time-average backlog against V for several look-aheads, on both fabrics."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Value, select
from penstock.experiments.pictures import COLOURS, Picture, finish
from penstock.papers.potus.runs import arrivals_kind, case, length, run_system
from penstock.papers.potus.summaries import ACROSS_V, crossing, curve, fit_line, level, means

WEIGHTS, QUICK_WEIGHTS = (1.0, 5.0, 10.0, 16.0, 20.0, 30.0, 40.0, 50.0), (1.0, 16.0, 30.0, 50.0)
WINDOWS = (0, 2, 5)
SATURATED_WEIGHTS = (0.0, 5.0, 16.0, 30.0)
SATURATED = (0.98, 0.995)  # utilisation of every component at which Shuffle's backlog equals that of POTUS
STRAIGHT = 0.99  # minimum R² of a linear relation


def _cases(fabric: str, quick: bool) -> list[Case]:
    made: list[Case] = []
    for seed in range(length(quick).seeds):
        usual: dict[str, Value] = {"fabric": fabric, "arrivals": arrivals_kind(), "seed": seed}
        poisson = {**usual, "arrivals": "poisson"}
        weights = QUICK_WEIGHTS if quick else WEIGHTS
        made += [case(quick, v=v, window=window, **usual) for window in WINDOWS for v in weights]
        made += [case(quick, v=v, **poisson) for v in weights]
        made += [case(quick, policy="potus-plus", v=v, **usual) for v in weights[::2]]
        made += [case(quick, policy="shuffle", **one) for one in (usual, poisson)]
        for load in SATURATED if fabric == "fat-tree" else ():
            full = {**poisson, "balanced": True, "utilisation": load}
            made += [case(quick, policy="shuffle", **full), *(case(quick, v=v, **full) for v in SATURATED_WEIGHTS)]
    return made


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    trace, poisson = picture.subplots(1, 2, sharey=True)
    usual = select(rows, balanced=False)
    for axis, kind in zip((trace, poisson), sorted(usual["arrivals"].unique(), reverse=True), strict=True):
        own = select(usual, arrivals=kind)
        for number, (window, part) in enumerate(select(own, policy="potus").groupby("window")):
            curve(axis, part, "v", "backlog", f"POTUS, W = {window}", COLOURS[(1, 4, 6)[number]])
        plus = select(own, policy="potus-plus")
        if len(plus):
            curve(axis, plus, "v", "backlog", "POTUS-plus, W = 0", COLOURS[2])
        level(axis, select(own, policy="shuffle"), "backlog", "Shuffle", COLOURS[0])
        finish(axis, ACROSS_V, "mean backlog (tuples)", str(kind))


def _claims(number: str, rows: pd.DataFrame) -> list[Claim]:
    usual = select(rows, balanced=False, policy="potus")
    lines = {key: fit_line(means(part, "v", "backlog")) for key, part in usual.groupby(["arrivals", "window"])}
    worst = min(found.fit for found in lines.values())
    slopes = [found.slope for found in lines.values()]
    kinds = ", ".join(f"{kind} W={window} {found.slope:.0f}" for (kind, window), found in lines.items())
    shuffled = select(rows, balanced=False, policy="shuffle").groupby("arrivals")["backlog"].mean()
    return [
        Claim(
            "POTUS's backlog grows linearly in V, whatever W",
            "linear for V = 1…50",
            f"R² ≥ {worst:.4f}; tuples a unit of V: {kinds}",
            f"R² ≥ {STRAIGHT} and growing",
            worst >= STRAIGHT and min(slopes) > 0,
            "0.8 of the fullest component; Shuffle, which has no V, has "
            + ", ".join(f"{value:.0f} tuples ({kind})" for kind, value in shuffled.items()),
        ),
        *([_crossing_claim(rows)] if number == "5b" else []),
    ]


def _crossing_claim(rows: pd.DataFrame) -> Claim:
    """Check where POTUS's backlog exceeds Shuffle's, and report where it does in other settings."""
    usual = select(rows, balanced=False, window=0)
    own = select(usual, arrivals=max(usual["arrivals"].unique()))
    first = means(select(own, policy="potus"), "v", "backlog")
    shuffled = select(own, policy="shuffle")["backlog"].mean()
    passed = crossing(first, shuffled)
    above = f"at V = {first.index[0]:g} it is {first.iloc[0] / shuffled:.1f} times Shuffle's already"
    ours = above if passed == first.index[0] else f"passes at V = {passed:.1f}"
    texts = []
    for load in SATURATED:
        full = select(rows, balanced=True, utilisation=load)
        found = means(select(full, policy="potus"), "v", "backlog")
        texts.append(f"V = {crossing(found, select(full, policy='shuffle')['backlog'].mean()):.1f} at {load}")
    return Claim(
        "POTUS's backlog passes Shuffle's near V = 16",
        "V = 16 (fat-tree)",
        ours,
        "V = 8 to 32",
        8.0 <= passed <= 32.0,
        f"every unit of V holds {fit_line(first).slope:.0f} tuples back, and at a load of 0.8 Shuffle has only "
        f"{shuffled:.0f} in all. Near saturation of every component Shuffle's queues grow, and POTUS passes it at "
        f"{', '.join(texts)} (Poisson)",
    )


FIGURES: Sequence[Figure] = tuple(
    Figure(
        number,
        f"Figure {number}: backlog against V, {fabric}",
        partial(_cases, fabric),
        run_system,
        _draw,
        partial(_claims, number),
    )
    for number, fabric in (("5a", "jellyfish"), ("5b", "fat-tree"))
)
