"""Hone's testbed live: one run per case, in which Storm's sending, RRB and LBF with several τ alternate.

The paper runs each for half an hour; here a choice has two seconds in each of five rounds, on the same arrivals as all
others. Storm's plain sending is `fifo`, which sends tuples to the card in order of emission.
"""

from collections.abc import Sequence

import pandas as pd

from penstock.experiments.figure import Case, Row, Value
from penstock.experiments.live_cases import Tell, silent
from penstock.model.topology import Grouping
from penstock.papers.hone.live.episodes import STEADY, Episodes, Lengths
from penstock.papers.hone.live.measures import measured
from penstock.papers.hone.live.ratios import Ratio, against
from penstock.papers.hone.live.settings import HONE_SLOWER, HONE_TPS, WORDS, hone_testbed
from penstock.papers.hone.live.signals import longest_first
from penstock.papers.hone.live.trial import Choice, Trial

ROUTING = "round-robin"  # the even split, as in the paper
STORM, RRB = "fifo", "round-robin-idle"
TAUS = (10, 30, 50, 80, 100, 130)  # ms
FEWER_TAUS = (10, 50, 80, 130)
QUICK_TAUS = (10, 80)
CONSERVING_TAU = 80
FULL, QUICK = Lengths(0.5, 1.75, 0.25, 0.75), Lengths(0.5, 1.5, 0.25, 0.75)
ROUNDS, QUICK_ROUNDS = 5, 2


def hone_case(quick: bool, taus: Sequence[int] = FEWER_TAUS, **changes: Value) -> dict[str, Value]:
    """Return a case: a figure's varied parameters, and constants. tps: as in the paper; ours is a fraction of it."""
    lengths, rounds = (QUICK, QUICK_ROUNDS) if quick else (FULL, ROUNDS)
    usual: dict[str, Value] = {
        "nodes": 3, "tps": HONE_TPS[0], "grouping": Grouping.SHUFFLE.value, "words": WORDS,
        "taus": " ".join(map(str, QUICK_TAUS if quick else taus)), "cell_s": lengths.counted, "pause_s": lengths.pause,
        "rounds": rounds, "seed": 0,
    }  # fmt: skip
    return usual | changes


def run_testbed(case: Case, tell: Tell = silent) -> Sequence[Row]:
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
    return measured(Trial(setting, episodes, choices), lambda what: tell(f"{which}, {what}"), True)


def taus_of(rows: pd.DataFrame) -> list[int]:
    """Return the τ of a case."""
    return [int(tau) for tau in str(rows["taus"].iloc[0]).split()]


def to_storm(rows: pd.DataFrame, sending: str, base: str = STORM) -> Ratio:
    """Return the ratio of a sending to Storm's, or to another."""
    return against(rows, "mean_ms", Choice(ROUTING, sending), Choice(ROUTING, base))


def published(rows: pd.DataFrame, base: str = STORM) -> dict[int, Ratio]:
    """Return the ratio of LBF as published to Storm's sending, or to another, by τ."""
    return {tau: to_storm(rows, longest_first(tau, False), base) for tau in taus_of(rows)}


def reduction(found: Sequence[Ratio]) -> float:
    """Return the mean reduction as a share: one minus the ratio."""
    return 1.0 - sum(one.ratio for one in found) / len(found)


def percent(share: float) -> str:
    """Format a change, such as `−78.7 %`, or `+12.0 %` if it is no reduction."""
    return f"{-100 * share:+.1f} %".replace("-", "−")
