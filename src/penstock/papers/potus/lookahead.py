"""Figure 4: mean response time against the look-ahead W, and that of Shuffle and others without look-ahead."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Value, select
from penstock.experiments.pictures import COLOURS, Picture, finish
from penstock.experiments.statistics import signed_spread
from penstock.model.taskgraph import Floats
from penstock.papers.potus.runs import ALTERNATIVES, FABRICS, arrivals_kind, case, length, run_system
from penstock.papers.potus.summaries import curve, level, means, over, spread

WINDOWS, QUICK_WINDOWS = (0, 1, 2, 3, 4, 6, 8, 10, 15, 20), (0, 2, 6, 20)
PLUS_WINDOWS = (0, 2, 6, 20)  # also of POTUS with V = 0
SATURATED = 0.98  # utilisation of every component at which the paper's ratio to Shuffle is reproduced


def _cases(quick: bool) -> list[Case]:
    made: list[Case] = []
    for seed in range(length(quick).seeds):
        for fabric in FABRICS:
            for kind in ("poisson", arrivals_kind()):
                usual: dict[str, Value] = {"fabric": fabric, "arrivals": kind, "seed": seed}
                made += [case(quick, window=window, **usual) for window in (QUICK_WINDOWS if quick else WINDOWS)]
                made += [
                    case(quick, window=window, policy=policy, v=0.0, **usual)
                    for policy in ("potus", "potus-plus")
                    for window in PLUS_WINDOWS
                ]
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


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(10, 8)
    usual = select(rows, balanced=False)
    panels = [(fabric, kind) for fabric in FABRICS for kind in usual["arrivals"].unique()]
    for axis, (fabric, kind) in zip(picture.subplots(2, 2, sharex=True).flat, panels, strict=True):
        own = select(usual, fabric=fabric, arrivals=kind)
        curve(axis, select(own, policy="potus", v=3.0), "window", "response", "POTUS, V = 3", COLOURS[1])
        curve(axis, select(own, policy="potus", v=0.0), "window", "response", "POTUS, V = 0", COLOURS[4])
        curve(axis, select(own, policy="potus-plus"), "window", "response", "POTUS-plus, V = 0", COLOURS[2])
        level(axis, select(own, policy="shuffle"), "response", "Shuffle", COLOURS[0])
        level(axis, select(own, policy="least-loaded"), "response", "least loaded", COLOURS[7])
        axis.set_ylim(bottom=0)
        finish(axis, "look-ahead W (slots)", "response time (slots)", f"{fabric}, {kind}")


def _claims(rows: pd.DataFrame) -> list[Claim]:
    usual = select(rows, balanced=False)
    curves, free = (_curves(select(usual, policy="potus", v=v)) for v in (3.0, 0.0))
    last = int(curves[0].index[-1])
    left, ended = _left(curves, 6), _left(curves, last)
    saved = [float(step) for found in curves for step in -np.diff(found) / np.diff(found.index)]
    first = [(found[0] - found[6]) / 6 for found in curves]
    plus_left = _left(_curves(select(usual, policy="potus-plus")), 6)
    before_last = int(curves[0].index[-2])
    tail = [(found[before_last] - found[last]) / (last - before_last) for found in curves]
    falls = all(after <= 1.01 * before for found in curves for before, after in pairwise(found))
    return [
        Claim(
            "response time falls as W grows",
            "31.4 ms at W = 0, 1.5 ms at W = 6",
            _ends(curves, last),
            "every step, 1 % slack",
            falls,
            f"both fabrics, {' and '.join(usual['arrivals'].unique())}, V = 3, 0.8 of the fullest component",
        ),
        Claim(
            "nearly nothing is left at W = 6",
            "5 % of W = 0",
            f"{spread(left)} of W = 0 is left",
            "≤ 0.10",
            float(left.mean()) <= 0.10,
            f"V = 3 holds tuples back where nothing waits, and look-ahead does not change that: {_scale(first)}. With "
            f"V = 0 POTUS leaves {spread(_left(free, 6))}, POTUS-plus {spread(plus_left)}",
        ),
        Claim(
            "then it stays near 0.5 ms",
            "1.6 % of W = 0",
            f"{spread(ended)} of W = 0 is left at W = {last}",
            "≤ 0.05",
            float(ended.mean()) <= 0.05,
            f"as above: with V = 0 {spread(_left(free, last))} is left. The look-ahead of an application is random, 0 "
            f"to 2 W, so that some have little even at W = {last}; the last {last - before_last} slots still save "
            f"{np.mean(tail):.2f} each",
        ),
        Claim(
            "check: at most about one slot is saved a slot of look-ahead",
            "≤ 1",
            f"at most {max(saved):.2f}, {np.mean(saved):.2f} on average",
            "≤ 1.1 in every step",
            max(saved) <= 1.1,
        ),
        *_shuffle_claims(rows, select(usual, window=0)),
    ]


def _shuffle_claims(rows: pd.DataFrame, bare: pd.DataFrame) -> list[Claim]:
    """Check the statements about Shuffle and POTUS without look-ahead."""
    ratio = over(select(bare, policy="shuffle"), select(bare, policy="potus", v=3.0), "response")
    full = select(rows, balanced=True)
    shuffled = select(full, policy="shuffle")
    with_v, without = (over(shuffled, select(full, policy="potus", v=v), "response") for v in (3.0, 0.0))
    strongest = min(ALTERNATIVES, key=lambda name: select(bare, policy=name)["response"].mean())
    gain = over(select(bare, policy="potus-plus"), select(bare, policy=strongest), "response")
    return [
        Claim(
            "Shuffle is about 5 % above POTUS without look-ahead",
            "+5 %",
            signed_spread(ratio - 1),
            "0 to +10 %",
            0.0 <= ratio.mean() - 1 <= 0.10,
            "POTUS sends all that a task has to one other task, which many choose at once, and V = 3 holds tuples "
            "back; Shuffle does neither. The nearer to saturation, the less that counts: at "
            f"{SATURATED} on every component Shuffle is at {signed_spread(with_v - 1)}, with V = 0 at "
            f"{signed_spread(without - 1)}",
        ),
        Claim(
            "ours: POTUS-plus is no slower than the strongest alternative without look-ahead",
            "-",
            f"{spread(gain, 3)} of {strongest}",
            "≤ 1.01",
            float(gain.mean()) <= 1.01,
            "V = 0",
        ),
    ]


def _curves(rows: pd.DataFrame) -> list["pd.Series[float]"]:
    return [means(own, "window", "response") for _, own in rows.groupby(["fabric", "arrivals"])]


def _left(curves: Sequence["pd.Series[float]"], window: int) -> Floats:
    """Return the remaining share of the response time at a look-ahead, curve by curve."""
    return np.array([found[window] / found[0] for found in curves])


def _scale(first: Sequence[float]) -> str:
    """Describe the slots saved per slot of look-ahead, and the slot length that the paper's reduction then implies."""
    saved = float(np.mean(first))
    text = f"the first six slots of look-ahead save {saved:.2f} each"
    return f"{text}, so 31.4 → 1.5 ms would take slots of {(31.4 - 1.5) / 6 / saved:.1f} ms" if saved > 0 else text


def _ends(curves: Sequence["pd.Series[float]"], last: int) -> str:
    texts = [f"{found[0]:.1f}, {found[6]:.1f}, {found[last]:.1f}" for found in curves]
    return f"slots at W=0, 6, {last}: " + "; ".join(texts)


FIGURES: Sequence[Figure] = (
    Figure("4", "Figure 4: response time against look-ahead", _cases, run_system, _draw, _claims),
)
