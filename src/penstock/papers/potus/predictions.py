"""Figures 6a and 6b: cost and response time against V for five predictors, perfect prediction and none; W = 1.

Two settings. The paper's squared errors, 10 to 23, imply sources with ten tuples per slot or more, and its gains a
system with room for phantoms; so in addition to the usual setting there is one with one task per source at half the
load.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Value, judged, select
from penstock.experiments.pictures import COLOURS, Picture, finish
from penstock.experiments.statistics import signed, signed_spread
from penstock.model.taskgraph import Floats
from penstock.papers.potus.runs import case, length, run_system
from penstock.papers.potus.summaries import ACROSS_V, cost_ratio, curve, fit_line, means, over, upper, with_predictor

WEIGHTS, QUICK_WEIGHTS = (0.0, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 40.0), (0.0, 1.0, 5.0, 20.0, 40.0)
PREDICTORS = {"moving-average": "MA", "ewma": "EWMA", "kalman": "Kalman", "empirical:draw=true": "Distr"}
"""The paper's without Prophet, whose repeated fits of every source take a good part of a second each."""

PROPHET_V = 5.0  # the only V with Prophet, if it is installed
ENDED = 20.0  # V from which on the paper sees no gain

NAMES = {"none": "no prediction", "perfect": "perfect", **PREDICTORS}


class LoadLevel(NamedTuple):
    """A setting in which predictors are compared."""

    title: str
    settings: dict[str, Value]


USUAL = LoadLevel("utilisation 0.8", {"utilisation": 0.8, "spouts": 0})
MODERATE = LoadLevel("utilisation 0.5, one task a source", {"utilisation": 0.5, "spouts": 1})
PLACES = (USUAL, MODERATE)


def _cases(quick: bool) -> list[Case]:
    made: list[Case] = []
    for seed in range(length(quick).seeds):
        for v in QUICK_WEIGHTS if quick else WEIGHTS:
            for place in PLACES:
                own = {"v": v, "seed": seed, **place.settings}
                made.append(case(quick, **own))
                made += [case(quick, window=1, same=True, forecast=name, **own) for name in ("perfect", *PREDICTORS)]
        if find_spec("prophet"):
            made.append(
                case(quick, window=1, same=True, forecast="prophet", v=PROPHET_V, seed=seed, **MODERATE.settings)
            )
    return made


def _draw(measure: str, rows: pd.DataFrame, picture: Picture) -> None:
    rows = with_predictor(cost_ratio(rows))
    for axis, place in zip(picture.subplots(1, len(PLACES)), PLACES, strict=True):
        own = select(rows, **place.settings)
        for number, (name, label) in enumerate(NAMES.items()):
            curve(axis, select(own, predictor=name), "v", measure, label, COLOURS[number])
        what = "mean cost / least cost" if measure == "ratio" else "response time (slots)"
        if measure == "response":
            axis.set_ylim(0, 1.5 * select(own, predictor="none")["response"].max())
        finish(axis, ACROSS_V, what, place.title)


def _cost_claims(rows: pd.DataFrame) -> list[Claim]:
    """Check 6a."""
    own = select(with_predictor(cost_ratio(rows)), **USUAL.settings)
    drops = {name: _change(select(own, predictor=name), "ratio", 1.0, 20.0) for name in NAMES}
    texts = ", ".join(f"{NAMES[name]} {signed(drop)}" for name, drop in drops.items())
    perfect = select(own, predictor="perfect")
    dearer = {name: over(select(own, predictor=name), perfect, "cost").mean() - 1 for name in PREDICTORS}
    return [
        Claim(
            "cost falls with V under every scheme",
            "falls rapidly",
            f"V = 1 to 20: {texts}",
            "every scheme by 0.5 % or more",
            all(drop <= -0.005 for drop in drops.values()),
            USUAL.title,
        ),
        Claim(
            "with perfect prediction cost is lower than with predictors",
            "lower",
            ", ".join(f"{NAMES[name]} {signed(share, 0)}" for name, share in dearer.items()),
            "every predictor costs more",
            all(share > 0 for share in dearer.values()),
            "phantoms that are sent cost as much as tuples",
        ),
        _error_claim(rows),
    ]


def _error_claim(rows: pd.DataFrame) -> Claim:
    errors = {
        place.title: select(with_predictor(rows), **place.settings).groupby("predictor")["squared_error"].mean()
        for place in PLACES
    }
    found = {title: [float(error[name]) for name in PREDICTORS] for title, error in errors.items()}
    low, high = min(map(min, found.values())), max(map(max, found.values()))
    texts = "; ".join(f"{title}: {min(values):.1f} to {max(values):.1f}" for title, values in found.items())
    return Claim(
        "mean squared errors of the predictors",
        "10.37 to 22.54",
        texts,
        "the ranges overlap",
        low <= 22.54 and high >= 10.37,
        f"an error is about the variance of a source's arrivals, so it shows their rate; {_prophet(rows)}",
    )


def _prophet(rows: pd.DataFrame) -> str:
    """Describe the results of Prophet, if it could be run."""
    own = select(with_predictor(rows), predictor="prophet")
    if not len(own):
        return "Prophet is left out, as its extra is not installed (its errors on traces: docs/guides/forecasting.md)"
    rival = select(with_predictor(rows), predictor="none", v=PROPHET_V, **MODERATE.settings)
    gain = over(own, rival, "response") - 1
    return (
        f"Prophet ({MODERATE.title}, V = {PROPHET_V:g} only): {own['squared_error'].mean():.1f}, response time "
        f"{signed_spread(gain)} against none"
    )


def _response_claims(rows: pd.DataFrame) -> list[Claim]:
    """Check 6b."""
    rows = with_predictor(cost_ratio(rows))
    places = {place.title: select(rows, **place.settings) for place in PLACES}
    tails = {
        f"{NAMES[name]}, {title}": fit_line(means(select(own, predictor=name), "v", "response").loc[5.0:])
        for title, own in places.items()
        for name in NAMES
    }
    bent = min(tails, key=lambda name: tails[name].fit)
    return [
        _dip_claim(places[USUAL.title]),
        Claim(
            "then it grows linearly",
            "linear",
            f"R² ≥ {tails[bent].fit:.4f}",
            "R² ≥ 0.99 from V = 5 on, every scheme",
            tails[bent].fit >= 0.99,
            f"the least is {bent}: its phantoms, which need {_extra(places[USUAL.title], tuple(PREDICTORS)[-1])} more "
            "processing, overload a component, so that response times depend on how long the run is",
        ),
        *_gain_claims(places),
    ]


def _dip_claim(rows: pd.DataFrame) -> Claim:
    """Check whether a small V is better than none."""
    dips = {name: _change(select(rows, predictor=name), "response", 0.0, 5.0) for name in NAMES}
    return Claim(
        "response time falls by about 20 % from V = 0 to 5",
        "−20 %",
        ", ".join(f"{NAMES[name]} {signed(dip, 0)}" for name, dip in dips.items()),
        "half to twice as much with every predictor",
        all(-0.40 <= dips[name] <= -0.10 for name in PREDICTORS),
        "without phantoms a larger V only holds tuples back. With predictors, phantoms that are sent need "
        f"{_extra(rows[rows['v'] == 0.0])} more processing at V = 0 and {_extra(rows[rows['v'] == 5.0])} at V = 5, "
        f"which holds some back until they are dropped; at {USUAL.title} that decides whether components are saturated",
    )


def _gain_claims(places: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """Check the benefit of prediction."""
    best = {title: best_gain(own, PREDICTORS) for title, own in places.items()}
    late = {title: best_gain(own[own["v"] >= ENDED], PREDICTORS) for title, own in places.items()}
    gone = min(gain.shares.mean() for gain in late.values()) >= -0.01
    perfect = ", ".join(f"{title}: {best_gain(own, ('perfect',))}" for title, own in places.items())
    extra = ", ".join(f"{title}: {_extra(own)}" for title, own in places.items())
    return [
        Claim(
            "predictors are up to 16.5 % below no prediction",
            "−16.5 %",
            ", ".join(f"{title}: at best {gain}" for title, gain in best.items()),
            "half to twice as much in either setting; half judged by the upper 95 % limit of the best",
            any(gain.shares.mean() >= -0.33 and upper(gain.shares) <= -0.0825 for gain in best.values()),
            f"phantoms that are sent need processing: {extra} more. That costs what one slot of look-ahead saves, "
            f"which even with perfect prediction is, at best: {perfect}",
        ),
        judged(
            "the gain vanishes past V ≈ 20",
            "gone",
            ", ".join(f"{title}: at best {gain}" for title, gain in late.items()),
            f"mean of the best ≥ −1 % from V = {ENDED:g} on",
            gone,
            "the gain that remains is smaller than its spread over the seeds, so it may be none",
        ),
    ]


class PredictorGain(NamedTuple):
    """Relative reduction of the response time by a predictor at a V."""

    predictor: str
    v: float
    shares: Floats  # [seeds]

    def __str__(self) -> str:
        limit = signed(upper(self.shares))
        return f"{signed_spread(self.shares)} (upper limit {limit}; {NAMES[self.predictor]}, V = {self.v:g})"


def best_gain(rows: pd.DataFrame, predictors: Iterable[str]) -> PredictorGain:
    """Return the predictor and the V with the minimum mean response time relative to none, seed by seed."""
    return min(
        (
            PredictorGain(name, v, over(select(own, predictor=name), select(own, predictor="none"), "response") - 1)
            for v, own in ((v, select(rows, v=v)) for v in rows["v"].unique().tolist())
            for name in predictors
        ),
        key=lambda gain: float(gain.shares.mean()),
    )


def _extra(rows: pd.DataFrame, *predictors: str) -> str:
    """Return the additional processing that phantoms need: from the least of some predictors to the most."""
    bare = select(rows, predictor="none")
    more = [
        float(over(select(rows, predictor=name), bare, "served").mean()) - 1 for name in predictors or tuple(PREDICTORS)
    ]
    return f"{min(more):.0%} to {max(more):.0%}" if len(more) > 1 else f"{more[0]:.0%}"


def _change(rows: pd.DataFrame, measure: str, begin: float, end: float) -> float:
    found = means(rows, "v", measure)
    return float(found[end] / found[begin] - 1)


FIGURES: Sequence[Figure] = (
    Figure(
        "6a", "Figure 6a: cost against V by predictor, W = 1", _cases, run_system, partial(_draw, "ratio"), _cost_claims
    ),
    Figure(
        "6b",
        "Figure 6b: response time against V by predictor, W = 1",
        _cases,
        run_system,
        partial(_draw, "response"),
        _response_claims,
    ),
)
