"""A figure of our own: parameters that POTUS's results depend on and the paper leaves open.

Load and its balance, whether tuples in flight are counted, γ, predictors at several loads, and the number of tasks per
server. The findings of an independent check are confirmed or refuted.
"""

from collections.abc import Mapping, Sequence

import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Value, select
from penstock.experiments.pictures import COLOURS, Axes, Picture, finish
from penstock.experiments.statistics import signed, signed_spread
from penstock.model.taskgraph import Floats
from penstock.papers.potus.runs import case, length, run_system
from penstock.papers.potus.summaries import cost_ratio, curve, means, over, spread, steady, unsteadiness, with_predictor

LOADS, QUICK_LOADS = (0.6, 0.8, 0.9, 0.95, 0.98), (0.8, 0.98)
EASY_LOADS, QUICK_EASY_LOADS = (0.3, 0.5, 0.7, 0.8, 0.9), (0.5, 0.8)
LIMITS = (5, 8, 0)  # γ; 0: as large as necessary
NEARLY_FULL = 0.95
WINDOW = 10
APPENDIX = "in_flight=true"  # (25) instead of (8)
CONTAINERS = (3, 5, 10)
PREDICTORS = ("ewma", "kalman", "empirical")
COMPARED: Sequence[dict[str, Value]] = (
    {"policy": "shuffle"},
    {"policy": "potus", "v": 0.0},
    {"policy": "potus", "v": 3.0},
    {"policy": "potus", "v": 0.0, "options": APPENDIX},
    {"policy": "potus", "v": 3.0, "options": APPENDIX},
    {"policy": "least-loaded"},
    {"policy": "potus-plus", "v": 0.0},
)


def _cases(quick: bool) -> list[Case]:
    made: list[Case] = []
    for seed in range(length(quick).seeds):
        poisson: dict[str, Value] = {"fabric": "jellyfish", "arrivals": "poisson", "seed": seed}
        for load in QUICK_LOADS if quick else LOADS:
            for balanced in (False, True):
                made += [
                    case(quick, part="load", utilisation=load, balanced=balanced, **poisson, **one) for one in COMPARED
                ]
        for load in QUICK_EASY_LOADS if quick else EASY_LOADS:
            easy = {**poisson, "v": 1.0, "spouts": 1, "utilisation": load, "part": "forecast"}
            made.append(case(quick, **easy))
            made += [case(quick, window=1, same=True, forecast=name, **easy) for name in ("perfect", *PREDICTORS)]
        made += [
            case(quick, part="limit", limit=limit, window=window, seed=seed)
            for limit in LIMITS
            for window in (0, WINDOW)
        ]
        for room in CONTAINERS:
            few: dict[str, Value] = {"container": room, "applications": 2, "seed": seed, "part": "container"}
            made += [case(quick, policy="shuffle", **few), case(quick, v=40.0, **few)]
    return made


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(11, 8)
    (uneven, even), (forecast, limit) = picture.subplots(2, 2)
    loads = select(rows, part="load")
    for axis, balanced in ((uneven, False), (even, True)):
        _draw_loads(axis, select(loads, balanced=balanced))
        what = "every component" if balanced else "the fullest component of an application"
        finish(axis, f"utilisation of {what}", "response time (slots)", below=True)
    predicted = with_predictor(select(rows, part="forecast"))
    for number, name in enumerate(("none", "perfect", *PREDICTORS)):
        curve(forecast, select(predicted, predictor=name), "utilisation", "response", name, COLOURS[number])
    forecast.set_yscale("log")
    finish(forecast, "utilisation (share of capacity)", "response time (slots)", "predictors, W = 1, V = 1")
    limits = select(rows, part="limit").assign(place=rows["limit"].map({at: n for n, at in enumerate(LIMITS)}))
    for number, (window, own) in enumerate(limits.groupby("window")):
        curve(limit, own, "place", "response", f"W = {window}", COLOURS[number])
    limit.set_xticks(range(len(LIMITS)), [str(at or "enough") for at in LIMITS])
    limit.set_yscale("log")
    finish(limit, "γ (tuples a slot)", "response time (slots)", "outflow limit, V = 3")


def _draw_loads(axis: Axes, rows: pd.DataFrame) -> None:
    for number, one in enumerate(COMPARED):
        own = select(rows, **{"options": "", **one})
        label = str(one["policy"]) + (f", V = {one['v']:g}" if "v" in one else "")
        label += ", as (25)" if one.get("options") else ""
        curve(axis, own, "utilisation", "response", label, COLOURS[number])
    axis.set_yscale("log")


def _claims(rows: pd.DataFrame) -> list[Claim]:
    return [
        *_load_claims(select(rows, part="load")),
        *_herding_claims(select(rows, part="load")),
        _forecast_claim(with_predictor(select(rows, part="forecast"))),
        *_limit_claims(select(rows, part="limit")),
        _container_claim(cost_ratio(select(rows, part="container"))),
    ]


def _over_potus(rows: pd.DataFrame, load: float, balanced: bool, **potus: Value) -> Floats:
    """Return Shuffle's response times relative to those of POTUS, seed by seed."""
    own = select(rows, utilisation=load, balanced=balanced)
    return over(select(own, policy="shuffle"), select(own, **{"policy": "potus", "options": "", **potus}), "response")


def _load_claims(rows: pd.DataFrame) -> list[Claim]:
    usual, usual_bare = _over_potus(rows, 0.8, False, v=3.0), _over_potus(rows, 0.8, False, v=0.0)
    loads = [load for load in sorted(rows["utilisation"].unique()) if load >= NEARLY_FULL]
    full, full_bare = ({load: _over_potus(rows, load, True, v=v) for load in loads} for v in (3.0, 0.0))
    return [
        Claim(
            "check: at 0.8 on the fullest component Shuffle is 40–50 % below POTUS at V = 3",
            "−40 to −50 %",
            f"{signed_spread(usual - 1)} (V = 0: {signed_spread(usual_bare - 1)})",
            "−30 to −60 %",
            -0.60 <= usual.mean() - 1 <= -0.30,
            "jellyfish, Poisson, (8)",
        ),
        Claim(
            "check: near saturation on every component they are level",
            "level at 0.95–0.98",
            f"Shuffle / POTUS at V = 3: {_by_load(full)}",
            "0.9 to 1.1 at every such load",
            all(0.9 <= found.mean() <= 1.1 for found in full.values()),
            "V = 3 holds tuples back where nothing waits, which delays them at every load short of overload; with V = "
            f"0: {_by_load(full_bare)}",
        ),
    ]


def _herding_claims(rows: pd.DataFrame) -> list[Claim]:
    unseen = _over_potus(rows, 0.8, True, v=0.0)
    seen, full_seen = (_over_potus(rows, load, True, v=0.0, options=APPENDIX) for load in (0.8, 0.98))
    even = select(rows, utilisation=0.8, balanced=True)
    plus = over(select(even, policy="potus-plus"), select(even, policy="potus", v=0.0, options=""), "response")
    return [
        Claim(
            "check: under (8), which does not show tuples in flight, POTUS herds: Shuffle / POTUS",
            "0.71 against 1.05 under the appendix form",
            f"{spread(unseen)} against {spread(seen)}",
            "lower by 0.1 or more",
            float((seen - unseen).mean()) >= 0.1,
            "V = 0, 0.8 on every component",
        ),
        Claim(
            "check: under the appendix form (25) POTUS is level with Shuffle: Shuffle / POTUS",
            "1.05",
            spread(seen),
            "≥ 0.95",
            float(seen.mean()) >= 0.95,
            "V = 0, 0.8 on every component. Counting tuples in flight keeps the tuples of other slots away, but all "
            "that a task has in one slot still goes to one other task, which takes several slots to serve it; "
            f"POTUS-plus, which fills queues evenly, ends that (next claim). At 0.98 it is {spread(full_seen)}",
        ),
        Claim(
            "ours: filling queues evenly instead of all to one ends the herding",
            "-",
            f"POTUS-plus / POTUS {spread(plus)}",
            "< 1",
            float(plus.max()) < 1.0,
            "V = 0, 0.8 on every component",
        ),
    ]


def _by_load(ratios: Mapping[float, Floats]) -> str:
    return ", ".join(f"{spread(found)} at {load:g}" for load, found in ratios.items())


def _forecast_claim(rows: pd.DataFrame) -> Claim:
    bare = means(select(rows, predictor="none"), "utilisation", "response")
    gains = pd.DataFrame(
        {name: means(select(rows, predictor=name), "utilisation", "response") / bare - 1 for name in PREDICTORS}
    )
    best = gains.min(axis=1)
    texts = ", ".join(f"{load:g}: {signed(gain, 0)}" for load, gain in best.items())
    helps = [float(load) for load, gain in best.items() if gain < -0.01]  # type: ignore[arg-type]
    return Claim(
        "check: predictors help only at moderate load",
        "moderate",
        f"best predictor, by load: {texts}",
        "one helps at 0.5, none at 0.8 or more",
        0.5 in helps and all(load < 0.8 for load in helps),
        "one task a source, Poisson, V = 1, W = 1",
    )


def _limit_claims(rows: pd.DataFrame) -> list[Claim]:
    found = {(limit, window): select(rows, limit=limit, window=window) for limit in LIMITS for window in (0, WINDOW)}
    texts = ", ".join(
        f"γ = {limit or 'enough'}: {found[limit, 0]['response'].mean():.0f} and "
        f"{found[limit, WINDOW]['response'].mean():.0f}"
        for limit in LIMITS
    )
    worse = over(found[LIMITS[0], 0], found[0, 0], "response")
    scarce = [limit for limit in LIMITS if limit]
    upset = {limit: _upset(found[limit, 0], found[limit, WINDOW]) for limit in scarce}
    change = {limit: over(found[limit, WINDOW], found[limit, 0], "response") for limit in scarce}
    return [
        Claim(
            "check: γ must be ≥ μ·outputs and ≥ twice the mean outflow",
            "else unstable",
            f"slots at W = 0 and {WINDOW}: {texts}",
            "response at γ = μ_max ≥ twice that with γ enough",
            float(worse.mean()) >= 2.0,
            "; ".join(f"γ = {limit or 'enough'}, W = 0: {unsteadiness(found[limit, 0])}" for limit in LIMITS),
        ),
        Claim(
            "check: with less γ look-ahead can destabilise a feasible system",
            "it can",
            ", ".join(
                f"γ = {limit}: in {many} of {found[limit, 0]['seed'].nunique()}" for limit, many in upset.items()
            ),
            f"some system is steady at W = 0 and not at W = {WINDOW}",
            any(upset.values()),
            "the claim is that such systems exist; in the four of this figure look-ahead relieves the limit, as tuples "
            f"leave earlier: response time W = {WINDOW} / W = 0: "
            + ", ".join(f"γ = {limit} {spread(value)}" for limit, value in change.items()),
        ),
    ]


def _upset(bare: pd.DataFrame, ahead: pd.DataFrame) -> int:
    """Count the systems whose queues are steady without look-ahead but not with it."""
    return sum(
        steady(select(bare, seed=seed)) and not steady(select(ahead, seed=seed)) for seed in bare["seed"].unique()
    )


def _container_claim(rows: pd.DataFrame) -> Claim:
    below = {
        room: over(
            select(rows, policy="potus", container=room), select(rows, policy="shuffle", container=room), "ratio"
        )
        for room in CONTAINERS
    }
    saved = [1 - float(value.mean()) for value in below.values()]
    texts = ", ".join(f"{room} tasks: {signed_spread(value - 1)}" for room, value in below.items())
    return Claim(
        "ours: what POTUS saves of Shuffle's cost depends on how many tasks a server takes",
        "−7.6 %",
        texts,
        "differs by 1.5 times or more",
        max(saved) >= 1.5 * max(min(saved), 1e-9),
        "V = 40, two applications; not given in the paper",
    )


FIGURES: Sequence[Figure] = (
    Figure("settings", "What the results depend on that the paper leaves open", _cases, run_system, _draw, _claims),
)
