"""Duration of a signal, live: τ from 1 to 130 ms, as published and work-conserving, compared with FIFO."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row, judged
from penstock.experiments.live_cases import Report, silent
from penstock.experiments.pictures import Picture
from penstock.papers.hone.live.episodes import STEADY, Episodes, Lengths
from penstock.papers.hone.live.grid import default_policies
from penstock.papers.hone.live.measures import run_and_measure
from penstock.papers.hone.live.ratios import MEASURES, Ratio, against
from penstock.papers.hone.live.settings import one_slow_machine
from penstock.papers.hone.live.trial import Choice, Trial
from penstock.papers.hone.signals import FORMS
from penstock.papers.hone.tables import finish

TAUS, QUICK_TAUS = (1, 2, 5, 10, 20, 40, 80, 130), (1, 10, 80)  # ms
LOAD = 0.8
FULL, QUICK = Lengths(0.5, 1.75, 0.25, 0.75), Lengths(0.5, 1.5, 0.25, 0.75)
ROUNDS, QUICK_ROUNDS = 5, 2


def longest_first(tau: int, conserving: bool) -> str:
    """Return the specification of longest-first with a signal of duration τ."""
    return f"longest-backlog-first:tau={tau}" + ("" if conserving else ",conserving=false")


def _cases(quick: bool) -> Sequence[Case]:
    lengths, rounds = (QUICK, QUICK_ROUNDS) if quick else (FULL, ROUNDS)
    taus = " ".join(map(str, QUICK_TAUS if quick else TAUS))
    return [{"arrivals": STEADY, "load": LOAD, "taus": taus, "cell_s": lengths.counted, "pause_s": lengths.pause,
             "rounds": rounds, "seed": 0}]  # fmt: skip


def run_taus(case: Case, report: Report = silent) -> Sequence[Row]:
    """Run all τ in both forms at one load and return one row per choice and round."""
    setting = one_slow_machine()
    lengths = Lengths(FULL.settle, float(case["cell_s"]), FULL.tail, float(case["pause_s"]))
    load = float(case["load"])
    routing = default_policies(str(case["arrivals"]), MEASURES[0]).routing
    sendings = [longest_first(int(tau), form) for tau in str(case["taus"]).split() for form in FORMS]
    choices = [Choice(routing, sending) for sending in ("fifo", *sendings)]
    episodes = Episodes(
        str(case["arrivals"]), load * setting.maximum_tps, len(choices), int(case["rounds"]), setting.tasks[0], lengths,
        int(case["seed"]),
    )  # fmt: skip
    return run_and_measure(Trial(setting, episodes, choices), lambda what: report(f"τ, {what}"))


def _found(rows: pd.DataFrame, measure: str) -> dict[bool, dict[int, Ratio]]:
    """Return the ratio of longest-first to first in first out, by form and τ."""
    routing = str(rows["routing"].iloc[0])
    sendings = set(rows["sending"])
    return {
        form: {
            tau: against(rows, measure, Choice(routing, longest_first(tau, form)), Choice(routing, "fifo"))
            for tau in TAUS
            if longest_first(tau, form) in sendings
        }
        for form in FORMS
    }


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    for axis, measure in zip(picture.subplots(1, 2, sharey=True), MEASURES, strict=True):
        for form, (text, colour) in FORMS.items():
            found = _found(rows, measure)[form]
            across, up = list(found), np.array([one.ratio for one in found.values()])
            low, high = (np.array([getattr(one, side) for one in found.values()]) for side in ("low", "high"))
            axis.plot(across, up, "o-", color=colour, label=text, linewidth=1.4, markersize=3)
            axis.fill_between(across, low, high, color=colour, alpha=0.12, linewidth=0)
        axis.axhline(1.0, color="black", linewidth=0.6)
        axis.set_xscale("log")
        what = measure.removesuffix("_ms")
        finish(axis, "τ (ms)", f"{what} latency / fifo's", f"{LOAD:.0%} of the maximum rate, {what}", True)
    axis.legend(frameon=False, fontsize=8)


def _claims(rows: pd.DataFrame) -> list[Claim]:
    mean, tail = (_found(rows, measure) for measure in MEASURES)
    return [_middle(mean), _conserving(mean), _helps(mean, tail)]


def _middle(mean: dict[bool, dict[int, Ratio]]) -> Claim:
    own = mean[False]
    taus = list(own)
    best = min(taus, key=lambda tau: own[tau].ratio)
    holds = best not in (taus[0], taus[-1])
    return judged(
        "a middle τ is best (LBF as published)",
        "yes; a very small τ costs, a large one schedules too little",
        f"best at {best} ms; mean against fifo: {_listed(own)}",
        "neither the smallest nor the largest τ",
        holds,
        "changing the signal costs nothing here, so that only the idling of a held signal is left",
    )


def _conserving(mean: dict[bool, dict[int, Ratio]]) -> Claim:
    kept, held = mean[True], mean[False]
    last = max(kept)
    return Claim(
        "check: a live LBF must be work-conserving within τ",
        "must",
        f"τ = {last} ms: {kept[last].text} of fifo's mean work-conserving, {held[last].text} as published",
        "work-conserving ≤ as published at the largest τ, by the limits",
        kept[last].high < held[last].low,
    )


def _helps(mean: dict[bool, dict[int, Ratio]], tail: dict[bool, dict[int, Ratio]]) -> Claim:
    every = {
        f"{what} τ = {tau} ms, {FORMS[form][0]}": one
        for what, found in (("mean", mean), ("p99", tail))
        for form, own in found.items()
        for tau, one in own.items()
    }
    faster = [f"{where} {one.text}" for where, one in every.items() if one.high < 1.0]
    least = min(every, key=lambda where: every[where].ratio)
    return judged(
        "ours: some τ makes LBF faster than first in first out",
        "always, against Storm",
        f"at {len(faster)} of {len(every)}; least ratio {every[least].text} ({least})",
        "upper limit < 1, mean or p99",
        faster,
        "first in first out completes the oldest sentence first, and idles no less than LBF",
    )


def _listed(found: dict[int, Ratio]) -> str:
    return ", ".join(f"{one.ratio:.2f} at {tau}" for tau, one in found.items())


LIVE_TAU = Figure("live-tau", "Live: how long the signal is held", _cases, run_taus, _draw, _claims, live=True)
