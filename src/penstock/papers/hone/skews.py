"""Benefit of longest-first with unequal queues: the maximum backlog at a load of 0.9 with skewed arrivals."""

from collections.abc import Sequence

import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, judged
from penstock.experiments.pictures import Picture, bars_beside
from penstock.papers.hone.links import FIFO, LBF, LBF_CONSERVING, QUEUES, RRB, RULE, WC_RR, link_cases, run_link
from penstock.papers.hone.tables import CHECK_RUNS, JUDGED, Spreads, apart, by_rule, finish, percents, reductions
from penstock.workloads.hone import BURST, HOT_SHARE, ON, WORDS, ZIPF

RATE = 900  # a tenth of the load of 0.9, mean over queues
KINDS = {  # with the check's figures: LBF, WC-RR, FIFO
    "hot-queue": ("one hot queue", (6.0, 25.0, 15.0)),
    "zipf": ("Zipf", (4.4, 23.0, 12.0)),
    "on-off": ("on/off", (68.0, 182.0, 153.0)),
    "batches": ("batches of 1–32 words", (66.0, 95.0, 91.0)),
}
EVEN, TRACE = "poisson", "trace"
COMPARED = (LBF, WC_RR, FIFO)
SHOWN = (LBF, LBF_CONSERVING, FIFO, WC_RR, RRB)
TOLERANCE = 0.2  # relative, of a mean over seeds
SAME = 1e-9


def _cases(quick: bool) -> Sequence[Case]:
    return link_cases((EVEN, *KINDS, TRACE), (QUEUES,), (RATE,), SHOWN, quick)


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    names = {EVEN: "Poisson", **{kind: text for kind, (text, _) in KINDS.items()}, TRACE: "traces"}
    axis = picture.subplots()
    found = by_rule(rows, "largest", "kind")
    for place, rule in enumerate(SHOWN):
        up, deviation, _ = zip(*(found[rule][kind] for kind in names), strict=True)
        look = {"color": RULE[rule].colour, "alpha": 0.5 if rule == LBF_CONSERVING else 1.0, "label": rule}
        bars_beside(axis, place, len(SHOWN), up, yerr=deviation, **look)
    axis.set_xticks(range(len(names)), list(names.values()))
    finish(axis, "", "largest backlog (tuples)", "ten queues, load 0.9", logarithmic=True)
    axis.legend(frameon=False, fontsize=8)


def _claims(rows: pd.DataFrame) -> list[Claim]:
    largest = by_rule(rows, "largest", "kind")
    return [*(_checked(kind, largest) for kind in KINDS), _most_under_skew(rows), _tail(rows), _traces(rows)]


def _checked(kind: str, largest: dict[str, Spreads]) -> Claim:
    text, wanted = KINDS[kind]
    ours = [largest[rule][kind] for rule in COMPARED]
    close = all(one.allows(value, TOLERANCE * value, CHECK_RUNS) for one, value in zip(ours, wanted, strict=True))
    ordered = ours[0].mean < ours[2].mean < ours[1].mean
    return judged(
        f"check: load 0.9, {text}: largest backlog LBF / WC-RR / FIFO",
        " / ".join(f"{value:g}" for value in wanted),
        " / ".join(one.text for one in ours),
        f"± 20 % {JUDGED}, each; LBF < FIFO < WC-RR",
        close and ordered,
        _why(kind, ordered),
    )


def _why(kind: str, ordered: bool) -> str:
    """Explain the difference from the check's figures, which do not specify the skew."""
    if not ordered:
        return "the order of the rules differs"
    ours = {
        "hot-queue": f"{100 * HOT_SHARE:.0f} % of all tuples in one queue",
        "zipf": f"exponent {ZIPF:g}",
        "on-off": f"bursts of {BURST:g} slots, {100 * ON:.0f} % of the time",
        "batches": f"1 to {WORDS} tuples",
    }
    return f"the check does not specify its skew; ours is {ours[kind]}. The order of the rules is the check's"


def _most_under_skew(rows: pd.DataFrame) -> Claim:
    found = reductions(rows, "largest", LBF, FIFO, "kind")
    holds = all(found[kind].mean > found[EVEN].mean for kind in ("hot-queue", "zipf", "on-off"))
    return Claim(
        "check: what LBF buys is the maximum, most under skew (below FIFO by)",
        "most under skew",
        ", ".join(f"{found[kind].percent} {kind}" for kind in (EVEN, *KINDS)),
        "hot queue, Zipf and on/off each more than even Poisson",
        holds,
    )


def _tail(rows: pd.DataFrame) -> Claim:
    backlog = [one.mean for one in reductions(rows, "largest_p99", LBF, FIFO, "kind").values()]
    delay = [1.0 - one.mean for one in reductions(rows, "delay_p99", LBF, FIFO, "kind").values()]
    return Claim(
        "check: LBF buys the tail too",
        "the maximum and the tail",
        f"99 % of slots: longest queue {100 * min(backlog):.0f} to {100 * max(backlog):.0f} % below FIFO's; "
        f"but p99 of the delay is {min(delay):.1f} to {max(delay):.1f} times FIFO's",
        "of backlogs: below FIFO's under every kind",
        min(backlog) > 0,
        "of backlogs, not of delays: tuples of short queues wait longer, and FIFO has the least largest delay of all",
    )


def _traces(rows: pd.DataFrame) -> Claim:
    trace = rows[rows["kind"] == TRACE]
    found = {base: reductions(trace, "largest", LBF, base, "rate") for base in (WC_RR, FIFO)}
    differ = apart(trace[trace["rule"].isin(COMPARED)], "delay", ["rate"], "rule")
    return Claim(
        "ours: the same on real traces",
        "not tried",
        "; ".join(f"below {base} by {percents(table, [RATE], '/s')}" for base, table in found.items()),
        "> 0, and equal mean delay",
        all(table[RATE].mean > 0 for table in found.values()) and differ <= SAME,
    )


SKEWS = Figure("skew", "Largest backlog under skewed arrivals", _cases, run_link, _draw, _claims)
