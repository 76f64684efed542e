"""Figure 8: mean waiting time of a tuple in its out-queue, against the rate and the number of queues.

Every work-conserving rule keeps the same number of tuples waiting in every slot, so by Little's law all of them have
the same mean delay; they differ in which tuples wait. RRB idles, so its delay is longer.
"""

from collections.abc import Sequence

import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure
from penstock.experiments.pictures import Picture
from penstock.papers.hone.links import (
    FIFO,
    LBF,
    QUEUES,
    RANDOM,
    RATES,
    RRB,
    RULES,
    SWEEPS,
    WC_RR,
    link_cases,
    number_cases,
    rates,
    run_link,
    swept,
)
from penstock.papers.hone.tables import (
    JUDGED,
    PAPER_RUNS,
    apart,
    averages,
    by_rule,
    draw_lines,
    finish,
    growing,
    percents,
    reductions,
)

NEVER_IDLE = (LBF, WC_RR, RANDOM, FIFO)
POINTS = 0.05
SAME = 1e-9  # relative difference of delays that is considered rounding


def _cases(quick: bool) -> Sequence[Case]:
    everyone = [rule.name for rule in RULES]
    by_rate = link_cases(("poisson", "trace"), (QUEUES,), rates(quick), everyone, quick)
    return [*by_rate, *number_cases((RRB, LBF, WC_RR, FIFO), quick)]


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    poisson = rows[rows["kind"] == "poisson"]
    for axis, (sweep, label) in zip(picture.subplots(1, 2, sharey=True), SWEEPS.items(), strict=True):
        draw_lines(axis, swept(poisson, sweep), "delay", sweep, [rule.name for rule in RULES])
        up, note = (
            ("mean queueing delay (slots)", "all rules that never idle are one line") if sweep == "rate" else ("", "")
        )
        finish(axis, label, up, note, logarithmic=True)
        if sweep == "rate":
            axis.legend(frameon=False, fontsize=8)


def _claims(rows: pd.DataFrame) -> list[Claim]:
    poisson = rows[rows["kind"] == "poisson"]
    by_rate, by_number = (swept(poisson, sweep) for sweep in SWEEPS)
    trace = rows[rows["kind"] == "trace"]
    return [
        _reduced(by_rate[by_rate["rate"].isin(RATES)], "rate", "/s", 0.898),
        _reduced(by_number, "queues", " queues", 0.701),
        _grows(by_rate, by_number),
        _shrinks(by_rate),
        _same("Poisson", by_rate),
        _same("traces", trace),
    ]


def _reduced(rows: pd.DataFrame, by: str, unit: str, wanted: float) -> Claim:
    found = reductions(rows, "delay", LBF, RRB, by)
    top = max(found, key=lambda place: found[place].mean)
    holds = found[top].allows(wanted, POINTS, PAPER_RUNS)
    lower = all(one.mean > 0 for one in found.values())
    what = "different rates" if by == "rate" else "different numbers of queues"
    return Claim(
        f"LBF's mean delay is always below RRB's, by up to ({what})",
        f"{100 * wanted:.1f} %",
        f"{percents(found, [top], unit)}; at the other end {percents(found, [max(found)], unit)}",
        f"below everywhere; the largest ± 5 points {JUDGED}",
        holds and lower,
        "entirely RRB's wasted turns: see the last rows"
        + ("" if holds else "; at light load nearly all of RRB's delay is waiting for its turn, and ours is lighter"),
    )


def _grows(by_rate: pd.DataFrame, by_number: pd.DataFrame) -> Claim:
    tables = [by_rule(by_rate, "delay", "rate"), by_rule(by_number, "delay", "queues")]
    holds = all(growing(averages(table[rule]), share=0.02) for table in tables for rule in (LBF, RRB))
    ends = [f"{values[0]:.1f} to {values[-1]:,.0f}" for values in (averages(table[LBF]) for table in tables)]
    return Claim(
        "both delays grow with the rate and with the number of queues",
        "yes",
        f"LBF {ends[0]} slots over rates, {ends[1]} over queues",
        "every mean ≥ 98 % of the one before",
        holds,
    )


def _shrinks(by_rate: pd.DataFrame) -> Claim:
    found = reductions(by_rate, "delay", LBF, RRB, "rate")
    return Claim(
        "the reduction shrinks as the rate grows",
        "yes",
        ", ".join(f"{100 * one.mean:.1f} % at {rate:,}/s" for rate, one in found.items()),
        "every reduction ≤ the one before, or 0.1 points more",
        growing(averages(found)[::-1], slack=0.001),
    )


def _same(kind: str, rows: pd.DataFrame) -> Claim:
    differ = apart(rows[rows["rule"].isin(NEVER_IDLE)], "delay", ["rate"], "rule")
    rrb = reductions(rows, "delay", WC_RR, RRB, "rate")
    return Claim(
        f"check: LBF, work-conserving round-robin, random and FIFO have one mean delay ({kind})",
        "identical",
        f"largest difference of any run {100 * differ:.1g} %; WC-RR is below RRB by {percents(rrb, [500, 1000], '/s')}",
        "1e-9 relative",
        differ <= SAME,
        "Fig. 8 is entirely RRB's idling: any rule that does not idle has LBF's mean delay",
    )


FIGURE_8 = Figure("8", "Mean queueing delay", _cases, run_link, _draw, _claims)
