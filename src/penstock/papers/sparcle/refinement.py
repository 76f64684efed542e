"""Ours: distance of `sparcle` and `sparcle-refined` from the optimum with joint routing, where the gain is largest.

Here `sparcle-refined` has its default time limit: rates and times are of the same runs. Other figures use it without a
limit, so that they do not depend on the load of the host.
"""

from collections.abc import Callable, Sequence
from time import perf_counter, process_time

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row, select
from penstock.experiments.pictures import Picture, finish
from penstock.model.taskgraph import Floats
from penstock.papers.sparcle import names
from penstock.papers.sparcle.rates import STAR
from penstock.papers.sparcle.runs import (
    BALANCED,
    BOTTLENECKS,
    GIVEN,
    Drawn,
    given_cases,
    instance_cases,
    instances,
    planner_of,
    rate,
    run_rates,
    setting_of,
)
from penstock.papers.sparcle.summaries import boxes, column, percentiles, ratios
from penstock.workloads.sparcle import Reference, references

DRAWN = (STAR, Drawn("star", "linear"), Drawn("line", "linear"), Drawn("line", "diamond"))
MEAN, LOW = 0.99, 0.9  # of the optimum: on average and at the 5th percentile
MOST_MS = 50.0  # per instance
SAME = 1e-6  # relative; rates compared with given ones
ABSENT = "the data with independent answers (../shared/data/sparcle) is not beside the repository: skipped"


def _cases(quick: bool) -> list[Case]:
    """Return balanced stars and lines, and the given instances."""
    balanced = {BALANCED: BOTTLENECKS[BALANCED]}
    number = instances(quick)
    return [*(one for own in DRAWN for one in instance_cases(own, balanced, "ratio", number)), *given_cases(quick)]


def run_refined(one: Case) -> Sequence[Row]:
    """Run a case and return its row: rates, `sparcle-refined` with its defaults, and its time."""
    (row,) = run_rates(one)  # first, so that kernels are compiled
    planner = planner_of(setting_of(one), int(one.get("seed", 0)))
    began, worked = perf_counter(), process_time()
    found = rate(planner.decide("sparcle-refined"))
    took = {"refined_ms": 1e3 * (perf_counter() - began), "refined_cpu_ms": 1e3 * (process_time() - worked)}
    return [{**row, "unhurried": row[names.REFINED], names.REFINED: found, **took}]


def _groups(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    found = {f"{own.shape},\n{own.graph}": select(rows, shape=own.shape, graph=own.graph) for own in DRAWN}
    if len(given := select(rows, shape=GIVEN)):
        found["given\ninstances"] = given
    return found


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    axis = picture.subplots()
    boxes(axis, {name: {policy: ratios(own, policy) for policy in names.OURS} for name, own in _groups(rows).items()})
    title = "balanced 1 : 1, eight machines, and instances with independent answers (whiskers: p5 to p95)"
    finish(axis, up="rate / optimum with joint routing", title=title)
    axis.set_ylim(0, 1.05)


def _claims(rows: pd.DataFrame) -> list[Claim]:
    groups = {name.replace("\n", " "): own for name, own in _groups(rows).items()}
    made = []
    for name, own in groups.items():
        found = ratios(own, names.REFINED)
        made.append(
            Claim(
                f"ours: {name}: sparcle-refined is near the optimum",
                "-",
                percentiles(found),
                f"mean ≥ {MEAN:g}, p5 ≥ {LOW:g}",
                bool(found.mean() >= MEAN and np.percentile(found, 5) >= LOW),
                f"of {len(own)}; without a clock {percentiles(ratios(own, 'unhurried'))}; SPARCLE "
                f"{percentiles(ratios(own, names.CANONICAL))}; our default {percentiles(ratios(own, names.SPARCLE))}",
            )
        )
    if "given instances" not in groups:
        made.append(Claim("ours: given instances", "-", "skipped", "-", False, ABSENT))
    return [*made, *_checks(rows), _never_worse(rows), _time(rows)]


def _checks(rows: pd.DataFrame) -> list[Claim]:
    """Check an independent check's results for the algorithm on a balanced star, and its answers."""
    star = np.concatenate(
        [ratios(select(rows, shape="star", graph=graph), names.CANONICAL) for graph in ("linear", "diamond")]
    )
    made = [
        Claim(
            "check: SPARCLE on a balanced star 1 : 1",
            "0.67 of the optimum on average",
            percentiles(star),
            "mean ±0.08",
            abs(float(star.mean()) - 0.67) <= 0.08,
            "linear and diamond graphs; the check's stars have other sizes, and a hub that computes",
        )
    ]
    given = select(rows, shape=GIVEN)
    if not len(given):
        return made
    answers = [references()[int(number)] for number in given["number"]]

    def share(policy: str, right: Callable[[Reference, float], bool]) -> float:
        found = zip(answers, column(given, policy), strict=True)
        return float(np.mean([right(answer, float(rate)) for answer, rate in found]))

    optimum = share(names.OPTIMUM, lambda answer, rate: abs(rate / answer.optimum - 1.0) <= SAME)
    lowest = share(names.CANONICAL, lambda answer, rate: abs(rate / answer.rate - 1.0) <= SAME)
    allowed = share(names.CANONICAL, lambda answer, rate: answer.allows(rate, SAME))
    made.append(
        Claim(
            "check: the given optima and the given rates of Algorithm 2 come out",
            f"{len(given)} answers each",
            f"optimum in {optimum:.0%}; SPARCLE's rate in {lowest:.0%}, one that some tie-break gives in {allowed:.0%}",
            f"to {SAME:g}; all optima, and all rates, where ties matter one of those listed",
            optimum == 1.0 and allowed == 1.0,
        )
    )
    return made


def _never_worse(rows: pd.DataFrame) -> Claim:
    found = ratios(rows, names.REFINED, names.SPARCLE)
    return Claim(
        "ours: sparcle-refined is never worse than SPARCLE",
        "-",
        f"{found.min():.3f} to {found.max():.2f} of its rate, {found.mean():.3f} on average",
        "≥ 1 in every instance, 1e-9 slack",
        bool(found.min() >= 1.0 - 1e-9),
        "our default",
    )


def _time(rows: pd.DataFrame) -> Claim:
    wall, worked = column(rows, "refined_ms"), column(rows, "refined_cpu_ms")
    return Claim(
        f"ours: sparcle-refined takes {MOST_MS:g} ms an instance at most, in the runs judged above",
        "-",
        f"wall time {_times(wall)}",
        f"p99 ≤ {MOST_MS:g} ms",
        bool(np.percentile(wall, 99) <= MOST_MS),
        f"on a shared host; processor time {_times(worked)}",
    )


def _times(spent: Floats) -> str:
    median, p95, p99 = np.percentile(spent, [50, 95, 99])
    return f"median {median:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms, most {spent.max():.0f} ms"


FIGURES: Sequence[Figure] = (
    Figure("refined", "Rate over the optimum: SPARCLE and its refinement", _cases, run_refined, _draw, _claims),
)
