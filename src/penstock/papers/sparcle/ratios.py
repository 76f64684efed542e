"""Ours: capacity of links relative to machines, from 1 to 10, and where each claim of Figs. 8 and 11 holds.

The paper gives no ratio for its balanced case. The kind of element that limits the best placement shows where a case is
balanced in its words: "both NCPs and links can be the bottleneck".
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, select
from penstock.experiments.pictures import COLOURS, Axes, Picture, curve_style, finish
from penstock.experiments.statistics import signed
from penstock.papers.sparcle import names
from penstock.papers.sparcle.optima import NEAR, NETWORKS
from penstock.papers.sparcle.rates import PAPER_GAINS, STAR
from penstock.papers.sparcle.runs import case, run_rates
from penstock.papers.sparcle.summaries import column, curve, gain_over, half_to_twice, percentiles, ratios
from penstock.workloads.sparcle import Scarcity

STEPS, QUICK_STEPS = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0), (1.0, 4.0, 10.0)
INSTANCES, QUICK_INSTANCES = 100, 5
DRAWN = (*NETWORKS, STAR)

Judge = Callable[[pd.DataFrame], tuple[str, bool]]
"""From the rows of one ratio to a result and whether the claim holds there."""


def _cases(quick: bool) -> list[Case]:
    return [
        case(drawn, f"links {ratio:g} times", Scarcity(1.0, ratio), "all" if drawn is STAR else "ratio", seed)
        for drawn in DRAWN
        for ratio in (QUICK_STEPS if quick else STEPS)
        for seed in range(QUICK_INSTANCES if quick else INSTANCES)
    ]


def _near_optimum(shape: str) -> Judge:
    def judge(rows: pd.DataFrame) -> tuple[str, bool]:
        found = ratios(select(rows, shape=shape), names.CANONICAL)
        return f"{np.median(found):.2f}", float(np.median(found)) >= NEAR

    return judge


def _above(other: str, paper: float) -> Judge:
    def judge(rows: pd.DataFrame) -> tuple[str, bool]:
        found = gain_over(select(rows, shape=STAR.shape), names.CANONICAL, other).value
        return signed(found, 0)[:-2], half_to_twice(found, paper)

    return judge


JUDGED: Mapping[str, tuple[str, Judge]] = {
    **{
        f"Fig. 8, {drawn.shape}: median of rate / optimum": (f"≈ 1 (≥ {NEAR:g})", _near_optimum(drawn.shape))
        for drawn in NETWORKS
    },
    **{
        f"Fig. 11, balanced: above {names.TITLES[other]}": (f"{signed(paper, 0)} (half to twice)", _above(other, paper))
        for other, paper in PAPER_GAINS.items()
    },
}
"""The claims of a balanced case, and how each is checked at one ratio."""

REASONS = {
    f"Fig. 11, balanced: above {names.TITLES[names.GS]}": ": GS takes the same steps in another order, which only "
    "matters where links limit; and there ties and rating streams one by one decide more than the order",
}


def _by_ratio(rows: pd.DataFrame) -> dict[float, pd.DataFrame]:
    return {ratio: select(rows, links=ratio) for ratio in np.unique(column(rows, "links")).tolist()}


def _judged(rows: pd.DataFrame, judge: Judge) -> dict[float, tuple[str, bool]]:
    return {ratio: judge(own) for ratio, own in _by_ratio(rows).items()}


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(12, 8)
    (first, second, third), below = picture.subplots(2, 3)
    across = "link / machine ratio"
    for axis, drawn in zip((first, second, third), DRAWN, strict=True):
        own = select(rows, shape=drawn.shape)
        for policy in names.OURS:
            _with_low(axis, own, policy)
        title = f"{drawn.graph} graph, {drawn.shape} (thin: p5)"
        finish(axis, across, "mean rate / optimum", title)
        axis.set_ylim(0, 1.05)
    star = select(rows, shape=STAR.shape)
    for other in PAPER_GAINS:
        found = {ratio: 100 * gain_over(own, names.CANONICAL, other).value for ratio, own in _by_ratio(star).items()}
        curve(below[0], list(found), list(found.values()), other)
    below[0].axhline(0, color="black", linewidth=0.8)
    finish(below[0], across, "SPARCLE above (%)", "diamond graph, star")
    for number, drawn in enumerate(DRAWN):
        limited = select(rows, shape=drawn.shape).assign(by_link=lambda some: some["limit"] == "link")
        shares = limited.groupby("links")["by_link"].mean()
        below[1].plot(shares.index, shares, **curve_style(COLOURS[number]), label=f"{drawn.graph}, {drawn.shape}")
    finish(below[1], across, "share of instances", "a link limits the optimum")
    _draw_where(below[2], rows)


def _with_low(axis: Axes, rows: pd.DataFrame, policy: str) -> None:
    found = {ratio: ratios(own, policy) for ratio, own in _by_ratio(rows).items()}
    curve(axis, list(found), [float(own.mean()) for own in found.values()], policy)
    low = [float(np.percentile(own, 5)) for own in found.values()]
    axis.plot(list(found), low, color=names.COLOUR[policy], linewidth=0.7, linestyle=":")


def _draw_where(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw a mark for every claim and ratio, filled if it holds."""
    for place, (_, judge) in enumerate(JUDGED.values()):
        for ratio, (_, holds) in _judged(rows, judge).items():
            face = COLOURS[2] if holds else "none"
            axis.plot(ratio, place, "o", markerfacecolor=face, markeredgecolor=COLOURS[2 if holds else 1])
    finish(axis, "link / machine ratio", title="where claims of Figs. 8 and 11 hold (full)", legend=False)
    axis.set_yticks(range(len(JUDGED)), [_short(name) for name in JUDGED], fontsize=7)
    axis.invert_yaxis()


def _short(name: str) -> str:
    """Return a short label: `8, line` or `11, GS`."""
    figure, _, rest = name.removeprefix("Fig. ").partition(", ")
    return f"{figure}, {rest.split(':')[0] if figure == '8' else rest.rpartition('above ')[2]}"


def _claims(rows: pd.DataFrame) -> list[Claim]:
    made = []
    for name, (paper, judge) in JUDGED.items():
        found = _judged(rows, judge)
        held = [f"{ratio:g}" for ratio, (_, holds) in found.items() if holds]
        made.append(
            Claim(
                f"{name}, at some ratio of links to machines",
                paper,
                ", ".join(f"{ratio:g}: {text}" for ratio, (text, _) in found.items()),
                "at one ratio or more",
                bool(held),
                f"holds at {', '.join(held)}" if held else f"at none{REASONS.get(name, '')}",
            )
        )
    return [*made, _only_claim(rows), _default_claim(rows)]


def _only_claim(rows: pd.DataFrame) -> Claim:
    """Check the independent check's statement about the ratios at which all claims hold."""
    every = [_judged(rows, judge) for _, judge in JUDGED.values()]
    counts = {ratio: sum(found[ratio][1] for found in every) for ratio in every[0]}
    best = max(counts.values())
    most = [ratio for ratio, count in counts.items() if count == best]
    return Claim(
        "check: the balanced claims of Figs. 8 and 11 hold only where links are 3 to 5 times the machines",
        "3 to 5",
        ", ".join(f"{ratio:g}: {count}" for ratio, count in counts.items()) + f" of {len(every)} claims",
        "most claims hold at a ratio from 3 to 5, and at none outside as many",
        all(3.0 <= ratio <= 5.0 for ratio in most),
        "SPARCLE comes near the optimum where links seldom limit it, so that claims also hold at ratios above 5; "
        + _limits(rows),
    )


def _limits(rows: pd.DataFrame) -> str:
    """Describe at which ratios a link limits the optimum as often as a machine."""
    texts = []
    for drawn in DRAWN:
        own = select(rows, shape=drawn.shape)
        shares = (own["limit"] == "link").groupby(own["links"]).mean()
        texts.append(f"{drawn.shape} " + ", ".join(f"{ratio:g}: {share:.0%}" for ratio, share in shares.items()))
    return "a link limits the best placement in: " + "; ".join(texts)


def _default_claim(rows: pd.DataFrame) -> Claim:
    found = {ratio: ratios(own, names.SPARCLE) for ratio, own in _by_ratio(rows).items()}
    canonical = {ratio: ratios(own, names.CANONICAL) for ratio, own in _by_ratio(rows).items()}
    first = min(found)
    least = min(float(own.mean() - canonical[ratio].mean()) for ratio, own in found.items())
    return Claim(
        "ours: our default (near ties, transports rated together) is no worse at any ratio",
        "-",
        ", ".join(f"{ratio:g}: {canonical[ratio].mean():.3f} → {own.mean():.3f}" for ratio, own in found.items()),
        "mean rate / optimum no more than 0.01 lower at every ratio",
        least >= -0.01,
        f"all three networks; at {first:g}: {percentiles(found[first])}",
    )


FIGURES: Sequence[Figure] = (
    Figure("ratio", "Where claims hold: links from 1 to 10 times the machines", _cases, run_rates, _draw, _claims),
)
