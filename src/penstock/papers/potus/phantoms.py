"""Figure 6c: response time against look-ahead if arrivals are predicted, missed, or predicted among phantoms; V = 1."""

from collections.abc import Sequence

import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Value, select
from penstock.experiments.pictures import COLOURS, Picture, finish
from penstock.papers.potus.runs import case, length, run_system
from penstock.papers.potus.summaries import curve, means

WINDOWS, QUICK_WINDOWS = (0, 1, 2, 4, 6, 8, 10), (0, 2, 6, 10)
PHANTOMS = (2.0, 5.0, 10.0, 20.0, 30.0)  # per slot, in the whole system
SHARES = (0.1, 0.3)  # per real tuple
MODERATE, MODERATE_PHANTOMS = 0.5, (10.0, 30.0)
NEVER = 0.99  # relative to no prediction: a lower value is a benefit


def _cases(quick: bool) -> list[Case]:
    made: list[Case] = []
    for seed in range(length(quick).seeds):
        for window in QUICK_WINDOWS if quick else WINDOWS:
            for utilisation, amounts, shares in ((0.8, PHANTOMS, SHARES), (MODERATE, MODERATE_PHANTOMS, ())):
                own: dict[str, Value] = {"v": 1.0, "window": window, "utilisation": utilisation, "seed": seed}
                made += [case(quick, **own), case(quick, forecast="all-true-negative", **own)]
                made += [case(quick, forecast="false-positive", phantoms=x, **own) for x in amounts]
                made += [
                    case(quick, forecast="false-positive", phantoms=x, shared=True, evenly=evenly, **own)
                    for x in shares
                    for evenly in (False, True)
                ]
    return made


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(10, 6.5)
    for axis, utilisation in zip(picture.subplots(1, 2), (0.8, MODERATE), strict=True):
        own = select(rows, utilisation=utilisation)
        curve(axis, select(own, forecast="perfect"), "window", "response", "perfect", COLOURS[2])
        curve(axis, select(own, forecast="all-true-negative"), "window", "response", "All-True-Negative", COLOURS[7])
        for number, x in enumerate(PHANTOMS):
            part = select(own, forecast="false-positive", phantoms=x, shared=False)
            if not len(part):
                continue
            curve(
                axis,
                part,
                "window",
                "response",
                f"False-Positive({x:g}), {_added(part, x):.0%} more",
                COLOURS[(3, 4, 5, 1, 6)[number]],
            )
        for x, style in zip(SHARES, ("--", ":"), strict=True):
            part = select(own, forecast="false-positive", phantoms=x, shared=True, evenly=False)
            if not len(part):
                continue
            curve(axis, part, "window", "response", f"False-Positive, {x:.0%} of real ones", COLOURS[0], style)
        axis.set_yscale("log")
        finish(
            axis,
            "look-ahead W (slots)",
            "response time (slots)",
            f"utilisation {utilisation} of the fullest component",
            below=True,
        )


def _added(rows: pd.DataFrame, x: float) -> float:
    """Return the number of phantoms per real tuple."""
    return x / float(rows["tuples_a_slot"].mean())


def _claims(rows: pd.DataFrame) -> list[Claim]:
    usual, moderate = select(rows, utilisation=0.8), select(rows, utilisation=MODERATE)
    perfect, missed = (
        means(select(usual, forecast=name), "window", "response") for name in ("perfect", "all-true-negative")
    )
    last = int(perfect.index[-1])
    bare, left = float(missed.iloc[0]), float(perfect.iloc[-1] / perfect.iloc[0])
    ten, thirty = _curve(usual, 10.0), _curve(usual, 30.0)
    easy = _curve(moderate, 10.0)
    easy_bare = float(means(select(moderate, forecast="all-true-negative"), "window", "response").iloc[0])
    alone = float(means(select(moderate, forecast="perfect"), "window", "response").iloc[-1])
    return [
        Claim(
            "perfect prediction brings the response time to nearly nothing at W = 10",
            "near 0",
            f"{left:.2f} of W = 0 is left at W = {last}",
            "≤ 0.10",
            left <= 0.10,
            "V·U holds tuples back also where nothing waits, and the look-ahead of an application is random, 0 to 2 W, "
            f"so that some have little; at utilisation {MODERATE} {alone:.1f} of {easy_bare:.1f} slots are left",
        ),
        Claim(
            "All-True-Negative does not depend on W",
            "constant",
            f"{missed.min():.2f} to {missed.max():.2f} slots",
            "equal",
            bool(missed.max() - missed.min() < 1e-9),
        ),
        Claim(
            "False-Positive(10) is best near W = 2",
            "W = 2",
            _text(ten),
            "least at W = 1 to 4",
            1 <= int(ten.idxmin()) <= 4,
            _loads(usual, easy),
        ),
        Claim(
            "False-Positive(10) is worse than All-True-Negative past W = 6",
            "worse",
            f"{ten.iloc[-1] / bare:.1f} times at W = {last}",
            "> 1 there and ≤ 1 at W = 2",
            ten.iloc[-1] > bare and float(ten.loc[2]) <= bare,
            f"{_worse(ten, bare)}, because phantoms overload the system; at utilisation {MODERATE}, where it helps at "
            f"first, it is {_worse(easy, easy_bare)}",
        ),
        Claim(
            "False-Positive(30) never helps",
            "never",
            _text(thirty),
            "≥ 0.99 of no prediction at every W",
            bool((thirty.loc[1:] >= NEVER * bare).all()),
            f"30 a slot are {_added(usual, 30.0):.0%} more tuples; at utilisation {MODERATE}: "
            f"{_text(_curve(moderate, 30.0))} ({easy_bare:.1f} without prediction)",
        ),
        _share_claim(usual, bare),
    ]


def _share_claim(usual: pd.DataFrame, bare: float) -> Claim:
    """Check whether phantoms as a share of real tuples do less harm than the same number per slot."""
    shared, even = (_curve(usual, SHARES[0], shared=True, evenly=evenly) for evenly in (False, True))
    amount = SHARES[0] * float(usual["tuples_a_slot"].mean())
    return Claim(
        "check: x as a share of real tuples behaves more sensibly than x a slot",
        "more sensibly",
        f"{SHARES[0]:.0%} of real tuples ({amount:.1f} a slot): {_text(shared)}; as many, equally at every source: "
        f"{_text(even)}",
        "with equally many phantoms, the share is no worse at every W",
        bool((shared <= even).all()),
        f"without prediction {bare:.1f}. A share gives the busiest applications the most phantoms, equal numbers give "
        "small ones relatively more: which of them saturates first depends on the system",
    )


def _curve(rows: pd.DataFrame, x: float, shared: bool = False, evenly: bool = False) -> "pd.Series[float]":
    own = select(rows, forecast="false-positive", phantoms=x, shared=shared, evenly=evenly)
    return means(own, "window", "response")


def _text(found: "pd.Series[float]") -> str:
    return ", ".join(f"W={window} {value:.1f}" for window, value in found.items() if window in (0, 2, 6, 10))


def _worse(found: "pd.Series[float]", bare: float) -> str:
    """Describe from which look-ahead on a curve stays above no prediction."""
    above = [window for window in found.index if window > 0 and (found.loc[window:] > bare).all()]
    return f"worse from W = {above[0]} on" if above else f"not worse at W = {found.index[-1]}"


def _loads(usual: pd.DataFrame, easy: "pd.Series[float]") -> str:
    return (
        f"10 a slot are {_added(usual, 10.0):.0%} more tuples, which overload components that are busy 80 % of the "
        f"time; at utilisation {MODERATE}, with room for them, it is best at W = {easy.idxmin()}: {_text(easy)}"
    )


FIGURES: Sequence[Figure] = (
    Figure("6c", "Figure 6c: response time against look-ahead with errors, V = 1", _cases, run_system, _draw, _claims),
)
