"""Hone's testbed live: one run per case, in which Storm's sending, RRB and LBF with several τ alternate.

The paper runs each for half an hour; here a choice has two seconds in each of five rounds, on the same arrivals as all
others. Storm's plain sending is `fifo`, which sends tuples to the card in order of emission.

Figures 10 to 14 of Hone: mean end-to-end latency, LBF against Storm's sending and against RRB.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row, Value, judged
from penstock.experiments.live_cases import Report, silent
from penstock.experiments.pictures import Axes, Picture, bars_beside
from penstock.experiments.statistics import signed
from penstock.model.topology import Grouping
from penstock.papers.hone.live.episodes import STEADY, Episodes, Lengths
from penstock.papers.hone.live.measures import run_and_measure
from penstock.papers.hone.live.ratios import Ratio, against
from penstock.papers.hone.live.settings import HONE_SLOWER, HONE_TPS, WORDS, hone_testbed
from penstock.papers.hone.live.signals import FULL, QUICK, QUICK_ROUNDS, ROUNDS, longest_first
from penstock.papers.hone.live.trial import Choice, Trial
from penstock.papers.hone.tables import finish

ROUTING = "round-robin"  # the even split, as in the paper
STORM, RRB = "fifo", "round-robin-idle"
TAUS = (10, 30, 50, 80, 100, 130)  # ms
FEWER_TAUS = (10, 50, 80, 130)
QUICK_TAUS = (10, 80)
CONSERVING_TAU = 80


def hone_case(quick: bool, taus: Sequence[int] = FEWER_TAUS, **changes: Value) -> dict[str, Value]:
    """Return a case: a figure's varied parameters, and constants. tps: as in the paper; ours is a fraction of it."""
    lengths, rounds = (QUICK, QUICK_ROUNDS) if quick else (FULL, ROUNDS)
    usual: dict[str, Value] = {
        "nodes": 3, "tps": HONE_TPS[0], "grouping": Grouping.SHUFFLE.value, "words": WORDS,
        "taus": " ".join(map(str, QUICK_TAUS if quick else taus)), "cell_s": lengths.counted, "pause_s": lengths.pause,
        "rounds": rounds, "seed": 0,
    }  # fmt: skip
    return usual | changes


def run_testbed(case: Case, report: Report = silent) -> Sequence[Row]:
    """Run a case and return one row per sending and round."""
    setting = hone_testbed(int(case["nodes"]), Grouping(str(case["grouping"])), int(case["words"]))
    lengths = Lengths(FULL.settle, float(case["cell_s"]), FULL.tail, float(case["pause_s"]))
    taus = [int(tau) for tau in str(case["taus"]).split()]
    held = [longest_first(tau, False) for tau in taus]
    sendings = (STORM, RRB, *held, longest_first(CONSERVING_TAU, True))
    choices = [Choice(ROUTING, sending) for sending in sendings]
    load_tps = float(case["tps"]) / HONE_SLOWER
    episodes = Episodes(
        STEADY, load_tps, len(choices), int(case["rounds"]), setting.tasks[0], lengths, int(case["seed"])
    )
    which = f"{case['nodes']} nodes, {case['tps']}/s, {case['grouping']}, ≤ {case['words']} words"
    return run_and_measure(Trial(setting, episodes, choices), lambda what: report(f"{which}, {what}"), True)


def taus_of(rows: pd.DataFrame) -> list[int]:
    """Return the τ of a case."""
    return [int(tau) for tau in str(rows["taus"].iloc[0]).split()]


def to_storm(rows: pd.DataFrame, sending: str, base: str = STORM) -> Ratio:
    """Return the ratio of a sending to Storm's, or to another."""
    return against(rows, "mean_ms", Choice(ROUTING, sending), Choice(ROUTING, base))


def ratios_by_tau(rows: pd.DataFrame, base: str = STORM) -> dict[int, Ratio]:
    """Return the ratio of LBF as published to Storm's sending, or to another, by τ."""
    return {tau: to_storm(rows, longest_first(tau, False), base) for tau in taus_of(rows)}


def reduction(found: Sequence[Ratio]) -> float:
    """Return the mean reduction as a share: one minus the ratio."""
    return 1.0 - sum(one.ratio for one in found) / len(found)


POINTS = 0.1  # tolerance of a reduction
MOST_WORDS = (10, 20, 30)  # of a sentence
STRAGGLER_TAU = 80
IDLES = (
    "LBF as published only sends from the signalled queue, so that the card idles from when that queue is empty until "
    "the next signal; Storm's sending never idles while a tuple waits. In the paper Storm's latencies grow with the "
    "number of tuples executed, so that something other than the order of sending slows it down there"
)
COLOURS = {STORM: "#4878a8", RRB: "#888888", "lbf": "#d1603d", "conserving": "#5b9a68"}


def _cases_10(quick: bool) -> Sequence[Case]:
    return [hone_case(quick, TAUS, tps=tps) for tps in (HONE_TPS[:1] if quick else HONE_TPS)]


def _cases_11(quick: bool) -> Sequence[Case]:
    return [hone_case(quick, TAUS, tps=HONE_TPS[0])]


def _cases_12(quick: bool) -> Sequence[Case]:
    return [hone_case(quick, FEWER_TAUS, grouping=Grouping.PARTIAL_KEY.value)]


def _cases_13(quick: bool) -> Sequence[Case]:
    return [hone_case(quick, FEWER_TAUS, words=most) for most in (MOST_WORDS[::2] if quick else MOST_WORDS)]


def _cases_14(quick: bool) -> Sequence[Case]:
    return [hone_case(quick, FEWER_TAUS, nodes=10)]


def _draw_taus(by: str, label: str, rows: pd.DataFrame, picture: Picture) -> None:
    """Draw mean latency against τ, one panel per value of a column."""
    values = list(dict.fromkeys(rows[by]))
    axes = picture.subplots(1, len(values), sharey=True, squeeze=False)[0]
    for axis, value in zip(axes, values, strict=True):
        _draw_panel(axis, rows[rows[by] == value])
        finish(axis, "τ (ms)", "mean latency (ms)" if axis is axes[0] else "", f"{value} {label}".strip(), True)
    axes[0].legend(frameon=False, fontsize=8)


def _draw_panel(axis: Axes, rows: pd.DataFrame) -> None:
    mean = rows.groupby("sending")["mean_ms"].mean()
    taus = taus_of(rows)
    held = [mean[longest_first(tau, False)] for tau in taus]
    axis.plot(taus, held, "o-", color=COLOURS["lbf"], label="LBF as published", linewidth=1.4, markersize=3)
    one = longest_first(CONSERVING_TAU, True)
    axis.plot([CONSERVING_TAU], [mean[one]], "D", color=COLOURS["conserving"], label="LBF, work-conserving")
    axis.axhline(mean[STORM], color=COLOURS[STORM], label="Storm (fifo)")
    axis.axhline(mean[RRB], color=COLOURS[RRB], linestyle="--", label="RRB")


def _by_case(rows: pd.DataFrame, by: str) -> dict[str, pd.DataFrame]:
    return {str(value): own for value, own in rows.groupby(by, sort=False)}


def _claims_10(rows: pd.DataFrame) -> list[Claim]:
    cases = _by_case(rows, "tps")
    every = [one for own in cases.values() for one in ratios_by_tau(own).values()]
    best = min(every, key=lambda one: one.ratio)
    return [
        _reduced("LBF's mean latency is below Storm's, on average by", 0.787, every),
        Claim(
            "and at best by",
            "−92.2 % (1,170/s, τ = 120 ms)",
            signed(best.ratio - 1.0),
            "± 10 points",
            abs(1.0 - best.ratio - 0.922) <= POINTS,
            IDLES if best.ratio > 1.0 - 0.922 + POINTS else "",
        ),
        _middle(cases),
        _grows(cases),
        *_others(cases, "/s"),
    ]


def _reduced(what: str, wanted: float, found: Sequence[Ratio]) -> Claim:
    ours = reduction(found)
    holds = abs(ours - wanted) <= POINTS
    return judged(what, signed(-wanted), signed(-ours), "± 10 points", holds, IDLES)


def _middle(cases: dict[str, pd.DataFrame]) -> Claim:
    best = {
        tps: min(found, key=lambda tau: found[tau].ratio) for tps, own in cases.items() if (found := ratios_by_tau(own))
    }
    holds = all(TAUS[0] < tau < TAUS[-1] for tau in best.values())
    return judged(
        "a middle τ is best: small ones cost threads time, large ones schedule too little",
        "50 to 100 ms",
        ", ".join(f"{tau} ms at {tps}/s" for tps, tau in best.items()),
        "neither the smallest nor the largest τ, every rate",
        holds,
        "changing a signal costs nothing here; what grows with τ is how long the card idles",
    )


def _grows(cases: dict[str, pd.DataFrame]) -> Claim:
    def means(sending: str) -> list[float]:
        return [float(own[own["sending"] == sending]["mean_ms"].mean()) for own in cases.values()]

    storm, held = means(STORM), means(longest_first(STRAGGLER_TAU, False))
    rising = [all(np.diff(values) > 0) for values in (storm, held)]
    return Claim(
        "both latencies grow with the rate",
        "yes",
        f"Storm {_arrows(storm)}, LBF (τ = {STRAGGLER_TAU} ms) {_arrows(held)} ms",
        "every mean above the one before",
        all(rising),
    )


def _others(cases: dict[str, pd.DataFrame], unit: str) -> list[Claim]:
    """Compare with RRB, and work-conserving LBF with Storm, which the paper does not show."""
    to_rrb = {name: ratios_by_tau(own, RRB) for name, own in cases.items()}
    every = [one for found in to_rrb.values() for one in found.values()]
    below = sum(one.high < 1.0 for one in every)
    kept = {name: to_storm(own, longest_first(CONSERVING_TAU, True)) for name, own in cases.items()}
    return [
        judged(
            "ours: LBF as published is faster than RRB, the paper's baseline in simulation",
            "not shown live",
            f"at {below} of {len(every)} τ; on average {signed(-reduction(every))}",
            "upper limit < 1 at every τ",
            below == len(every),
            "RRB idles for single turns of empty queues, LBF as published until the next signal, up to τ",
        ),
        judged(
            f"ours: work-conserving LBF (τ = {CONSERVING_TAU} ms) is faster than Storm's sending",
            "not tried",
            ", ".join(f"{one.text} at {name}{unit}" for name, one in kept.items()),
            "upper limit < 1, every case",
            all(one.high < 1.0 for one in kept.values()),
            "neither idles while a tuple waits, and then the order of sending does not change the mean delay",
        ),
    ]


def _arrows(values: Sequence[float]) -> str:
    return " → ".join(f"{value:.0f}" for value in values)


def _split_columns(rows: pd.DataFrame) -> list[str]:
    return sorted((name for name in rows.columns if name.startswith("split[")), key=lambda name: int(name[6:-4]))


def _split_means(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean latency of every split task, one row per sending."""
    return rows.groupby("sending")[_split_columns(rows)].mean()


def _round_ratios(rows: pd.DataFrame, sending: str) -> str:
    """Return the range over rounds of the slowest split task's latency over the fastest one's."""
    own = rows.loc[rows["sending"] == sending, _split_columns(rows)]
    ratios = own.max(axis=1) / own.min(axis=1)
    return f"{ratios.min():.2f} to {ratios.max():.2f}"


def _draw_11(rows: pd.DataFrame, picture: Picture) -> None:
    axis, means = picture.subplots(), _split_means(rows)
    shown = {
        STORM: ("Storm (fifo)", COLOURS[STORM]),
        RRB: ("RRB", COLOURS[RRB]),
        longest_first(STRAGGLER_TAU, False): (f"LBF as published, τ = {STRAGGLER_TAU} ms", COLOURS["lbf"]),
        longest_first(CONSERVING_TAU, True): ("LBF, work-conserving", COLOURS["conserving"]),
    }
    for number, (sending, (text, colour)) in enumerate(shown.items()):
        bars_beside(axis, number, len(shown), means.loc[sending].to_numpy(), color=colour, label=text)
    axis.set_xticks(range(means.shape[1]), [str(place) for place in range(means.shape[1])])
    finish(axis, "split task", "mean latency (ms)", "", True)
    axis.legend(frameon=False, fontsize=8)


def _claims_11(rows: pd.DataFrame) -> list[Claim]:
    means = _split_means(rows)
    storm, held = means.loc[STORM], means.loc[longest_first(STRAGGLER_TAU, False)]
    conserving = longest_first(CONSERVING_TAU, True)
    kept = means.loc[conserving]
    lower = int((held < storm).sum())
    return [
        judged(
            "every split task is faster than in Storm (τ = 80 ms, 1,170/s)",
            "all ten, at every number of tuples",
            f"{lower} of {len(storm)}",
            "mean over rounds",
            lower == len(storm),
            IDLES,
        ),
        judged(
            "the slowest split task is far faster than Storm's",
            "far",
            f"{held.max():.0f} ms against {storm.max():.0f} ms; work-conserving {kept.max():.0f} ms",
            "below half",
            held.max() < 0.5 * storm.max(),
            IDLES,
        ),
        Claim(
            "ours: work-conserving LBF brings tasks closer together (slowest / fastest)",
            "not stated",
            f"{kept.max() / kept.min():.2f} against Storm's {storm.max() / storm.min():.2f}",
            "a smaller ratio",
            bool(kept.max() / kept.min() < storm.max() / storm.min()),
            "LBF makes queues equally long, not delays equally short; within a round the ratio is "
            f"{_round_ratios(rows, conserving)} against Storm's {_round_ratios(rows, STORM)}",
        ),
    ]


def _claims_12(rows: pd.DataFrame) -> list[Claim]:
    found = list(ratios_by_tau(rows).values())
    cases = _by_case(rows, "grouping")
    return [_reduced("by partial key LBF's mean latency is below Storm's by", 0.942, found), *_others(cases, "")]


def _claims_13(rows: pd.DataFrame) -> list[Claim]:
    cases = _by_case(rows, "words")
    found = {words: reduction(list(ratios_by_tau(own).values())) for words, own in cases.items()}
    every = [one for own in cases.values() for one in ratios_by_tau(own).values()]
    shares = list(found.values())
    return [
        _reduced("at most 10, 20 and 30 words LBF's mean latency is below Storm's by", 0.849, every),
        Claim(
            "the reduction grows with the number of words",
            "yes",
            ", ".join(f"{signed(-share)} at {words}" for words, share in found.items()),
            "every reduction above the one before",
            bool(np.all(np.diff(shares) > 0)),
            "" if np.all(np.diff(shares) > 0) and shares[-1] > 0 else "there is no reduction: see figure 10",
        ),
        *_others(cases, " words"),
    ]


def _claims_14(rows: pd.DataFrame) -> list[Claim]:
    found = ratios_by_tau(rows)
    best = min(found, key=lambda tau: found[tau].ratio)
    ours = 1.0 - found[best].ratio
    grows = bool(np.all(np.diff([one.ratio for one in found.values()]) < 0))
    return [
        judged(
            "on ten nodes LBF's mean latency is below Storm's by up to",
            "−79.4 %",
            f"{signed(-ours)} (τ = {best} ms)",
            "± 10 points",
            abs(ours - 0.794) <= POINTS,
            IDLES,
        ),
        judged(
            "the reduction grows with τ",
            "yes",
            ", ".join(f"{signed(one.ratio - 1.0)} at {tau} ms" for tau, one in found.items()),
            "every reduction above the one before",
            grows,
            "the card idles longer the longer a signal is held",
        ),
        *_others(_by_case(rows, "nodes"), " nodes"),
    ]


FIGURE_10 = Figure(
    "10",
    "Live: mean latency on Hone's testbed against τ",
    _cases_10,
    run_testbed,
    partial(_draw_taus, "tps", "tuples/s in the paper"),
    _claims_10,
    live=True,
)
FIGURE_11 = Figure("11", "Live: latency of each split task", _cases_11, run_testbed, _draw_11, _claims_11, live=True)
FIGURE_12 = Figure(
    "12",
    "Live: partial key grouping",
    _cases_12,
    run_testbed,
    partial(_draw_taus, "grouping", ""),
    _claims_12,
    live=True,
)
FIGURE_13 = Figure(
    "13",
    "Live: words in a sentence",
    _cases_13,
    run_testbed,
    partial(_draw_taus, "words", "words at most"),
    _claims_13,
    live=True,
)
FIGURE_14 = Figure(
    "14", "Live: ten nodes", _cases_14, run_testbed, partial(_draw_taus, "nodes", "nodes"), _claims_14, live=True
)
