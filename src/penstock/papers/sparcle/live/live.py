"""The figure: the rates in the book compared with those measured at the sinks."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row
from penstock.experiments.live_cases import Tell, silent, temporary
from penstock.experiments.pictures import COLOURS, label
from penstock.papers.sparcle.live.stories import CAPACITY, FIRM, KEPT, STORIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

NUMBER = "live"
REPETITIONS, QUICK_REPETITIONS = 3, 1
SECONDS, QUICK_SECONDS = 20.0, 8.0  # of a measurement
LATE = 0.25  # maximum share of checks at which the emulation lags
PAPER = "not measured"


def _cases(quick: bool) -> Sequence[Case]:
    repetitions, seconds = (QUICK_REPETITIONS, QUICK_SECONDS) if quick else (REPETITIONS, SECONDS)
    return [
        {"story": story, "repetition": number, "seconds": seconds} for story in STORIES for number in range(repetitions)
    ]


def run_live(case: Case, tell: Tell = silent) -> Sequence[Row]:
    """Run one scenario and return its rows."""
    story = str(case["story"])
    with temporary() as folder:
        return list(STORIES[story](float(case["seconds"]), Path(folder), lambda text: tell(f"{story}: {text}")))


def _draw(rows: pd.DataFrame, picture: "Picture") -> None:
    measured = rows[rows["measured_tps"].notna()]
    named = measured[["story", "phase", "application"]].agg("\n".join, axis=1)
    axis = picture.subplots()
    for place, name in enumerate(dict.fromkeys(named)):
        own = measured[named == name]
        colour = COLOURS[list(STORIES).index(own["story"].iloc[0])]
        axis.bar(place, own["booked_tps"].iloc[0], color="none", edgecolor="#444444", width=0.7)
        axis.plot([place] * len(own), own["measured_tps"], "o", color=colour, ms=5)
    axis.set_xticks(range(named.nunique()), list(dict.fromkeys(named)), fontsize=7)
    label(axis, "", "source tuples/s", "Bars: by the book. Dots: measured at the sinks, a run each.")


def _claims(rows: pd.DataFrame) -> Sequence[Claim]:
    return [*_shares(rows), *_flood(rows), *_paths(rows), _true(rows)]


def _shares(rows: pd.DataFrame) -> Iterator[Claim]:
    alpha, beta = (_of(rows, "shares", "both", name) for name in ("alpha", "beta"))
    alone, took = _of(rows, "shares", "alone", "alpha"), _of(rows, "shares", "alone", "alpha", "took_s")
    if not len(alpha) or not len(beta):
        return
    yield _claim(
        "priorities 2:1 on one machine, each offered thrice what it does: rates are 2:1",
        f"{_spread(alpha / beta)} ({_spread(alpha)} and {_spread(beta)}/s)",
        "within 10 % in every run",
        bool((np.abs(alpha / beta / 2 - 1) <= 0.1).all()),
    )
    yield _claim(
        "together they use the machine",
        f"{_spread(100 * (alpha + beta) / CAPACITY)} % of its {CAPACITY:g}/s",
        "≥ 90 % in every run",
        bool((alpha + beta >= 0.9 * CAPACITY).all()),
    )
    yield _claim(
        "when one leaves, the other takes the rest",
        f"≥ 90 % of the machine after {_spread(np.round(took, 1))} s; then {_spread(alone)}/s",
        "within 10 s in every run",
        bool((took <= 10).all()),
    )


def _flood(rows: pd.DataFrame) -> Iterator[Claim]:
    alone, flooded = (_of(rows, "flood", phase, "firm") for phase in ("alone", "flooded"))
    if not len(flooded):
        return
    flood = _of(rows, "flood", "flooded", "flood")
    yield _claim(
        f"a guaranteed application keeps its {FIRM:g}/s while another is offered ten times what is left",
        f"{_spread(flooded)}/s, alone {_spread(alone)}/s; the other gets {_spread(flood)}/s",
        "≥ 95 % of it in every run",
        bool((flooded >= 0.95 * FIRM).all()),
    )


def _paths(rows: pd.DataFrame) -> Iterator[Claim]:
    both, first, one = (_of(rows, "paths", phase, "firm") for phase in ("both", "first seconds", "one"))
    if not len(one):
        return
    often = _of(rows, "paths", "one", "firm", "often")[0]
    yield _claim(
        f"the machine of one of two paths is killed: the {KEPT:g}/s that the book guarantees are still there",
        f"{_spread(one)}/s from 4 s on, {_spread(first)}/s in these first seconds, {_spread(both)}/s with both",
        "≥ 95 % of it in every run",
        bool((one >= 0.95 * KEPT).all()),
        f"the book: {often:.2%} of the time",
    )
    kept = rows[(rows["story"] == "paths") & (rows["phase"] == "published")].sort_values("repetition")
    least = KEPT * _of(rows, "paths", "one", "firm", "seconds")  # tuples while one path was left; more arrived before
    yield _claim(
        "what the lost path had not committed is done by the other: every tuple is published once",
        f"{', '.join(str(int(count)) for count in kept['tuples'])} tuples, from the first to the last",
        "every number once in every run, and no fewer than came",
        bool(kept["once"].astype(bool).all() and (kept["tuples"].to_numpy() >= least).all()),
    )


def _true(rows: pd.DataFrame) -> Claim:
    late = rows[rows["late"].notna()].groupby(["story", "repetition"])["late"].max()
    return _claim(
        "machines are emulated truly on this host",
        f"late at {late.mean():.0%} of looks",
        f"at ≤ {LATE:.0%} of the looks of every run",
        bool((late <= LATE).all()),
        "run it on a host that is idle, or has more cores",
    )


def _claim(what: str, ours: str, tolerance: str, holds: bool, why: str = "") -> Claim:
    return Claim(NUMBER, f"ours: {what}", PAPER, ours, tolerance, holds, why)


def _of(rows: pd.DataFrame, story: str, phase: str, application: str, what: str = "measured_tps") -> np.ndarray:
    own = (rows["story"] == story) & (rows["phase"] == phase) & (rows["application"] == application)
    return rows.loc[own].sort_values("repetition")[what].to_numpy(dtype=np.float64)


def _spread(values: np.ndarray) -> str:
    low, high = f"{values.min():.3g}", f"{values.max():.3g}"
    return low if low == high else f"{low} to {high}"


LIVE = Figure(NUMBER, "Live: what the book promised, and what came", _cases, run_live, _draw, _claims, live=True)
