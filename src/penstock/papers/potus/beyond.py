"""A figure of our own: POTUS-plus on random systems, compared with POTUS at its best V and the best alternative.

Twenty consecutive numbers cover every depth from one to five hops on both fabrics with Poisson arrivals and traces; the
load is random from 0.5 to 0.95. Numbers start at 100, because POTUS-plus's one constant was chosen on systems below 20.
In the family `equal` all tasks of a component have equal service rates, as in the paper; in `mixed` the service rate of
every task of the same systems is multiplied by a random factor from 1 to 2. One setting of POTUS-plus is for response
time (V = 0), one for cost; neither is fitted to a system.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from penstock.experiments.figure import Case, Claim, Figure, Row, Value
from penstock.experiments.pictures import COLOURS, Picture, finish
from penstock.experiments.statistics import signed
from penstock.model.slotted import SlottedSystem
from penstock.model.taskgraph import Floats
from penstock.papers.potus.runs import ALTERNATIVES, arrivals_kind, length, measures_of, spec
from penstock.papers.potus.summaries import cost_ratio, upper
from penstock.policies.registry import routing_policy
from penstock.sim.slotted import Arrivals, simulate
from penstock.workloads.potus import RandomPotusWorkload, arrival_counts, random_potus_workload, traces_folder

FIRST, SYSTEMS, REPEATS = 100, 20, 3  # every repeat has new arrivals on the same system
QUICK_STEP, QUICK_REPEATS = 3, 1  # every third system
FAMILIES = ("equal", "mixed")
FASTER = 2.0  # maximum factor of `mixed`
WEIGHTS = (0.0, 1.0, 3.0, 10.0)  # of POTUS; the best is selected by system
COST_MINDED = 10.0  # V of POTUS-plus if cost matters most
WARM_UP, QUICK_WARM_UP = 3000, 700  # equal for all policies, so that all receive the same tuples
LEVEL = 1.01  # a ratio of response times that a few runs cannot distinguish from 1
NEAR, UNDER = 1.02, 0.997  # accepted cost relative to the minimum; a lower one means that tuples were held back


def _cases(quick: bool) -> list[Case]:
    span = length(quick)
    fixed: dict[str, Value] = {
        "slots": span.slots,
        "warm_up": QUICK_WARM_UP if quick else WARM_UP,
        "kind": arrivals_kind(),
        "options": "",
    }
    return [
        {"seed": number, "family": family, "repeat": repeat, "policy": policy, "v": v, **fixed}
        for number in range(FIRST, FIRST + SYSTEMS, QUICK_STEP if quick else 1)
        for family in FAMILIES
        for repeat in range(QUICK_REPEATS if quick else REPEATS)
        for policy, v in (
            *((policy, 0.0) for policy in ALTERNATIVES),
            *(("potus", v) for v in WEIGHTS),
            ("potus-plus", 0.0),
            ("potus-plus", COST_MINDED),
        )
    ]


def run_random(one: Case) -> Sequence[Row]:
    """Run a policy on the system with a number."""
    number, repeat, warm_up, slots = (int(one[name]) for name in ("seed", "repeat", "warm_up", "slots"))
    drawn = _drawn(number, str(one["kind"]))
    rng = np.random.default_rng([number, 2, repeat])
    counts = arrival_counts(drawn.setting, drawn.kind, slots + warm_up, rng, traces_folder())
    system = drawn.setting.system if one["family"] == "equal" else mixed(drawn.setting.system, number)
    found = simulate(
        system, Arrivals(counts), routing_policy(spec(one)), warm_up=warm_up, seed=REPEATS * number + repeat
    )
    about: dict[str, Value] = {
        "fabric": drawn.fabric,
        "arrivals": drawn.kind,
        "hops": drawn.hops,
        "tasks": system.tasks,
        "utilisation": drawn.setting.utilisation,
    }
    return [{**about, **measures_of(system, counts[:, warm_up:].mean(axis=1), found, slots)}]


def mixed(system: SlottedSystem, number: int) -> SlottedSystem:
    """Return a system whose tasks are up to twice as fast, each with a random factor; γ is doubled."""
    factor = np.random.default_rng([number, 5]).uniform(1.0, FASTER, system.tasks)
    return system._replace(service=system.service * factor, limit=np.ceil(FASTER * system.limit).astype(np.int64))


@lru_cache(maxsize=32)
def _drawn(number: int, kind: str) -> RandomPotusWorkload:
    return random_potus_workload(number, ("poisson", kind))


def compared(rows: pd.DataFrame) -> pd.DataFrame:
    """Return one row per system of a family: POTUS-plus relative to others, mean over repeats.

    `to_potus`, `to_other` and `to_least` are ratios of response times to POTUS at its best V, to the best alternative
    and to `least-loaded`, and `response` to the better of the first two, with its standard deviation `response_sd`;
    `cost` is its cost with the setting for cost relative to the minimum, `cost_potus` the minimum of POTUS's. Values
    are missing if they are in any run.
    """
    rows = cost_ratio(rows)
    places = rows.groupby(["family", "seed"])
    about = places[["fabric", "arrivals", "hops", "tasks", "utilisation"]].first()
    response, cost = (_runs(rows, measure) for measure in ("response", "ratio"))
    plus = response["potus-plus", 0.0]
    potus = _best(response, [("potus", v) for v in WEIGHTS])
    other = _best(response, [(name, 0.0) for name in ALTERNATIVES])
    ratios = {
        "to_potus": plus / potus,
        "to_other": plus / other,
        "to_least": plus / response["least-loaded", 0.0],
        "response": plus / potus.where(_mean(potus) <= _mean(other), other),
        "cost": cost["potus-plus", COST_MINDED],
        "cost_potus": _best(cost, [("potus", v) for v in WEIGHTS]),
        "cost_shuffle": cost["shuffle", 0.0],
    }
    found = about.assign(**{name: _mean(ratio).groupby(["family", "seed"]).first() for name, ratio in ratios.items()})
    return found.assign(response_sd=ratios["response"].groupby(["family", "seed"]).std().fillna(0.0))


def _of(family: str, found: pd.DataFrame) -> pd.DataFrame:
    return found[found.index.get_level_values("family") == family].droplevel("family")


def _runs(rows: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Return a measure with one row per run and one column per policy and its V."""
    return rows.set_index(["family", "seed", "repeat", "policy", "v"])[measure].unstack(["policy", "v"])


def _mean(values: "pd.Series[float]") -> "pd.Series[float]":
    """Return for every run the mean over all repeats of its system; missing if one of them is."""
    mean: pd.Series[float] = values.groupby(["family", "seed"]).transform(lambda some: some.mean(skipna=False))
    return mean


def _best(table: pd.DataFrame, choices: Sequence[tuple[str, float]]) -> "pd.Series[float]":
    """Return the values of the choice with the minimum mean, by system."""
    best = table[choices[0]]
    for choice in choices[1:]:
        best = best.where(_mean(best) <= _mean(table[choice]), table[choice])
    return best


def _draw(rows: pd.DataFrame, picture: Picture) -> None:
    picture.set_size_inches(10, 8)
    found = compared(rows)
    for (response, cost), family in zip(picture.subplots(2, 2), FAMILIES, strict=True):
        own = _of(family, found)
        jitter = np.random.default_rng(0).uniform(-0.15, 0.15, len(own))
        for measure, colour, label in (
            ("to_potus", COLOURS[1], "to POTUS at its best V"),
            ("to_other", COLOURS[0], "to the strongest alternative"),
        ):
            response.scatter(own["hops"] + jitter, own[measure], s=14, color=colour, label=label)
        title = f"μ {'equal within a component' if family == 'equal' else 'another for every task'}"
        finish(response, "hops", "response time of POTUS-plus, ratio", f"V = 0, {title}")
        for measure, colour, label in (
            ("cost", COLOURS[2], f"POTUS-plus, V = {COST_MINDED:g}"),
            ("cost_potus", COLOURS[1], "POTUS at its cheapest V"),
            ("cost_shuffle", COLOURS[0], "Shuffle"),
        ):
            cost.scatter(own["hops"] + jitter, own[measure], s=14, color=colour, label=label)
        finish(cost, "hops", "cost / least cost", title)
        for axis in (response, cost):
            axis.axhline(1.0, color="black", linewidth=0.8)


def _claims(rows: pd.DataFrame) -> list[Claim]:
    found = compared(rows)
    return [
        *(claim for family in FAMILIES for claim in _family_claims(family, _of(family, found))),
        _speed_claim(found),
    ]


def _family_claims(family: str, found: pd.DataFrame) -> list[Claim]:
    """Check time and cost in one family; missing values do not pass."""
    what = "μ equal within a component" if family == "equal" else "μ another for every task"
    level = found["response"] <= LEVEL
    cheap = (found["cost"] <= NEAR) & (found["cost"] >= UNDER)
    return [
        Claim(
            f"ours: POTUS-plus is no slower than the better of POTUS and the strongest alternative ({what})",
            "-",
            f"ratio {_spread(found['response'])}; {_above(found)}",
            f"≤ {LEVEL} in every system, mean over its runs",
            bool(level.all()),
            f"to POTUS {_spread(found['to_potus'])}, to the strongest alternative {_spread(found['to_other'])}",
        ),
        Claim(
            f"ours: in its cost-minded setting POTUS-plus is within 2 % of the optimum ({what})",
            "-",
            f"ratio {_spread(found['cost'])}{_where(found[~cheap], 'cost')}",
            f"{UNDER} to {NEAR} in every system, mean over its runs",
            bool(cheap.all()),
            f"V = {COST_MINDED:g}; POTUS at its cheapest V {_spread(found['cost_potus'])}, Shuffle "
            f"{_spread(found['cost_shuffle'])}",
        ),
    ]


def _speed_claim(found: pd.DataFrame) -> Claim:
    """Check whether POTUS-plus uses tasks of different speed better than a rule that only compares queues."""
    mixed_ones, equal_ones = (_of(family, found)["to_least"] for family in ("mixed", "equal"))
    return Claim(
        "ours: where tasks differ in speed POTUS-plus is faster than least-loaded",
        "-",
        f"ratio {_spread(mixed_ones)}; below 1 in {int((mixed_ones < 1).sum())} of {len(mixed_ones)} systems",
        "upper 95 % limit of the mean over systems < 1",
        upper(mixed_ones.to_numpy()) < 1.0,
        f"where they do not: {_spread(equal_ones)}",
    )


def _above(found: pd.DataFrame) -> str:
    """Describe in how many systems the ratio is above 1, and by how much."""
    worse = found[~(found["response"] <= 1.0)]
    text = f"above 1 in {len(worse)} of {len(found)} systems"
    if not len(worse):
        return text
    excess = worse["response"] - 1
    runs = signed(float(worse["response_sd"].mean()))[1:]
    return f"{text}, by {signed(excess.mean())} on average (runs of a system: ±{runs}){_where(worse, 'response')}"


def _spread(values: "pd.Series[float]") -> str:
    some: Floats = np.asarray(values, dtype=np.float64)
    return f"{some.mean():.3f} (median {np.median(some):.3f}, {some.min():.3f} to {some.max():.3f})"


def _where(worse: pd.DataFrame, measure: str) -> str:
    """Describe the worst systems."""
    texts = [
        f"system {number}: {row[measure]:.3f} ({row['fabric']}, {row['arrivals']}, {row['hops']} hops, "
        f"load {row['utilisation']:.2f})"
        for number, row in worse.sort_values(measure, ascending=False, na_position="first").iterrows()
    ]
    return ", most in " + "; ".join(texts[:3]) if texts else ""


FIGURES: Sequence[Figure] = (Figure("beyond", "POTUS-plus on random systems", _cases, run_random, _draw, _claims),)
