"""Figure 6: the largest backlog of any queue in any slot, against the rate of every queue and the number of queues."""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, judged
from penstock.experiments.pictures import Picture
from penstock.papers.hone.links import (
    FIFO,
    KINDS,
    LBF,
    QUEUES,
    RATE,
    RATES,
    RRB,
    RULES,
    SWEEPS,
    WC_RR,
    link_cases,
    queue_numbers,
    rates,
    run_link,
)
from penstock.papers.hone.tables import (
    CHECK_RUNS,
    JUDGED,
    PAPER_RUNS,
    Spreads,
    averages,
    by_rule,
    draw_lines,
    finish,
    growing,
    percents,
    reductions,
)

NOTED = (500, 900, 1000, 2000)  # rates with figures from the independent check
FROM_RRB, FROM_WC_RR = (0.69, 0.85, 0.82, 0.06), (0.30, 0.55, 0.58, 0.06)
POINTS = 0.05  # tolerance of a share
OVERLOAD = 2000  # twice the capacity of the card


def _cases_by_rate(quick: bool) -> Sequence[Case]:
    return link_cases(KINDS, (QUEUES,), rates(quick), (rule.name for rule in RULES), quick)


def _cases_by_number(quick: bool) -> Sequence[Case]:
    return link_cases(KINDS, queue_numbers(quick), (RATE,), (RRB, LBF, WC_RR, FIFO), quick)


def _draw(by: str, label: str, rows: pd.DataFrame, picture: Picture) -> None:
    for axis, kind in zip(picture.subplots(1, 2, sharey=True), KINDS, strict=True):
        draw_lines(axis, rows[rows["kind"] == kind], "largest", by, [rule.name for rule in RULES])
        finish(axis, label, "largest backlog (tuples)" if kind == KINDS[0] else "", f"{kind} arrivals", True)
    axis.legend(frameon=False, fontsize=8)


def _claims_by_rate(rows: pd.DataFrame) -> list[Claim]:
    poisson = rows[rows["kind"] == "poisson"]
    found = reductions(poisson, "largest", LBF, RRB, "rate")
    mean = by_rule(poisson, "largest", "rate")
    return [
        *(_always(rows[rows["kind"] == kind], "rate", "/s", kind) for kind in KINDS),
        _up_to(found),
        Claim(
            "both grow with the rate",
            "yes",
            f"LBF {_ends(mean[LBF])}, RRB {_ends(mean[RRB])}",
            "every mean ≥ 98 % of the one before",
            all(growing(averages(mean[rule]), share=0.02) for rule in (LBF, RRB)),
        ),
        _closes(found),
        _checked("RRB", found, FROM_RRB),
        _checked("a round-robin that does not idle", reductions(poisson, "largest", LBF, WC_RR, "rate"), FROM_WC_RR),
        _alternative(reductions(poisson, "largest", LBF, FIFO, "rate")),
    ]


def _always(rows: pd.DataFrame, by: str, unit: str, kind: str) -> Claim:
    found = reductions(rows, "largest", LBF, RRB, by)
    least = min(found, key=lambda place: found[place].mean)
    lower = sum(one.mean > 0 for one in found.values())
    return judged(
        f"LBF's largest backlog is always below RRB's ({kind} arrivals)",
        "always",
        f"at {lower} of {len(found)} settings; least: {percents(found, [least], unit)}",
        "mean over seeds, every setting",
        lower == len(found),
        "not in overload, where little is left to decide",
    )


def _up_to(found: Spreads) -> Claim:
    paper = {rate: one for rate, one in found.items() if rate in RATES}
    top = max(paper, key=lambda rate: paper[rate].mean)
    return Claim(
        "LBF's largest backlog is below RRB's by up to",
        "83.3 %",
        percents(paper, [top], "/s"),
        f"± 5 points {JUDGED}",
        paper[top].allows(0.833, POINTS, PAPER_RUNS),
    )


def _closes(found: Spreads) -> Claim:
    over = [one.mean for rate, one in found.items() if rate >= OVERLOAD]
    return Claim(
        "the gap closes in overload",
        "yes; a check run: 71 % at 500/s, 81–86 % at 1,000/s, ≤ 11 % from 2,000/s",
        percents(found, [500, 1000, OVERLOAD, max(found)], "/s"),
        f"± 5 points {JUDGED}; ≤ 11 % from 2,000/s",
        found[500].allows(0.71, POINTS, PAPER_RUNS)
        and found[1000].allows(0.835, POINTS + 0.025, PAPER_RUNS)
        and max(over) <= 0.11,
    )


def _checked(base: str, found: Spreads, wanted: Sequence[float]) -> Claim:
    off = [
        f"{rate:,}/s"
        for rate, share in zip(NOTED, wanted, strict=True)
        if not found[rate].allows(share, POINTS, CHECK_RUNS)
    ]
    return Claim(
        f"check: below {base} at 500, 900, 1,000 and 2,000/s by",
        ", ".join(f"{100 * share:.0f} %" for share in wanted),
        percents(found, NOTED, "/s"),
        f"± 5 points {JUDGED}, each",
        not off,
        f"not at {' and '.join(off)}: backlogs are a few tuples there, one of which is many points" if off else "",
    )


def _alternative(found: Spreads) -> Claim:
    """Compare with a rule that needs no signal."""
    return Claim(
        "ours: LBF is below FIFO too, which is what Storm and Flink do",
        "not compared",
        percents(found, NOTED, "/s"),
        "> 0 below overload",
        all(one.mean > 0 for rate, one in found.items() if rate < OVERLOAD),
    )


def _claims_by_number(rows: pd.DataFrame) -> list[Claim]:
    mean = by_rule(rows[rows["kind"] == "poisson"], "largest", "queues")
    halves = [_halves(averages(mean[rule])) for rule in (LBF, RRB)]
    return [
        *(_always(rows[rows["kind"] == kind], "queues", " queues", kind) for kind in KINDS),
        Claim(
            "both grow with the number of queues at first, then change little",
            "yes",
            f"LBF {_listed(mean[LBF])}; RRB {_listed(mean[RRB])}",
            "the second half of the range by less than ×1.5, the first by more",
            all(second < 1.5 < first for first, second in halves),
        ),
    ]


def _halves(values: Sequence[float]) -> tuple[float, float]:
    """Return the growth factors of values in the first and in the second half of their range."""
    middle = values[len(values) // 2]
    return middle / values[0], values[-1] / middle


def _ends(found: Spreads) -> str:
    values = averages(found)
    return f"{values[0]:.1f} to {values[-1]:,.0f}"


def _listed(found: Spreads) -> str:
    return ", ".join(f"{one.mean:,.0f} at {queues}" for queues, one in found.items())


FIGURE_6A = Figure(
    "6a",
    "Largest backlog against the input rate",
    _cases_by_rate,
    run_link,
    partial(_draw, "rate", SWEEPS["rate"]),
    _claims_by_rate,
)
FIGURE_6B = Figure(
    "6b",
    "Largest backlog against the number of queues",
    _cases_by_number,
    run_link,
    partial(_draw, "queues", SWEEPS["queues"]),
    _claims_by_number,
)
